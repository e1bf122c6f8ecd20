"""`SinkSuite`: the tests that a sink connector must pass, with a task alone and on a real broker and worker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from klamm.testing.cases import SinkCase
from klamm.testing.connector_suite import Running, assert_at_least_once, refuses
from klamm.testing.fixtures import WorkerOf
from klamm.testing.topics import Sent, make_topic, send
from klamm_plugins.batch import batches_of
from klamm_plugins.connector import SinkConnector
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.records import SinkRecord, TopicPartition
from klamm_plugins.schema import STRING, Schema
from klamm_plugins.testing import SinkConformance

RECORDS = 20
BACKLOG = 500
OUTAGE_S = 0.5

Make = Callable[[int], tuple[Schema | None, Any]]


class SinkSuite(SinkConformance):
    """Join it with one fixture:

    class TestTable(SinkSuite):
        @pytest.fixture
        def sink(self, tmp_path):
            return SinkCase(connector=SqliteSinkConnector, props=…, written=…)
    """

    connector: type[SinkConnector]

    @pytest.fixture
    def sink(self) -> SinkCase:
        raise NotImplementedError("a conformance suite needs a fixture `sink` that returns a SinkCase")

    @pytest.fixture(autouse=True)
    def _joined(self, sink: SinkCase) -> None:
        self._case = sink
        self.connector = sink.connector
        self.topic = f"unit-{uuid.uuid4().hex[:12]}"  # a target that is there for longer knows nothing of it

    def props(self, tmp_path: Path) -> dict[str, str]:
        return {"name": "alone", **self._case.props}  # as a worker gives it

    def written(self, tmp_path: Path) -> list[Any]:
        return list(self._case.written())

    def make(self, number: int) -> tuple[Schema | None, Any]:
        return self._case.make(number)

    def shown(self, number: int) -> Any:
        return self._case.shown(number)

    @pytest.fixture
    def running(
        self, sink: SinkCase, klamm_worker_of: WorkerOf, klamm_topic: str, klamm_bootstrap: str
    ) -> Iterator[Running]:
        self._bootstrap, self._topic = klamm_bootstrap, klamm_topic
        found = Running(klamm_worker_of(sink.connector), sink, {"topics": klamm_topic})
        yield found
        found.remove()

    def test_partitions_are_committed_apart(self, tmp_path: Path) -> None:
        """Out-of-order acknowledgement: what a sink agrees to is written, for each partition by itself."""
        task = self._start(tmp_path)
        one, other = TopicPartition(self.topic, 0), TopicPartition(self.topic, 1)
        task.open([other])
        try:
            given = [self._record(0, 1, 0), self._record(1, 11, 0), self._record(0, 2, 1)]
            task.put_batches(batches_of(given))
            self._agrees(task.pre_commit({one: 2, other: 1}), {one: [1, 2], other: [11]})
            task.put_batches(batches_of([self._record(1, 12, 1)]))
            self._agrees(task.pre_commit({other: 2}), {other: [11, 12]})
            task.close([other])
            task.put_batches(batches_of([self._record(0, 3, 2)]))
            self._agrees(task.pre_commit({one: 3}), {one: [1, 2, 3]})
        finally:
            task.close([one])
            task.stop()

    def test_what_is_delivered_again_is_taken_again(self, tmp_path: Path) -> None:
        """After a crash the records since the last commit come again, to another task and in other batches."""
        for batches in ([(1, 2), (3,)], [(2, 3), (4,)]):
            task = self._start(tmp_path)
            for batch in batches:
                task.put([self._record(0, number, number) for number in batch])
            self._commit(task, batches[-1][-1] + 1)
            task.close([TopicPartition(self.topic, 0)])
            task.stop()
        found, expected = self.written(tmp_path), [self.shown(n) for n in (1, 2, 3, 4)]
        self._is_there(found, expected)
        if self._case.once:
            assert len(found) == len(expected), f"written more than once: {found}"

    def test_records_arrive_in_order(self, running: Running) -> None:
        self._send(0, RECORDS)
        running.start()
        self._arrived(running, RECORDS)

    def test_goes_on_exactly_after_a_stop(self, running: Running) -> None:
        """A stop in order repeats nothing and leaves nothing out."""
        self._send(0, RECORDS)
        running.start()
        self._arrived(running, RECORDS)
        running.halt()
        self._send(RECORDS, RECORDS)
        running.resume()
        self._arrived(running, 2 * RECORDS)
        running.halt()
        assert self._sorted(self._case.written()) == self._sorted(self._expected(2 * RECORDS))

    def test_a_killed_worker_loses_nothing(self, running: Running) -> None:
        """Kill -9 in the middle: records may come again, and none is left out."""
        self._send(0, BACKLOG)
        running.start()
        running.worker.wait(lambda: len(self._case.written()) > 0, "a first record", running.name)
        running.worker.kill()
        self._send(BACKLOG, RECORDS)
        running.worker.start()
        running.worker.wait_running(running.name)
        expected = self._expected(BACKLOG + RECORDS)
        # The last record is not enough: a target may show requests that were under way together in any order
        running.worker.wait(
            lambda: not self._missing(self._case.written(), expected),
            f"all records up to {expected[-1]!r}",
            running.name,
        )
        found = list(self._case.written())
        if self._case.once:
            assert self._sorted(found) == self._sorted(expected)
        else:
            self._is_there(found, expected)

    def test_small_batches_of_a_backlog_are_all_committed(self, running: Running) -> None:
        """Backpressure: a backlog in small bites, each taken before the next. At the end all of it is committed."""
        self._send(0, BACKLOG)
        running.start(consumer__override__max__partition__fetch__bytes="2048")
        self._arrived(running, BACKLOG)
        running.halt()
        running.worker.wait(lambda: running.committed() == [BACKLOG], f"commit at {BACKLOG}", running.name)

    def test_a_target_that_is_away_is_waited_for(self, running: Running) -> None:
        if self._case.outage is None:
            pytest.skip(f"the target of {self.connector.__name__} is never away (SinkCase.outage is None)")
        self._send(0, RECORDS)
        running.start()
        self._arrived(running, RECORDS)
        with self._case.outage():
            self._send(RECORDS, BACKLOG)
            time.sleep(OUTAGE_S)
        running.worker.wait(
            lambda: len(set(map(repr, self._case.written()))) == RECORDS + BACKLOG,
            "all records",
            running.name,
        )
        self._is_there(list(self._case.written()), self._expected(RECORDS + BACKLOG))

    def test_a_change_of_schema_is_followed(self, running: Running) -> None:
        changed = self._case.make_changed
        if changed is None:
            pytest.skip(f"{self.connector.__name__} knows no schemas (SinkCase.make_changed is None)")
        self._send(0, RECORDS)
        running.start()
        self._arrived(running, RECORDS)
        self._send(RECORDS, RECORDS, changed)
        self._arrived(running, 2 * RECORDS)

    def test_bad_configurations_are_refused(self, sink: SinkCase, klamm_worker_of: WorkerOf) -> None:
        refuses(klamm_worker_of(sink.connector), sink, {"topics": "bad"})

    def test_two_topics_are_one_tasks_work(
        self, sink: SinkCase, klamm_worker_of: WorkerOf, klamm_bootstrap: str
    ) -> None:
        """One task gets partitions of several topics, as they are made."""
        worker = klamm_worker_of(sink.connector)
        self._bootstrap = klamm_bootstrap
        topics = [make_topic(klamm_bootstrap) for _ in range(2)]
        running = Running(worker, sink, {"topics": ",".join(topics)})
        for number, self._topic in enumerate(topics):
            self._send(number * RECORDS, RECORDS)
        try:
            running.start()
            worker.wait(lambda: len(self._case.written()) >= 2 * RECORDS, "all records", running.name)
            self._is_all_there(self._case.written(), self._expected(2 * RECORDS))
        finally:
            running.remove()

    def _record(self, partition: int, number: int, offset: int) -> SinkRecord:
        schema, value = self.make(number)
        return SinkRecord(self.topic, partition, STRING, str(number), schema, value, offset)

    def _agrees(self, agreed: Any, put: dict[TopicPartition, list[int]]) -> None:
        found = self._case.written()
        for partition, offset in agreed.items():
            numbers = put.get(partition)
            assert numbers is not None, f"{partition} was not asked for"
            assert offset <= len(numbers), f"{partition} is committed past what was put"
            missing = [n for n in numbers[:offset] if self.shown(n) not in found]
            assert not missing, f"{partition} may be committed at {offset}, but {missing} are not written"

    def _send(self, first: int, count: int, make: Make | None = None) -> None:
        converter = JsonConverter()
        converter.configure({"schemas.enable": "true"}, is_key=False)
        records = []
        for number in range(first, first + count):
            schema, value = (make or self._case.make)(number)
            records.append(Sent(0, str(number).encode(), converter.from_connect_data("", schema, value)))
        send(self._bootstrap, self._topic, records)

    def _expected(self, count: int) -> list[Any]:
        return [self._case.shown(number) for number in range(count)]

    def _arrived(self, running: Running, count: int) -> None:
        running.worker.wait(
            lambda: len(self._case.written()) >= count, f"{count} records written", running.name
        )
        found = list(self._case.written())
        assert self._sorted(found) == self._sorted(self._expected(count))

    def _is_there(self, found: list[Any], expected: list[Any]) -> None:
        if self._case.ordered and not self._case.once:
            assert_at_least_once(found, expected)
        else:
            self._is_all_there(found, expected)

    def _is_all_there(self, found: Sequence[Any], expected: Sequence[Any]) -> None:
        missing = self._missing(found, expected)
        assert not missing, f"{len(missing)} records are lost, the first is {missing[0]!r}"

    def _missing(self, found: Sequence[Any], expected: Sequence[Any]) -> list[Any]:
        return [each for each in expected if each not in found]

    def _sorted(self, found: Sequence[Any]) -> list[Any]:
        """Returns the records unchanged where the target keeps the order, else sorted."""
        return list(found) if self._case.ordered else sorted(found, key=repr)
