"""The sink: it conforms, and a record that comes twice is there once."""

import sqlite3
from contextlib import closing

import pytest
from klamm_example.sqlite_sink import SqliteSinkConnector, SqliteSinkTask

from klamm_plugins.errors import DataError, RetriableError
from klamm_plugins.records import TopicPartition
from klamm_plugins.testing import MemorySinkContext, SinkConformance, sink_records


class TestConformance(SinkConformance):
    connector = SqliteSinkConnector

    def props(self, tmp_path):
        return {"database": str(tmp_path / "out.db")}

    def written(self, tmp_path):
        with closing(sqlite3.connect(tmp_path / "out.db")) as db:
            return [value for (value,) in db.execute("SELECT value FROM records ORDER BY position")]


@pytest.fixture
def task(tmp_path):
    task = SqliteSinkTask()
    task.initialize(MemorySinkContext({}))
    task.start({"database": str(tmp_path / "out.db")})
    yield task
    task.stop()


def rows(tmp_path):
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        return db.execute(
            "SELECT topic, partition, position, value FROM records ORDER BY position"
        ).fetchall()


def test_a_record_that_comes_twice_is_there_once(task, tmp_path):
    task.put(sink_records("a", "b"))
    task.put(sink_records("a", "b", "c"))
    task.flush({TopicPartition("t", 0): 3})
    assert rows(tmp_path) == [("t", 0, 0, "a"), ("t", 0, 1, "b"), ("t", 0, 2, "c")]


def test_what_is_not_flushed_is_not_there_after_a_stop(task, tmp_path):
    task.put(sink_records("a"))
    task.stop()
    assert rows(tmp_path) == []


def test_a_busy_database_is_tried_again(task, tmp_path, monkeypatch):
    task._db.execute("PRAGMA busy_timeout = 1")
    with closing(sqlite3.connect(tmp_path / "out.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RetriableError, match="database is locked"):
            task.put(sink_records("a"))
    task.put(sink_records("a"))
    task.flush({})
    assert len(rows(tmp_path)) == 1


def test_a_value_without_text_names_its_record(task):
    with pytest.raises(DataError, match="record t-0@7: bytes cannot become text"):
        task.put(sink_records(b"raw", offset=7))
