"""The file connectors: Kafka's configuration and offsets, growing and truncated files, failing disks."""

import errno
import json
import os
from pathlib import Path

import pytest

from klamm_connectors.file.sink import task as sink_module
from klamm_connectors.file.sink.connector import FileStreamSinkConnector
from klamm_connectors.file.sink.task import FileStreamSinkTask
from klamm_connectors.file.source.connector import FileStreamSourceConnector
from klamm_connectors.file.source.task import FileStreamSourceTask
from klamm_plugins.errors import ConfigError, ConnectError, DataError, RetriableError
from klamm_plugins.records import TopicPartition
from klamm_plugins.schema import FLOAT32, INT32, STRING, SchemaBuilder, Struct
from klamm_plugins.testing import (
    MemorySinkContext,
    MemorySourceContext,
    SinkConformance,
    SourceConformance,
    sink_records,
)

RECORDED = json.loads((Path(__file__).parent / "fixtures/recorded_configs.json").read_text("utf-8"))


class TestSourceConformance(SourceConformance):
    connector = FileStreamSourceConnector

    def props(self, tmp_path):
        return {"file": str(tmp_path / "in.txt"), "topic": "lines", "batch.size": "7"}

    def produce(self, tmp_path, count):
        with (tmp_path / "in.txt").open("a") as f:
            f.writelines(f"line {i} ü\r\n" for i in range(count))


class TestSinkConformance(SinkConformance):
    connector = FileStreamSinkConnector

    def props(self, tmp_path):
        return {"file": str(tmp_path / "out.txt")}

    def written(self, tmp_path):
        return (tmp_path / "out.txt").read_text().splitlines()


@pytest.mark.parametrize("connector", [FileStreamSourceConnector, FileStreamSinkConnector])
def test_keys_types_and_defaults_are_those_of_kafka(connector):
    ours = [
        [
            k.name,
            str(k.type),
            k.required,
            None if k.required or k.default is None else str(k.default),
            k.importance,
        ]
        for k in connector.config()
    ]
    assert ours == RECORDED[connector.kafka_name]


@pytest.fixture
def source(tmp_path):
    """Starts source tasks on one file and stops them."""
    tasks = []

    def start(path=tmp_path / "in.txt", committed=None, **props):
        task = FileStreamSourceTask()
        config = {"file": str(path), "topic": "lines", **props}
        task.initialize(MemorySourceContext(config))
        if committed:
            task.context.commit(committed)
        tasks.append(task)
        task.start(config)
        return task

    yield start
    for task in tasks:
        task.stop()


def values(records):
    return [r.value for r in records or []]


def test_records_are_those_of_kafka(source, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"one\ntwo\n")
    record = source().poll()[1]
    assert (record.topic, record.partition, record.key_schema, record.key) == ("lines", None, None, None)
    assert (record.value_schema, record.value) == (STRING, "two")
    assert record.source_partition == {"filename": str(tmp_path / "in.txt")}
    assert record.source_offset == {"position": 8}
    assert record.timestamp is None, "the time of sending"
    assert source(transforms="stamp").poll()[0].timestamp > 1_600_000_000_000


def test_waits_for_the_file_and_for_the_end_of_each_line(source, tmp_path):
    path = tmp_path / "in.txt"
    task = source()
    assert task.poll() is None
    assert task.lag() is None
    path.write_bytes(b"half")
    assert task.poll() is None
    with path.open("ab") as f:
        f.write(b" a line\nnext")
    assert values(task.poll()) == ["half a line"]
    assert task.lag() == 4
    with path.open("ab") as f:
        f.write(b"\n")
    assert values(task.poll()) == ["next"]
    assert task.lag() == 0


def test_batches_are_bounded_and_lag_counts_what_is_held_back(source, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"".join(b"%d\n" % i for i in range(5)))
    task = source(**{"batch.size": "2"})
    assert values(task.poll()) == ["0", "1"]
    assert task.lag() == 6
    assert values(task.poll()) == ["2", "3"]
    assert values(task.poll()) == ["4"]
    assert task.lag() == 0


def test_files_larger_than_a_chunk(source, tmp_path):
    lines = [f"{i} {'x' * (i % 500)}" for i in range(5000)]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    task = source()
    found = []
    while len(found) < len(lines):
        batch = task.poll()
        assert batch
        assert len(batch) <= 2000
        found += values(batch)
    assert found == lines


def test_a_truncated_file_is_read_from_its_beginning_and_it_says_so(source, tmp_path, caplog):
    path = tmp_path / "in.txt"
    path.write_bytes(b"old line\nunfinished")
    task = source()
    records = task.poll()
    path.write_bytes(b"new\n")
    assert values(task.poll()) == ["new"]
    assert "truncated" in caplog.text
    assert "10 bytes is gone" in caplog.text
    restarted = source(committed=records[0])
    assert values(restarted.poll()) == ["new"]
    assert restarted.poll() is None


def test_malformed_utf8_is_replaced(source, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a\xffb\nplain\n")
    assert values(source().poll()) == ["a\ufffdb", "plain"]


def test_a_line_without_end_has_a_limit(source, tmp_path, monkeypatch):
    monkeypatch.setattr("klamm_connectors.file.source.follow._LINE_MAX", 10)
    (tmp_path / "in.txt").write_bytes(b"ok\n" + b"x" * 20)
    task = source()
    with pytest.raises(ConnectError, match="begins at byte 3 is longer than 10 bytes"):
        task.poll()


def test_what_cannot_be_read_fails_and_names_the_file(source, tmp_path):
    with pytest.raises(ConnectError, match=f"file {tmp_path} cannot be read at byte 0: Is a directory"):
        source(path=tmp_path).poll()


@pytest.mark.parametrize(
    ("props", "key", "error"),
    [
        ({"topic": "t"}, "file", "which has no standard input"),
        ({"file": "", "topic": "t"}, "file", "which has no standard input"),
        ({"file": "f"}, "topic", 'Missing required configuration "topic" which has no default value.'),
        ({"file": "f", "topic": ""}, "topic", "The name of one topic"),
        ({"file": "f", "topic": "a,b"}, "topic", "Invalid value a,b for configuration topic"),
        ({"file": "f", "topic": "t", "batch.size": "0"}, "batch.size", "Value must be at least 1"),
    ],
)
def test_bad_source_configurations(props, key, error):
    errors = {v.name: v.errors for v in FileStreamSourceConnector.validate(props)}
    assert [name for name, found in errors.items() if found] == [key]
    assert error in errors[key][0]
    with pytest.raises(ConfigError):
        FileStreamSourceConnector().start(props)


@pytest.mark.parametrize(
    ("partition", "offset", "error"),
    [
        ({"nope": 1}, {"position": 7}, "Partition objects should contain the key 'filename'"),
        ({"filename": "f"}, {"position": "x"}, "in the offset is expected to be a Long value"),
        ({"filename": "f"}, {"position": True}, "in the offset is expected to be a Long value"),
        ({"filename": "f"}, {"position": -1}, "should be a non-negative value"),
        ({"filename": "f"}, {}, "should either be null or contain the key 'position'"),
        ({"filename": "f"}, {"position": 7}, None),
        ({"filename": "other"}, None, None),
        ({"garbage": 1}, None, None),
    ],
)
def test_alter_source_offsets(partition, offset, error):
    def alter():
        return FileStreamSourceConnector.alter_offsets({"file": "f", "topic": "t"}, [(partition, offset)])

    if error is None:
        assert alter()
    else:
        with pytest.raises(ConnectError, match=error):
            alter()


@pytest.fixture
def sink(tmp_path):
    """Starts sink tasks on one file and stops them."""
    tasks = []

    def start(**props):
        task = FileStreamSinkTask()
        config = {"file": str(tmp_path / "out.txt"), **props}
        task.initialize(MemorySinkContext(config))
        task.start(config)
        tasks.append(task)
        return task

    yield start
    for task in tasks:
        task.stop()


def test_one_write_per_batch(sink, tmp_path, monkeypatch):
    writes = []
    real = os.write
    monkeypatch.setattr(sink_module.os, "write", lambda fd, data: writes.append(len(data)) or real(fd, data))
    sink().put(sink_records("a", "b", "ü"))
    assert (tmp_path / "out.txt").read_text() == "a\nb\nü\n"
    assert len(writes) == 1


def test_values_of_every_kind_become_lines(sink, tmp_path):
    task = sink()
    point = Struct(SchemaBuilder.struct().field("x", INT32).build(), x=1)
    for value in (None, 5, True, 1e10, b"raw \xff", {"a": [1]}, point):
        task.put(sink_records(value, schema=None))
    task.put(sink_records(0.1, schema=FLOAT32))
    expected = b"null\n5\ntrue\n1.0E10\nraw \xff\n{a=[1]}\nStruct{x=1}\n0.1\n"
    assert (tmp_path / "out.txt").read_bytes() == expected


def test_a_value_without_text_names_its_record(sink, tmp_path):
    with pytest.raises(DataError, match="record t-0@4: "):
        sink().put(sink_records("fine", "\ud800", offset=3))
    assert (tmp_path / "out.txt").read_bytes() == b""


def test_an_error_names_the_record_as_it_was_read(sink):
    [routed] = sink_records("\ud800", offset=3)
    routed = routed.copy()
    routed.topic, routed.partition = "elsewhere", 5
    with pytest.raises(DataError, match="record t-0@3: "):
        sink().put([routed])


def test_flush_syncs_before_offsets_are_committed(sink, monkeypatch):
    synced = []
    monkeypatch.setattr(sink_module.os, "fsync", synced.append)
    task = sink()
    task.put(sink_records("a"))
    assert not synced
    assert task.pre_commit({TopicPartition("t", 0): 1}) == {TopicPartition("t", 0): 1}
    assert len(synced) == 1


@pytest.mark.parametrize(("code", "error"), [(errno.ENOSPC, RetriableError), (errno.EBADF, ConnectError)])
def test_a_write_that_fails_half_way_leaves_nothing(sink, tmp_path, monkeypatch, code, error):
    task = sink()
    task.put(sink_records("first"))
    real = os.write

    def half(fd, data):
        if len(data) < 8:
            raise OSError(code, os.strerror(code))
        return real(fd, data[:5])

    monkeypatch.setattr(sink_module.os, "write", half)
    with pytest.raises(error, match=r"out\.txt cannot be written"):
        task.put(sink_records("second", "third"))
    assert (tmp_path / "out.txt").read_text() == "first\n"
    monkeypatch.undo()
    task.put(sink_records("second", "third"))
    assert (tmp_path / "out.txt").read_text() == "first\nsecond\nthird\n"


def test_a_half_line_of_a_killed_task_is_ended(sink, tmp_path, caplog):
    (tmp_path / "out.txt").write_text("whole\nhal")
    sink().put(sink_records("half"))
    assert (tmp_path / "out.txt").read_text() == "whole\nhal\nhalf\n"
    assert "in the middle of a line" in caplog.text


def test_two_tasks_append_whole_lines(sink, tmp_path):
    a, b = sink(), sink()
    for _ in range(50):
        a.put(sink_records("a" * 100, "a"))
        b.put(sink_records("b" * 100, "b"))
    assert set((tmp_path / "out.txt").read_text().splitlines()) == {"a" * 100, "a", "b" * 100, "b"}


def test_without_a_file_lines_go_to_the_log(sink, caplog):
    caplog.set_level("INFO")
    task = sink(file="")
    task.put(sink_records("to the log", "and more"))
    task.flush({})
    assert [r.message for r in caplog.records] == ["to the log", "and more"]


def test_a_file_that_cannot_be_opened_is_named(sink, tmp_path):
    with pytest.raises(ConnectError, match="cannot be opened for appending: No such file or directory"):
        sink(file=str(tmp_path / "no" / "dir"))


def test_each_task_of_the_sink_gets_the_file():
    connector = FileStreamSinkConnector()
    connector.start({"file": "f"})
    assert connector.task_configs(3) == [{"file": "f"}] * 3
    assert FileStreamSinkConnector.alter_offsets({"file": "f"}, {TopicPartition("t", 0): 0})
