"""Exactly once into topics: every record once for readers of committed records, whatever is cut off when."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import needs
from support.broker import new_name, new_topic, wait_decided, wait_until
from support.inprocess import refuse_offset_fetch, serving
from support.kafka_broker import KafkaBroker
from support.spark import read_to_end

from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError
from klamm_kafka.wire.errors import ErrorCode
from klamm_spark.datasource.exactly_once import (
    Marker,
    NotReproducibleError,
    Turn,
    check_same,
    check_slots,
    group_prefix,
    is_written,
    read_marker,
)
from klamm_spark.datasource.options import write_options

pa = needs.module("pyarrow", extra="spark")
needs.module("pyspark", extra="spark")
transaction = needs.module("klamm_spark.datasource.transaction", extra="spark")
writers = needs.module("klamm_spark.datasource.writer", extra="spark")
outlet = needs.module("klamm_spark.datasource.outlet", extra="spark")

BASE = {"kafka.bootstrap.servers": "h:1", "topic": "o"}


@given(st.integers(0, 2**40), st.integers(0, 10**9), st.integers(0, 2**40), st.text(), st.text())
def test_a_marker_is_what_was_committed(version: int, rows: int, size: int, writer: str, run: str) -> None:
    marker = Marker(version=version, rows=rows, size=size, writer=writer, run=run)
    assert read_marker(marker.offset, marker.metadata()) == marker


def test_what_a_marker_says_of_a_turn() -> None:
    turn = Turn(prefix="klamm-spark", application="q", version=7, slot=3)
    assert turn.name == "klamm-spark-q-3" == group_prefix("klamm-spark", "q") + "3"
    assert read_marker(-1001, None) is None
    marker = [Marker(version=v, rows=5, size=50) for v in (6, 7, 8)]
    assert [is_written(m, turn) for m in (None, *marker)] == [False, False, True, True]
    check_same(marker[1], turn, 5, 50)
    check_same(marker[2], turn, 9, 90)
    with pytest.raises(
        NotReproducibleError,
        match=r"task 3 of batch 7 of q wrote 5 records of 50 bytes.*now it gives 6 of 50",
    ):
        check_same(marker[1], turn, 6, 50)
    check_slots([(0, marker[1]), (9, marker[0])], 7, 2)
    with pytest.raises(NotReproducibleError, match="batch 7 ran before with at least 4 tasks, now with 2"):
        check_slots([(0, marker[1]), (3, marker[1])], 7, 2)
    with pytest.raises(
        NotReproducibleError, match=r"offset 12 was committed by somebody else.*transactionalIdPrefix"
    ):
        read_marker(12, "theirs")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"deliveryGuarantee": "twice"}, "deliveryGuarantee=twice: use at-least-once or exactly-once"),
        ({"txnAppId": "a"}, "txnAppId is used with deliveryGuarantee=exactly-once only"),
        ({"deliveryGuarantee": "exactly-once", "topic": ""}, "needs markerTopic"),
        ({"deliveryGuarantee": "exactly-once", "txnAppId": "a"}, "txnAppId and txnVersion go together"),
        (
            {"deliveryGuarantee": "exactly-once", "txnAppId": "a", "txnVersion": "-1"},
            "txnVersion=-1: use a number",
        ),
        (
            {"deliveryGuarantee": "exactly-once", "kafka.transactional.id": "x"},
            "kafka.transactional.id cannot be set",
        ),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        write_options(BASE | options)


def test_options_of_exactly_once() -> None:
    found = write_options(BASE | {"deliveryGuarantee": "EXACTLY_ONCE", "transactionalIdPrefix": "team"})
    assert (found.exactly_once, found.prefix, found.marker_topic) == (True, "team", "o")
    assert not write_options(BASE).exactly_once


class Killed(BaseException):
    """Stands for the end of a worker in the middle of its rows."""


class Slots:
    """One application's tasks on a real broker; each attempt is a worker of its own unless it is told to be the same."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.client = {"bootstrap.servers": broker.bootstrap}
        self.topic = new_topic(broker, 2)
        self.application = new_name("app")

    def attempt(self, slot: int, version: int, rows: Iterator, *, same_worker: bool = False):  # type: ignore[no-untyped-def]
        if not same_worker:
            transaction._kept.clear()
        turn = Turn(prefix="klamm-spark", application=self.application, version=version, slot=slot)
        return transaction.Transaction(turn, self.client, self.topic).write(rows, self.topic)

    def committed(self) -> list[str]:
        bootstrap = self.client["bootstrap.servers"]
        wait_decided(bootstrap, self.topic)
        return sorted((m.value() or b"").decode() for m in read_to_end(bootstrap, self.topic))


def batch(values: list[str]):  # type: ignore[no-untyped-def]
    schema = pa.schema([("key", pa.binary()), ("value", pa.string())])
    return pa.RecordBatch.from_pydict({"key": [v.encode() for v in values], "value": values}, schema=schema)


def values_of(slot: int, version: int) -> list[str]:
    return [f"{version}-{slot}-{i}" for i in range(5)]


@pytest.fixture
def slots(broker: EmbeddedBroker) -> Slots:
    return Slots(broker)


def test_a_task_that_runs_again_writes_nothing_more(slots: Slots) -> None:
    rows = values_of(0, 4)
    assert slots.attempt(0, 4, iter([batch(rows[:2]), batch([]), batch(rows[2:])])) == transaction.Outcome(
        5, False
    )
    assert slots.attempt(0, 4, iter([batch(rows)]), same_worker=True) == transaction.Outcome(5, True)
    assert slots.attempt(0, 4, iter([batch(rows)])) == transaction.Outcome(5, True), "in another worker"
    assert slots.attempt(0, 3, iter([batch(["older"])])).skipped
    assert slots.committed() == rows
    with pytest.raises(NotReproducibleError, match="wrote 5 records"):
        slots.attempt(0, 4, iter([batch([*rows, "one more"])]))
    assert slots.attempt(0, 5, iter([])) == transaction.Outcome(0, False)
    assert slots.attempt(0, 6, iter([batch(["next"])]), same_worker=True).rows == 1
    assert slots.committed() == [*rows, "next"]


@pytest.mark.parametrize("meanwhile", [(4, ["one"]), (5, [])], ids=["ran again", "had no rows"])
def test_a_worker_whose_id_another_took_and_wrote_nothing_takes_it_back(
    slots: Slots, meanwhile: tuple[int, list[str]]
) -> None:
    slots.attempt(0, 4, iter([batch(["one"])]))
    first = dict(transaction._kept)
    version, rows = meanwhile
    slots.attempt(0, version, iter([batch(rows)]))
    transaction._kept.clear()
    transaction._kept.update(first)
    assert slots.attempt(0, 6, iter([batch(["two"])]), same_worker=True).rows == 1
    assert slots.committed() == ["one", "two"]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ],
)
async def test_a_marker_is_asked_for_again_while_the_coordinator_moves(
    tmp_path: Path, error: ErrorCode
) -> None:
    """librdkafka's own call for this, in an admin client, ends the process."""
    async with serving(tmp_path) as server:
        port = server.broker.listeners["PLAINTEXT"].port
        asked = refuse_offset_fetch(server, error, times=2)
        reader = transaction.Reader({"bootstrap.servers": f"127.0.0.1:{port}"}, "slot")
        try:
            assert await asyncio.to_thread(reader.read, "t") is None
        finally:
            await asyncio.to_thread(reader.close)
        assert asked == [("slot", True)] * 3


async def test_a_group_that_may_not_be_read_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "ANSWER_S", 1.0)
    refused = (ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    monkeypatch.setattr("klamm_broker.api.api_10_find_coordinator._problem", lambda *_: refused)
    async with serving(tmp_path) as server:
        port = server.broker.listeners["PLAINTEXT"].port
        reader = transaction.Reader({"bootstrap.servers": f"127.0.0.1:{port}"}, "slot")
        try:
            with pytest.raises(
                outlet.NotWrittenError,
                match=r"committed offsets of group slot cannot be read: .*GROUP_AUTHORIZATION_FAILED",
            ):
                await asyncio.to_thread(reader.read, "t")
        finally:
            await asyncio.to_thread(reader.close)


def test_an_option_that_no_consumer_takes_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.\*.*max\.poll\.interval\.ms"):
        transaction.Reader({"bootstrap.servers": "h:1", "max.poll.interval.ms": "1000"}, "slot")


@pytest.mark.parametrize("kept", [False, True], ids=["another worker", "the worker of the batch before"])
def test_a_worker_that_was_killed_between_marker_and_commit_holds_nobody_up(
    slots: Slots, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Its offset is pending for the five minutes that its transaction may take; taking its id over ends that."""
    slots.attempt(0, 3, iter([batch(["before"])]))
    before = dict(transaction._kept)

    def killed_after_the_marker(step: Callable[[], object], real: Any = transaction._until_done) -> None:
        real(step)
        raise Killed

    with monkeypatch.context() as cut:
        cut.setattr(transaction, "_until_done", killed_after_the_marker)
        cut.setattr(transaction, "_abort", lambda _: None)
        with pytest.raises(Killed):
            slots.attempt(0, 4, iter([batch(["x"])]))
    transaction._kept.clear()
    transaction._kept.update(before if kept else {})
    monkeypatch.setattr(transaction, "KEPT_S", 0.5)
    assert slots.attempt(0, 4, iter([batch(["x"])]), same_worker=kept).rows == 1
    assert slots.committed() == ["before", "x"]


def test_a_batch_write_that_had_more_tasks_before_is_refused(slots: Slots) -> None:
    """Both runs wrote all rows, cut into other tasks: those of the tasks that are no more are there twice."""
    for slot in range(3):
        slots.attempt(slot, 7, iter([batch([f"{slot}"])]))
    options = write_options(
        {f"kafka.{k}": v for k, v in slots.client.items()}
        | {
            "topic": slots.topic,
            "deliveryGuarantee": "exactly-once",
            "txnAppId": slots.application,
            "txnVersion": "7",
        }
    )
    writer = writers.KlammBatchWriter(options)
    writer.commit([writers.Written(1)] * 3)
    with pytest.raises(NotReproducibleError, match="batch 7 ran before with at least 3 tasks, now with 2"):
        writer.commit([writers.Written(1)] * 2)
    writers.KlammBatchWriter(dataclasses.replace(options, version=8)).commit([writers.Written(1)] * 2)


def test_what_was_cut_off_is_not_there(slots: Slots) -> None:
    def rows() -> Iterator:  # type: ignore[type-arg]
        yield batch(["a", "b"])
        raise Killed

    with pytest.raises(Killed):
        slots.attempt(0, 0, rows())
    assert slots.attempt(0, 0, iter([batch(["a", "b", "c"])])).rows == 3
    assert slots.committed() == ["a", "b", "c"]


def test_a_zombie_is_locked_out(slots: Slots) -> None:
    """The zombie has begun its transaction when another attempt takes over; then it goes on and may not commit."""
    zombie_and_successor(slots)


@pytest.mark.usefixtures("apache_kafka")
def test_the_same_on_apache_kafka(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path) as kafka:
        broker: Any = SimpleNamespace(bootstrap=kafka.address)
        zombie_and_successor(Slots(broker))
        slots = Slots(broker)
        rows = values_of(0, 0)
        for worker in (False, True, False):
            assert slots.attempt(0, 0, iter([batch(rows)]), same_worker=worker).rows == 5
        assert slots.attempt(0, 1, iter([batch(["next"])]), same_worker=True).rows == 1
        assert slots.committed() == [*rows, "next"]
        markers = dict(transaction.Markers(slots.client, slots.topic).of("klamm-spark", slots.application))
        assert [(s, m.version, m.rows) for s, m in markers.items()] == [(0, 1, 1)]


def zombie_and_successor(slots: Slots) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def rows() -> Iterator:  # type: ignore[type-arg]
        yield batch(["a"])
        begun.set()
        go_on.wait(60)
        yield batch(["b"])

    with ThreadPoolExecutor(1) as pool:
        zombie = pool.submit(slots.attempt, 0, 0, rows())
        wait_until(lambda: begun.is_set() or zombie.done(), "the zombie's first rows")
        assert begun.is_set(), zombie.exception()
        assert slots.attempt(0, 0, iter([batch(["a", "b"])])) == transaction.Outcome(2, False)
        go_on.set()
        error = zombie.exception(60)
    assert type(error).__name__ == "NotWrittenError"
    assert "another attempt of this task has taken over" in str(error)
    assert slots.committed() == ["a", "b"]


@pytest.mark.parametrize("seed", range(3))
def test_attempts_that_are_cut_off_anywhere_leave_every_record_once(slots: Slots, seed: int) -> None:
    """Batches of three tasks; each attempt may end before, amid or after its rows, or after its commit unknown to Spark."""
    chance = random.Random(seed)

    def rows(slot: int, version: int, cut: int | None) -> Iterator:  # type: ignore[type-arg]
        for i, v in enumerate(values_of(slot, version)):
            if i == cut:
                raise Killed
            yield batch([v])
        if cut == 5:
            raise Killed

    for version in range(4):
        done: set[int] = set()
        while len(done) < 3:  # the driver starts the whole batch again
            done.clear()
            for slot in range(3):
                cut = chance.choice([None, None, None, None, 0, 2, 5])
                try:
                    slots.attempt(slot, version, rows(slot, version, cut), same_worker=chance.random() < 0.3)
                except Killed:
                    break
                done.add(slot)
            if chance.random() < 0.2:
                done.clear()
    expected = sorted(v for version in range(4) for slot in range(3) for v in values_of(slot, version))
    assert Counter(slots.committed()) == Counter(expected)
