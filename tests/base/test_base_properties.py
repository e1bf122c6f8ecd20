from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_base.configdef import ConfigDef, Type, between
from klamm_base.errors import ConfigError
from klamm_base.properties import (
    Properties,
    from_environment,
    from_overrides,
    layered,
    load_properties,
    parse,
    suggestion,
)

# text of a file, what java.util.Properties makes of it
FILES = [
    ("a=1\n", {"a": "1"}),
    ("a = 1\r\nb:2\rc 3", {"a": "1", "b": "2", "c": "3"}),
    ("# c\n! d\n\n  a=1", {"a": "1"}),
    ("a=1\\\n   2\\\n\t3\nb=4", {"a": "123", "b": "4"}),
    ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    ("a\\=b=c\\:d\\ e", {"a=b": "c:d e"}),
    ("a=\\u00e9\\t|\\ud83d\\ude00", {"a": "é\t|😀"}),
    ("a=x  ", {"a": "x  "}),
    ("a", {"a": ""}),
    ("a==b", {"a": "=b"}),
    ("a=# no comment", {"a": "# no comment"}),
    ("listeners=PLAINTEXT://127.0.0.1:9092", {"listeners": "PLAINTEXT://127.0.0.1:9092"}),
    ("A->B.enabled=true", {"A->B.enabled": "true"}),
    ("a=é", {"a": "é"}),
]


@pytest.mark.parametrize(("text", "values"), FILES)
def test_reads_files_as_java_does(tmp_path, text, values):
    path = tmp_path / "x.properties"
    path.write_bytes(text.encode())
    assert dict(load_properties(path)) == values


def test_a_value_knows_its_line(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("# one\na=1\\\n 2\n\nb=3\n")
    props = load_properties(path)
    assert props.source("a") == f"{path}:2"
    assert props.source("b") == f"{path}:5"


def test_a_broken_escape_is_named(tmp_path):
    path = tmp_path / "x.properties"
    path.write_bytes(b"a=\\u12")
    with pytest.raises(ConfigError, match=r":1: .*four hexadecimal digits"):
        load_properties(path)


def test_a_file_that_is_not_utf8_is_read_as_java_reads_it(tmp_path, caplog):
    path = tmp_path / "x.properties"
    path.write_bytes(b"a=1\n# caf\xe9\nb=\xe9\n")
    assert dict(load_properties(path)) == {"a": "1", "b": "é"}
    assert f"{path}:2: not UTF-8; the file is read as ISO-8859-1" in caplog.text


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    path = tmp_path / "x.properties"
    path.write_bytes(b"\xef\xbb\xbfa=1\n")
    assert dict(load_properties(path)) == {"a": "1"}


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.properties: cannot be read: No such file"):
        load_properties(tmp_path / "absent.properties")


def test_a_key_given_twice_is_warned_about(tmp_path, caplog):
    path = tmp_path / "x.properties"
    path.write_text("a=1\na=2\n")
    assert load_properties(path)["a"] == "2"
    assert f"{path}:2: a was already set at {path}:1" in caplog.text


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_what_is_escaped_comes_back(tmp_path_factory, values):
    def escape(text: str) -> str:
        return "".join(f"\\u{unit:04x}" for c in text for unit in units(c))

    def units(c: str) -> list[int]:
        data = c.encode("utf-16-be", "surrogatepass")
        return [int.from_bytes(data[i : i + 2]) for i in range(0, len(data), 2)]

    path = tmp_path_factory.mktemp("p") / "x.properties"
    values = {k: v for k, v in values.items() if not any("\ud800" <= c <= "\udfff" for c in k + v)}
    path.write_text("".join(f"{escape(k)}={escape(v)}\n" for k, v in values.items()))
    assert dict(load_properties(path)) == values


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("KLAMM_LOG_RETENTION_MS", "log.retention.ms"),
        ("KLAMM_A__B", "a_b"),
        ("KLAMM_A___B", "a-b"),
        ("KLAMM_NUM_PARTITIONS", "num.partitions"),
    ],
)
def test_environment_names(name, key):
    props = from_environment({name: "7", "OTHER": "x", "KLAMM_DEBUG": "1"})
    assert dict(props) == {key: "7"}
    assert props.source(key) == f"environment {name}"


def test_layers_and_their_sources(tmp_path, monkeypatch):
    path = tmp_path / "s.properties"
    path.write_text("a=1\nb=1\nc=1\n")
    for name in [n for n in os.environ if n.startswith("KLAMM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KLAMM_B", "2")
    monkeypatch.setenv("KLAMM_C", "2")
    props = layered(path, ["c=3"])
    assert dict(props) == {"a": "1", "b": "2", "c": "3"}
    assert [props.source(k) for k in "abc"] == [f"{path}:1", "environment KLAMM_B", "--override"]


def test_an_override_without_value_is_refused():
    with pytest.raises(ConfigError, match=r"--override: 'num\.partitions' is not key=value"):
        from_overrides(["num.partitions"])


def test_all_bad_values_are_listed_with_their_sources(tmp_path):
    path = tmp_path / "s.properties"
    path.write_text("port=x\nsize=-1\n")
    definition = ConfigDef().define("port", Type.INT).define("size", Type.LONG, 5, validator=between(0))
    with pytest.raises(ConfigError) as e:
        parse(definition, load_properties(path))
    assert str(e.value).splitlines() == [
        f"{path}:1: Invalid value x for configuration port: Not a number of type INT",
        f"{path}:2: Invalid value -1 for configuration size: Value must be at least 0",
    ]


def test_a_layer_from_code_hides_the_old_source():
    props = Properties({"a": "1"}, {"a": "f:1"}).over({"a": "2"})
    assert props["a"] == "2"
    assert props.source("a") is None


def test_near_misses_are_suggested():
    assert suggestion("num.partition", ["num.partitions", "log.dirs"]) == "; did you mean num.partitions?"
    assert suggestion("zzz", ["num.partitions"]) == ""
