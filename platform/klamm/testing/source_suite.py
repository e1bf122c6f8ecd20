"""`SourceSuite`: the tests that a source connector must pass, with a task alone and on a real broker and worker."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.connect.child.offset_tracker import OffsetTracker, Run
from klamm.testing.broker import EmbeddedBroker
from klamm.testing.cases import SourceCase
from klamm.testing.connector_suite import (
    Running,
    assert_at_least_once,
    frozen,
    refuses,
)
from klamm.testing.fixtures import WorkerOf
from klamm.testing.topics import TopicReader
from klamm_plugins.connector import SourceConnector
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.records import SourceRecord
from klamm_plugins.testing import RunningSource, SourceConformance

RECORDS = 20
LATE = 7  # the record whose acknowledgement does not come
BACKLOG = 500
FROZEN_S = 0.5


class SourceSuite(SourceConformance):
    """Join it with one fixture:

    class TestTickets(SourceSuite):
        @pytest.fixture
        def source(self, tmp_path, klamm_topic):
            return SourceCase(connector=TicketSourceConnector, topic=klamm_topic, props=…, produce=…)
    """

    connector: type[SourceConnector]

    @pytest.fixture
    def source(self) -> SourceCase:
        raise NotImplementedError("a conformance suite needs a fixture `source` that returns a SourceCase")

    @pytest.fixture(autouse=True)
    def _joined(self, source: SourceCase) -> None:
        self._case = source
        self.connector, self.exact = source.connector, source.exact
        self._expected: list[Any] = []

    def props(self, tmp_path: Path) -> dict[str, str]:
        return {"name": "alone", **self._case.props}  # as a worker gives it

    def produce(self, tmp_path: Path, count: int) -> None:
        self._expected += self._case.produce(count)

    @pytest.fixture
    def running(self, source: SourceCase, klamm_worker_of: WorkerOf) -> Iterator[Running]:
        found = Running(klamm_worker_of(source.connector), source, {})
        yield found
        found.remove()

    @pytest.fixture
    def reader(self, source: SourceCase, klamm_bootstrap: str) -> Iterator[TopicReader]:
        with TopicReader(klamm_bootstrap, source.topic) as found:
            yield found

    def test_acknowledgements_out_of_order_lose_nothing(self, tmp_path: Path) -> None:
        """In whatever order the acknowledgements come, a new task goes on with everything that is not committed."""
        self.produce(tmp_path, RECORDS)
        with RunningSource(self, tmp_path) as task:
            first = task.read(RECORDS)
            order = [n for n in range(RECORDS) if n != LATE]
            random.Random(7).shuffle(order)
            tracker = OffsetTracker()
            runs = [tracker.submit(dict(r.source_partition), dict(r.source_offset), 1) for r in first]
            committed = _acknowledge(task, tracker, runs, first, order)
        self.resumes(tmp_path, first, len(committed))

    def test_records_arrive_in_order(self, tmp_path: Path, running: Running, reader: TopicReader) -> None:
        self.produce(tmp_path, RECORDS)
        running.start()
        assert self._arrived(reader, RECORDS) == self._expected_of(reader)

    def test_goes_on_exactly_after_a_stop(
        self, tmp_path: Path, running: Running, reader: TopicReader
    ) -> None:
        """A stop in order repeats nothing and leaves nothing out."""
        self.produce(tmp_path, RECORDS)
        running.start()
        self._arrived(reader, RECORDS)
        running.halt()
        self.produce(tmp_path, RECORDS)
        running.resume()
        self._arrived(reader, 2 * RECORDS)
        running.halt()
        time.sleep(0.1)
        reader.read()
        assert self._values(reader) == self._expected_of(reader)

    def test_a_killed_worker_loses_nothing(
        self, tmp_path: Path, running: Running, reader: TopicReader
    ) -> None:
        """Kill -9 in the middle: records may come again, from the last commit on, in order, and none is left out."""
        self.produce(tmp_path, BACKLOG)
        running.start()
        self._arrived(reader, 1)
        running.worker.kill()
        self.produce(tmp_path, RECORDS)
        running.worker.start()
        running.worker.wait_running(running.name)
        wanted = self._expected[-1]
        running.worker.wait(
            lambda: bool(reader.read()) and wanted in self._values(reader),
            f"record {wanted!r} in {reader.topic}",
            running.name,
        )
        found = self._values(reader)
        assert_at_least_once(
            found, self._expected[: len(set(found))] if self._case.endless else self._expected
        )

    def test_a_broker_that_stands_still_is_waited_for(
        self, tmp_path: Path, running: Running, reader: TopicReader, klamm_own_broker: EmbeddedBroker | None
    ) -> None:
        """Backpressure: little room in the producer, then a broker that answers nobody. All arrives afterwards, in order."""
        running.start(producer__override__buffer__memory="65536")
        with frozen(klamm_own_broker):
            self.produce(tmp_path, BACKLOG)
            time.sleep(FROZEN_S)
        self._arrived(reader, BACKLOG)
        assert self._values(reader) == self._expected_of(reader)
        assert set(running.worker.states(running.name)) == {"RUNNING"}

    def test_a_pause_is_kept(self, tmp_path: Path, running: Running, reader: TopicReader) -> None:
        self.produce(tmp_path, RECORDS)
        running.start()
        self._arrived(reader, RECORDS)
        running.worker.pause(running.name)
        while reader.read():
            pass  # what was under way
        self.produce(tmp_path, RECORDS)
        assert not reader.read(0.3), "a paused task goes on"
        running.resume()
        self._arrived(reader, 2 * RECORDS)
        assert self._values(reader) == self._expected_of(reader)

    def test_a_change_of_schema_is_followed(
        self, tmp_path: Path, running: Running, reader: TopicReader
    ) -> None:
        if self._case.change_schema is None:
            pytest.skip(f"{self.connector.__name__} has one schema (SourceCase.change_schema is None)")
        self.produce(tmp_path, RECORDS)
        running.start()
        self._arrived(reader, RECORDS)
        self._case.change_schema()
        self.produce(tmp_path, RECORDS)
        assert self._arrived(reader, 2 * RECORDS) == self._expected
        schemas = [self._decoded(m.value())[0] for m in reader.seen]
        assert schemas[0] != schemas[-1], "change_schema has changed nothing"

    def test_bad_configurations_are_refused(self, source: SourceCase, klamm_worker_of: WorkerOf) -> None:
        refuses(klamm_worker_of(source.connector), source, {})

    def _arrived(self, reader: TopicReader, count: int) -> list[Any]:
        reader.wait_for(count)
        return self._values(reader)

    def _values(self, reader: TopicReader) -> list[Any]:
        return [self._case.shown(self._decoded(m.value())[1]) for m in reader.seen]

    def _expected_of(self, reader: TopicReader) -> list[Any]:
        """Returns the records that should be in the topic by now. A source without an end has as many as the topic."""
        if not self._case.endless:
            return self._expected
        missing = len(reader.seen) - len(self._expected)
        if missing > 0:
            self._expected += self._case.produce(missing)
        return self._expected[: len(reader.seen)]

    def _decoded(self, value: bytes | None) -> Any:
        converter = JsonConverter()
        converter.configure({"schemas.enable": "true"}, is_key=False)
        return converter.to_connect_data(self._case.topic, value)


def _acknowledge(
    task: RunningSource,
    tracker: OffsetTracker,
    runs: list[Run],
    records: list[SourceRecord],
    order: list[int],
) -> list[SourceRecord]:
    """Acknowledges all records but LATE, in this order. Returns the records whose offsets may be committed then."""
    for number in order:
        runs[number].pending -= 1
        task.task.commit_record(records[number], None)
    task.task.commit()
    offsets = [c.offset for c in tracker.committable()]
    assert offsets == [dict(records[LATE - 1].source_offset)]
    return records[:LATE]
