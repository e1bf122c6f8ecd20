"""The SQL sink with offsets in its own database: each record once, whatever ends a task or its connection."""

import random
import sqlite3

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_connectors.sql.connector import SqlSinkConnector
from klamm_plugins.errors import ConnectError, DataError, RetriableError
from klamm_plugins.records import SinkRecord, TopicPartition
from klamm_plugins.testing import MemorySinkContext

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def rows(path, statement):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


class Kept:
    def __init__(self, reporter):
        self._reporter = reporter

    def wait(self, timeout_s):
        self._reporter.waited += 1
        if self._reporter.late:
            raise RetriableError("not acknowledged")


class Reporter:
    late = False

    def __init__(self):
        self.reported, self.waited = [], 0

    def report(self, record, error):
        self.reported.append(record.offset)
        return Kept(self)


def start(path, reporter=None, places=(P0,), **more):
    props = {
        "name": "c",
        "connection.url": f"sqlite:///{path}",
        "auto.create": "true",
        "exactly.once": "true",
    }
    props |= {k.replace("__", "."): v for k, v in more.items()}
    context = MemorySinkContext(props)
    context.errant_record_reporter = reporter
    task = SqlSinkConnector.task_class()()
    task.initialize(context)
    task.start(props)
    task.open(places)
    return task


def record(offset, place=P0, value=None):
    return SinkRecord(place.topic, place.partition, None, None, None, value or {"n": offset}, offset)


def numbers(path):
    return [n for (n,) in rows(path, "SELECT n FROM t ORDER BY n")]


def offsets(path):
    return dict(rows(path, "SELECT kafka_partition, next_offset FROM klamm_offsets"))


def test_a_task_goes_on_where_the_database_says(tmp_path):
    path = tmp_path / "x.db"
    task = start(path)
    assert task.context.rewound == {}, "nothing was written: the group says where to begin"
    task.put([record(0), record(1)])
    task.stop()  # no offset was committed to the group
    task = start(path, places=(P0, P1))
    assert task.context.rewound == {P0: 2}
    task.put([record(2), record(0, P1, {"n": 100})])
    assert numbers(path) == [0, 1, 2, 100]
    assert offsets(path) == {0: 3, 1: 1}
    task.stop()


def test_rows_and_offsets_are_written_together_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "x.db"
    task = start(path, retry__backoff__ms="0")
    task.put([record(0)])

    def lost(*_):
        raise sa.exc.OperationalError("", {}, OSError("lost"), connection_invalidated=True)

    with monkeypatch.context() as m:
        m.setattr(sa.engine.default.DefaultDialect, "do_commit", lost)
        with pytest.raises(RetriableError):
            task.put([record(1)])
    assert (numbers(path), offsets(path)) == ([0], {0: 1})
    task.put([record(1)])
    assert (numbers(path), offsets(path)) == ([0, 1], {0: 2})
    task.stop()


def test_a_commit_whose_answer_was_lost_is_not_made_twice(tmp_path, monkeypatch):
    path = tmp_path / "x.db"
    task = start(path, retry__backoff__ms="0")
    task.put([record(0)])
    commit = sa.engine.default.DefaultDialect.do_commit

    def committed_and_lost(self, connection):
        commit(self, connection)
        raise sa.exc.OperationalError("", {}, OSError("lost"), connection_invalidated=True)

    with monkeypatch.context() as m:
        m.setattr(sa.engine.default.DefaultDialect, "do_commit", committed_and_lost)
        with pytest.raises(RetriableError):
            task.put([record(1), record(2)])
    task.put([record(1), record(2)])
    assert numbers(path) == [0, 1, 2]
    task.stop()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_two_tasks_that_believe_to_have_a_partition_write_each_record_once(tmp_path_factory, seed):
    """One has lost it and does not know yet; both get the same records, in batches of their own."""
    rng, path = random.Random(seed), tmp_path_factory.mktemp("db") / "x.db"
    tasks = [start(path), start(path)]
    at = [0, 0]
    while min(at) < 30:
        which = rng.randrange(2)
        end = min(30, at[which] + rng.randint(1, 6))
        if at[which] < end:
            tasks[which].put([record(n) for n in range(at[which], end)])
        at[which] = end
    assert numbers(path) == list(range(30))
    assert offsets(path) == {0: 30}
    for task in tasks:
        task.stop()


def test_a_topic_that_begins_again_fails_the_task_instead_of_being_skipped(tmp_path):
    path = tmp_path / "x.db"
    task = start(path)
    task.put([record(0), record(1)])
    task.stop()
    task = start(path)
    with pytest.raises(ConnectError, match="was the topic deleted and made again"):
        task.put([record(0)])
    task.stop()
    props = {"name": "c", "connection.url": f"sqlite:///{path}", "exactly.once": "true"}
    assert SqlSinkConnector.alter_offsets(props, {P0: None})
    task = start(path)
    task.put([record(0)])
    assert numbers(path) == [0, 0, 1]
    task.stop()


def test_offsets_that_a_user_sets_are_those_of_the_database(tmp_path):
    path = tmp_path / "x.db"
    props = {"name": "c", "connection.url": f"sqlite:///{path}", "exactly.once": "true"}
    assert SqlSinkConnector.alter_offsets(props, {P0: 7, P1: 3})
    assert SqlSinkConnector.alter_offsets(props, {P1: None})
    task = start(path, places=(P0, P1))
    assert task.context.rewound == {P0: 7}
    task.stop()


def test_a_bad_record_is_in_the_dead_letter_topic_before_its_offset_is_in_the_database(tmp_path):
    path, reporter = tmp_path / "x.db", Reporter()
    task = start(path, reporter, retry__backoff__ms="0")
    reporter.late = True
    with pytest.raises(RetriableError):
        task.put([record(0), record(1, value={"n": 2**80})])
    assert offsets(path) == {0: -1}
    reporter.late = False
    task.put([record(0), record(1, value={"n": 2**80})])
    assert (numbers(path), offsets(path)) == ([0], {0: 2})
    assert reporter.reported == [1, 1], "at least once"
    task.stop()


def test_without_a_reporter_a_bad_record_leaves_nothing_behind(tmp_path):
    path = tmp_path / "x.db"
    task = start(path)
    with pytest.raises(DataError):
        task.put([record(0), record(1, value={"n": 2**80})])
    assert offsets(path) == {0: -1}
    task.stop()


def test_records_that_a_transform_has_sent_elsewhere_keep_their_own_offsets(tmp_path):
    path = tmp_path / "x.db"
    task = start(path)
    moved = record(4).copy()
    moved.topic = "other"
    task.put([moved])
    assert rows(path, "SELECT n FROM other") == [(4,)]
    assert offsets(path) == {0: 5}
    task.stop()
