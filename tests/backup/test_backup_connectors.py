"""The disk is lost: a system with connectors is backed up, and goes on in another one where it was."""

from __future__ import annotations

import json
from urllib.request import Request, urlopen

import pytest
from support.backups import backup
from support.broker import wait_until
from support.klamm import Server, klamm, up_words

pytestmark = pytest.mark.usefixtures("processes")

TEXT = "org.apache.kafka.connect.storage.StringConverter"
SCHEMA = {"schema": '"string"'}


def up(data):
    return Server(*up_words(data))


def get(url):
    with urlopen(url, timeout=30) as answer:
        return json.load(answer)


def post(url, body):
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def offset(rest, name):
    """Return the only offset of a connector, None while it has none."""
    rows = get(f"{rest}/connectors/{name}/offsets")["offsets"]
    return rows[0]["offset"] if rows else None


def test_connectors_go_on_where_they_were(tmp_path):
    """No line is read or written again, and new lines come through."""
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\nthree\n")
    configs = {
        "reads": {"connector.class": "FileStreamSource", "file": str(source), "topic": "lines", "value.converter": TEXT},
        "writes": {"connector.class": "FileStreamSink", "file": str(sink), "topics": "lines", "value.converter": TEXT},
    }  # fmt: skip
    with up(tmp_path / "first") as system:
        rest, broker = system.ready["rest"], system.ready["broker"]
        for name, config in configs.items():
            (tmp_path / "c.json").write_text(
                json.dumps({"name": name, "config": {"tasks.max": "1", **config}})
            )
            assert klamm("connector", "create", "-f", str(tmp_path / "c.json"), "--url", rest).returncode == 0
        wait_until(lambda: sink.exists() and sink.read_text() == "one\ntwo\nthree\n", "three lines")
        for name in configs:
            assert klamm("connector", "stop", name, "--url", rest).returncode == 0
        wait_until(lambda: offset(rest, "writes") == {"kafka_offset": 3}, "the sink's offset")
        assert klamm("connector", "resume", "reads", "--url", rest).returncode == 0
        told = post(f"{system.ready['registry']}/subjects/lines-value/versions", SCHEMA)
        said = backup("create", tmp_path / "b", "-b", broker, "--rest", rest, "--exclude", "*connect-*")
        assert "2 topics" in said  # `_schemas`, too
    sink.unlink()
    with up(tmp_path / "second") as system:
        rest, broker = system.ready["rest"], system.ready["broker"]
        refused = klamm("backup", "restore", str(tmp_path / "b"), "-b", broker)
        assert "topic _schemas is there and holds records" in refused.stderr
        said = backup("restore", tmp_path / "b", "-b", broker, "--rest", rest, "--append")
        assert "2 connectors" in said
        registry = system.ready["registry"]
        wait_until(lambda: get(f"{registry}/subjects") == ["lines-value"], "the schema")
        found = get(f"{registry}/subjects/lines-value/versions/1")
        assert (found["id"], found["schema"]) == (told["id"], SCHEMA["schema"])
        wait_until(
            lambda: get(f"{rest}/connectors/reads/status")["connector"]["state"] == "RUNNING", "the source"
        )
        assert get(f"{rest}/connectors/writes/status")["connector"]["state"] == "STOPPED"
        assert offset(rest, "writes") == {"kafka_offset": 3}
        with source.open("a") as file:
            file.write("four\n")
        assert klamm("connector", "resume", "writes", "--url", rest).returncode == 0
        wait_until(lambda: sink.exists() and sink.read_text() == "four\n", "the new line")
        assert (
            klamm("kafka-get-offsets", "--bootstrap-server", broker, "--topic", "lines").stdout
            == "lines:0:4\n"
        )
        again = ("backup", "restore", str(tmp_path / "b"), "-b", broker, "--rest", rest, "--prefix", "x-")
        refused = klamm(*again)
        assert "groups with members are there: connect-writes (Stable)" in refused.stderr
        refused = klamm(*again, "--parts", "topics")
        assert (refused.returncode, refused.stderr.count("already exists")) == (1, 2)
        for name in configs:
            assert klamm("connector", "delete", name, "--url", rest).returncode == 0
        done = klamm(*again[:-2], "--prefix", "y-", "--parts", "topics")
        assert (done.returncode, "connector reads is stopped, because topics have other names" in done.stderr) == (0, True)  # fmt: skip
        assert get(f"{rest}/connectors/reads/status")["connector"]["state"] == "STOPPED"
