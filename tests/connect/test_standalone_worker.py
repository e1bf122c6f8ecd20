"""A standalone worker: connectors from files, offsets in a file that Java reads, REST beside it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.connect_worker import JSON, STRING, WorkerProcess, feed, lines_out, wait_for

from klamm.connect.standalone import read_connector, worker_config
from klamm.connect.topics.config_topic import TargetState
from klamm.connect.topics.java_map import MalformedMap, decode, encode
from klamm.connect.topics.kafka_log import LogError
from klamm.connect.topics.local_storage import FileLog
from klamm_base.errors import ConfigError

Start = Callable[..., WorkerProcess]

# What Java 17 writes for a HashMap with one entry.
ONE_ENTRY = bytes.fromhex(
    "aced0005737200116a6176612e7574696c2e486173684d61700507dac1c31660d103000246000a6c6f6164466163746f7249"
    "00097468726573686f6c6478703f4000000000000c77080000001000000001757200025b42acf317f8060854e00200007870"
    "000000135b2263222c7b2266223a22782e747874227d5d7571007e0002000000077b2270223a357d78"
)


def test_standalone_offset_file_is_javas() -> None:
    entries = {b'["c",{"f":"x.txt"}]': b'{"p":5}'}
    assert decode(ONE_ENTRY) == entries
    assert encode(entries) == ONE_ENTRY


@given(st.dictionaries(st.binary(max_size=20), st.none() | st.binary(max_size=20), max_size=40))
def test_standalone_offset_file_round_trips(entries: dict[bytes, bytes | None]) -> None:
    assert decode(encode(entries)) == entries


@given(st.data())
def test_standalone_a_file_that_is_cut_or_changed_is_refused_or_read(data: st.DataObject) -> None:
    """Never an error of another kind."""
    whole = bytearray(ONE_ENTRY)
    cut = bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(MalformedMap):
        decode(cut)
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedMap):
        decode(bytes(whole))


def test_standalone_connector_files(tmp_path: Path) -> None:
    plain, flat, posted = tmp_path / "a.properties", tmp_path / "b.json", tmp_path / "c.json"
    plain.write_text("name=a\nconnector.class=X\n")
    flat.write_text(json.dumps({"name": "b", "connector.class": "X", "tasks.max": 2}))
    posted.write_text(
        json.dumps({"name": "c", "config": {"connector.class": "X"}, "initial_state": "STOPPED"})
    )
    assert read_connector(plain).config == {"name": "a", "connector.class": "X"}
    assert read_connector(flat).config == {"name": "b", "connector.class": "X", "tasks.max": "2"}
    found = read_connector(posted)
    assert (found.name, found.initial_state) == ("c", TargetState.STOPPED)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("x.json", "{", "x.json is not JSON"),
        ("x.json", "[]", "x.json must hold an object, not list"),
        ("x.json", '{"connector.class": "X"}', "name is missing"),
        ("x.json", '{"name": "a", "config": {}, "other": 1}', "'other' is unknown"),
        (
            "x.json",
            '{"name": "a", "config": {}, "initial_state": "GONE"}',
            "initial_state must be one of RUNNING, PAUSED, STOPPED",
        ),
        ("x.json", '{"name": "a", "x": {}}', "the value of x must be a string"),
        ("x.properties", "connector.class=X\n", "name is missing"),
    ],
)
def test_standalone_connector_file_that_is_wrong(tmp_path: Path, name: str, text: str, why: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_connector(path)


def test_standalone_worker_needs_a_file_and_no_group() -> None:
    given = {"bootstrap.servers": "127.0.0.1:9092", "key.converter": JSON, "value.converter": JSON}
    with pytest.raises(ConfigError, match=r"offset\.storage\.file\.filename"):
        worker_config(given)
    made = worker_config({**given, "offset.storage.file.filename": "/tmp/x"})
    assert made.standalone
    with pytest.raises(ConfigError, match=r"exactly\.once\.source\.support"):
        worker_config(
            {**given, "offset.storage.file.filename": "x", "exactly.once.source.support": "enabled"}
        )


class Standalone(WorkerProcess):
    """`klamm connect standalone` as a user starts it."""

    def __init__(self, directory: Path, properties: dict[str, str], *files: Path) -> None:
        self._properties = properties
        config = directory / "standalone.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        self._log_path = directory / f"standalone-{uuid.uuid4().hex}.log"
        self._err = self._log_path.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "klamm.cli.main", "connect", "standalone", str(config), *map(str, files)],
            stdout=subprocess.PIPE,
            stderr=self._err,
            env=os.environ,
        )
        self.port = 0


@pytest.fixture
def start(processes: None, tmp_path: Path) -> Iterator[Start]:
    started: list[WorkerProcess] = []

    def make(properties: dict[str, str], *files: Path) -> WorkerProcess:
        started.append(Standalone(tmp_path, properties, *files))
        return started[-1]

    yield make
    for worker in started:
        worker.end()


def properties(bootstrap: str, directory: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap, "key.converter": STRING, "value.converter": STRING,
        "offset.storage.file.filename": str(directory / "connect.offsets"), "offset.flush.interval.ms": "200",
        "listeners": "http://127.0.0.1:0",
    }  # fmt: skip


def pipe_files(directory: Path, topic: str) -> list[Path]:
    source = {
        "name": "src",
        "connector.class": "FileStreamSource",
        "topic": topic,
        "file": directory / "in.txt",
    }
    sink = {
        "name": "snk",
        "connector.class": "FileStreamSink",
        "topics": topic,
        "file": directory / "out.txt",
    }
    files = []
    for each in (source, sink):
        files.append(directory / f"{each['name']}.properties")
        files[-1].write_text("".join(f"{k}={v}\n" for k, v in each.items()))
    return files


def wait_lines(directory: Path, count: int, worker: WorkerProcess) -> None:
    wait_for(lambda: len(lines_out(directory)) >= count, lambda: f"{len(lines_out(directory))} {worker.log}")


def position(directory: Path) -> int | None:
    path = directory / "connect.offsets"
    entries = decode(path.read_bytes()) if path.exists() else {}
    return json.loads(next(iter(entries.values())) or b"{}")["position"] if entries else None


def test_standalone_worker_runs_its_files_and_goes_on_where_it_was(
    bootstrap: str, tmp_path: Path, start: Start
) -> None:
    files = pipe_files(tmp_path, f"alone-{uuid.uuid4().hex[:8]}")
    given = properties(bootstrap, tmp_path)
    feed(tmp_path, 0, 50)
    worker = start(given, *files).wait_ready()
    wait_lines(tmp_path, 50, worker)
    assert sorted(worker.get("/connectors")) == ["snk", "src"]
    size = (tmp_path / "in.txt").stat().st_size
    wait_for(lambda: position(tmp_path) == size, lambda: f"{position(tmp_path)} {worker.log}")
    assert worker.get("/connectors/src/offsets")["offsets"][0]["offset"] == {"position": size}
    made = worker.create("more", connector__class="FileStreamSource", file=str(tmp_path / "x"), topic="x")
    assert made.status == 201, made.body
    assert worker.request("POST", "/connectors/src/restart?includeTasks=true").status == 202
    assert worker.request("POST", "/connectors/src/tasks", []).message == (
        "Internal request missing required signature"
    )
    assert worker.stop() == 0, worker.log
    feed(tmp_path, 50, 50)
    again = start(given, *files).wait_ready()
    wait_lines(tmp_path, 100, again)
    assert sorted(again.get("/connectors")) == ["snk", "src"], "what REST made was not in a file"
    assert again.stop() == 0, again.log
    assert lines_out(tmp_path) == [f"line {i}" for i in range(100)]


def test_standalone_worker_that_was_killed_loses_no_line(
    bootstrap: str, tmp_path: Path, start: Start
) -> None:
    files = pipe_files(tmp_path, f"alone-{uuid.uuid4().hex[:8]}")
    given = properties(bootstrap, tmp_path) | {
        "consumer.session.timeout.ms": "1500",
        "consumer.heartbeat.interval.ms": "400",
    }
    for i in range(2):
        feed(tmp_path, i * 100, 100)
        worker = start(given, *files).wait_ready()
        wait_for(lambda: f"line {i * 100}" in lines_out(tmp_path), lambda: worker.log)
        worker.stop(signal.SIGKILL)
    worker = start(given, *files).wait_ready()
    expected = {f"line {i}" for i in range(200)}
    wait_for(lambda: expected <= set(lines_out(tmp_path)), lambda: worker.log)


def test_standalone_worker_says_which_file_is_wrong(bootstrap: str, tmp_path: Path, start: Start) -> None:
    bad = tmp_path / "bad.properties"
    bad.write_text("name=bad\nconnector.class=NotThere\n")
    worker = start(properties(bootstrap, tmp_path), bad)
    assert worker.wait_exit() == 2
    assert f"{bad}: connector bad cannot be created" in worker.log
    assert "Traceback" not in worker.log


def test_standalone_worker_refuses_a_file_that_is_no_offsets(
    bootstrap: str, tmp_path: Path, start: Start
) -> None:
    (tmp_path / "connect.offsets").write_text("something else")
    worker = start(properties(bootstrap, tmp_path))
    assert worker.wait_exit() == 1
    assert "is no file of source offsets" in worker.log
    assert "Traceback" not in worker.log


async def test_standalone_offset_file_has_one_worker(tmp_path: Path) -> None:
    path, read = tmp_path / "offsets", list[tuple[str, bytes | None]]()
    first = FileLog(path, lambda *_: None)
    await first.start()
    second = FileLog(path, lambda key, value, _: read.append((key, value)))
    with pytest.raises(LogError, match="is used by another standalone worker"):
        await second.start()
    await asyncio.gather(*(first.write(f"k{i}", b"%d" % i) for i in range(20)), first.write("k0", None))
    await first.stop()
    await second.start()
    assert sorted(read) == sorted((f"k{i}", b"%d" % i) for i in range(1, 20))
    await second.stop()
    assert {p.name: oct(p.stat().st_mode & 0o777) for p in tmp_path.iterdir()} == {
        "offsets": "0o600", ".offsets.lock": "0o600",
    }  # fmt: skip
    path.chmod(0o660)
    third = FileLog(path, lambda *_: None)
    await third.start()
    await third.write("k", b"v")
    await third.stop()
    assert oct(path.stat().st_mode & 0o777) == "0o660", "a Java worker of the group may share the file"


async def test_standalone_offset_file_that_every_user_can_read_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # every user reaches it, as pytest's own is not
        Path(folder).chmod(0o755)
        path = Path(folder) / "offsets"
        path.touch()
        path.chmod(0o644)
        log = FileLog(path, lambda *_: None)
        await log.start()
        await log.stop()
        assert [m for m in caplog.messages if "every user" in m] == [
            f"every user of this machine can read {path}; to keep it private: chmod 600 {path}"
        ]


@pytest.mark.usefixtures("apache_kafka")
def test_standalone_offsets_are_read_by_java(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    path.write_bytes(encode({b"k%d" % i: b"v%d" % i for i in range(100)} | {b"gone": None}))
    reader = tmp_path / "Read.java"
    reader.write_text(
        "import java.io.*; import java.util.*; public class Read { public static void main(String[] a) throws"
        " Exception { try (var in = new ObjectInputStream(new FileInputStream(a[0]))) { for (var e :"
        " ((HashMap<byte[], byte[]>) in.readObject()).entrySet()) System.out.println(new String(e.getKey()) +"
        ' "=" + (e.getValue() == null ? null : new String(e.getValue()))); } } }'
    )
    out = subprocess.run(
        ["java", str(reader), str(path)], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert sorted(out) == sorted([*(f"k{i}=v{i}" for i in range(100)), "gone=null"])
