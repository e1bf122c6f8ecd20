"""Connector configurations in files of four formats, and the differences between them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.cli import connector_diff
from klamm.cli.connector_config import _once
from klamm.cli.connector_files import ConnectorFile, read_connector, to_properties
from klamm.cli.rest_words import shortened
from klamm_base.errors import KlammError
from klamm_base.redaction import HIDDEN

WANTED = {"connector.class": "FileStreamSource", "tasks.max": "1", "x": "true", "y": "0.10"}
FILES = {
    "a.json": '{"connector.class": "FileStreamSource", "tasks.max": 1, "x": true, "y": 0.10}',
    "a.yaml": 'connector.class: FileStreamSource\ntasks:\n  max: 1\nx: true\ny: "0.10"\n',
    "a.yml": 'connector:\n  class: FileStreamSource\ntasks.max: "1"\nx: true\ny: "0.10"\n',
    "a.toml": 'connector.class = "FileStreamSource"\ntasks.max = 1\nx = true\ny = 0.10\n',
    "a.properties": "connector.class=FileStreamSource\ntasks.max: 1\nx true\ny=0.10\n",
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_holds_the_same(name, tmp_path):
    file = tmp_path / name
    file.write_text(FILES[name])
    assert read_connector(file) == ConnectorFile(name=None, config=WANTED)


def test_kafkas_list_of_connectors_is_shortened():
    known = ", ".join(
        f"PluginDesc{{klass=class org.x.{name}, name='org.x.{name}', version='1', encodedVersion=1, type=sink, "
        "typeName='sink', location='file:/x y/'}"
        for name in ("FileStreamSinkConnector", "Other")
    )
    said = f"Failed to find any class that implements Connector and which name matches org.x.FileStreamSnkConnector, available connectors are: {known}; more"
    assert shortened(f"a: {said}") == (
        "a: no connector org.x.FileStreamSnkConnector; did you mean FileStreamSink? `klamm connector plugins` lists all; more"
    )
    ours = "Failed to find any class that implements Connector and which name matches a.b; `klamm connector plugins` lists all"
    assert shortened(ours) == "no connector a.b; `klamm connector plugins` lists all"
    assert shortened("else") == "else"


def test_a_name_and_an_initial_state_stand_beside_the_configuration(tmp_path):
    file = tmp_path / "c.json"
    document = {"name": "n", "config": WANTED, "initial_state": "STOPPED", "tasks": [], "type": "source"}
    file.write_text(json.dumps(document))  # as GET /connectors/n answers it, too
    assert read_connector(file) == ConnectorFile(name="n", config=WANTED, initial_state="STOPPED")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", "{", "a.json: not JSON: "),
        ("a.json", "[1]", "a.json: a JSON object is needed"),
        ("a.yaml", "a: [", "a.yaml: not YAML: "),
        ("a.toml", "a =", "a.toml: not TOML: "),
        ("a.yaml", b"a: \xff", "a.yaml: not YAML: "),
        ("a.yml", b"a: \xff", "a.yml: not YAML: "),
        ("a.toml", b"a = '\xff'", "a.toml: not TOML: "),
        ("a.properties", "a=\\u12", "a.properties:1: \\u12: four hexadecimal digits"),
        ("a.json", None, "a.json: cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(name, text, said, tmp_path):
    file = tmp_path / name
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(KlammError) as raised:
        read_connector(file)
    assert str(raised.value).startswith(f"{tmp_path}/{said}")


def test_an_object_in_json_stays_for_the_worker_to_refuse(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('{"name": "n", "config": {"tasks": {"max": 1}, "list": [1]}}')
    assert read_connector(file).config == {"tasks": {"max": 1}, "list": [1]}


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT.filter(bool), TEXT))
def test_properties_read_back_the_same(config):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "c.properties")
        file.write_bytes(to_properties(config).encode())
        assert read_connector(file).config == config


def test_differences_hide_secrets(capsys):
    current = {"a": "1", "b": "2", "password": HIDDEN, "url": f"http://u:{HIDDEN}@h", "gone": "x"}
    wanted = {
        "a": "1", "b": "3", "password": "secret1", "url": "http://u:secret2@h", "token": "secret3",
        "key.secret": "${file:/f:k}",
    }  # fmt: skip
    found = connector_diff.changes(current, wanted)
    assert list(connector_diff.lines(found)) == [
        "- b=2",
        "+ b=3",
        "- gone=x",
        "+ key.secret=${file:/f:k}",
        f"~ password={HIDDEN} (cannot be compared)",
        f"+ token={HIDDEN}",
        f"~ url=http://u:{HIDDEN}@h (cannot be compared)",
    ]
    assert connector_diff.changes(wanted, wanted) == []


def test_what_follows_from_an_error_is_not_said_beside_it():
    bad, null = (
        "Invalid value a for configuration n: Not a number",
        "Invalid value null for configuration n: x",
    )
    assert _once([bad, null]) == [bad]
    assert _once([null, null]) == [null]
    assert _once([]) == []
