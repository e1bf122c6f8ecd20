"""For the tests of plugin authors: contexts without a runtime, and conformance suites.

A suite is a class with test methods; a subclass says how to set its connector up, and pytest runs it:

    class TestMySource(SourceConformance):
        connector = MySourceConnector

        def props(self, tmp_path): return {"topic": "t", "path": str(tmp_path / "in")}
        def produce(self, tmp_path, count): ...

Nothing here needs pytest itself, a broker or a worker.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict

from klamm_plugins.connector import (
    Connector,
    DriverTransactions,
    ErrantRecordReporter,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceOffset,
    SourcePartition,
    SourceTask,
    TransactionContext,
)
from klamm_plugins.errors import ConnectError
from klamm_plugins.metrics import MetricTable, check_tables
from klamm_plugins.mirror import AclBinding, NewTopic, Refused
from klamm_plugins.record_pipeline import RecordPipeline
from klamm_plugins.records import SinkRecord, SourceRecord, TopicPartition
from klamm_plugins.schema import STRING, Schema

_DEADLINE_S = 60.0
_COMMIT_S = 30.0  # a server that makes its first table or index takes its time
_POLL_LIMIT_S = 2.0


class MemorySourceContext:
    """A source task's context. Its offsets are those that the test sets with `commit`.

    `stopping` may be an event of `klamm.testing.FakeClock`, so that waiting takes no time.
    """

    def __init__(self, configs: Mapping[str, str], *, stopping: threading.Event | None = None) -> None:
        self.configs = configs
        self.stopping = stopping or threading.Event()
        self.transaction_context: TransactionContext | None = None
        self._offsets: dict[str, dict[str, Any]] = {}

    def commit(self, record: SourceRecord) -> None:
        """Remembers the record's offset as committed, through JSON, as the offsets topic keeps it."""
        self._offsets[_key(record.source_partition)] = json.loads(json.dumps(record.source_offset))

    def offset(self, partition: SourcePartition) -> dict[str, Any] | None:
        return self._offsets.get(_key(partition))

    def offsets(self, partitions: Collection[SourcePartition]) -> list[dict[str, Any] | None]:
        return [self.offset(p) for p in partitions]


def _key(partition: SourcePartition) -> str:
    return json.dumps(dict(partition), sort_keys=True)


class MemorySinkContext:
    """A sink task's context. It keeps the task's requests, for the test to look at."""

    def __init__(self, configs: Mapping[str, str], *, stopping: threading.Event | None = None) -> None:
        self.configs = configs
        self.stopping = stopping or threading.Event()
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.leaving: frozenset[TopicPartition] = frozenset()
        self.errant_record_reporter: ErrantRecordReporter | None = None
        self.paused: set[TopicPartition] = set()
        self.rewound: dict[TopicPartition, int] = {}
        self.timeout_ms: int | None = None
        self.commit_requested = False

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.rewound.update(offsets)

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused.difference_update(partitions)

    def timeout(self, ms: int) -> None:
        self.timeout_ms = ms

    def request_commit(self) -> None:
        self.commit_requested = True


class DriverProgress(TypedDict):
    """The arguments of one call of `progress` by a driver task."""

    records: int
    lag: int | None
    waiting_for: str | None
    details: dict[str, Any]


class MemoryDriverContext:
    """A driver task's context, source's or sink's. The test calls `pause`, `resume` and `stop` from its own thread,
    as the runtime would, and looks at `said`, `topics`, `commits` and `is_paused`.

    Offsets, those that the test sets with `commit` as well, go through JSON and are found by equal partitions, as
    in the offset topic. `properties` is what `client_properties` answers for each kind. `pipeline` is what `record_pipeline`
    answers: the kit has no transforms.
    """

    def __init__(
        self,
        configs: Mapping[str, str],
        *,
        properties: Mapping[str, str] | None = None,
        pipeline: RecordPipeline | None = None,
    ) -> None:
        self.configs = configs
        self.pipeline = pipeline
        self.properties = dict(properties or {})
        self.stopping = threading.Event()
        self.said: list[DriverProgress] = []
        self.tables: list[MetricTable] = []
        self.topics: set[str] = set()
        self.commits: list[list[tuple[dict[str, Any], dict[str, Any] | None]]] = []
        self.is_paused = threading.Event()
        self.transactions: DriverTransactions | None = None
        self._paused = False
        self.update: Mapping[str, str] | None = None
        self._order = threading.Event()
        self._offsets: dict[str, dict[str, Any]] = {}

    @property
    def paused(self) -> bool:
        return self._paused

    def pause(self) -> None:
        """Asks the task to pause; `is_paused` tells whether it has."""
        self._paused = True
        self._order.set()

    def resume(self) -> None:
        self._paused = False
        self._order.set()

    def take_update(self) -> Mapping[str, str] | None:
        found, self.update = self.update, None
        return found

    def stop(self) -> None:
        self.stopping.set()
        self._order.set()

    def record_pipeline(self) -> RecordPipeline | None:
        return self.pipeline

    def stay_paused(self) -> None:
        self.is_paused.set()
        while self._paused and not self.stopping.is_set():
            self.wait(_DEADLINE_S)
        self.is_paused.clear()

    def wait(self, timeout_s: float) -> None:
        self._order.wait(timeout_s)
        self._order.clear()

    def progress(
        self,
        records: int,
        *,
        lag: int | None = None,
        waiting_for: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        shown = json.loads(json.dumps(dict(details or {})))
        self.said.append(DriverProgress(records=records, lag=lag, waiting_for=waiting_for, details=shown))

    def metrics(self, tables: Sequence[MetricTable]) -> None:
        check_tables(tables)
        self.tables = list(tables)

    def use_topics(self, topics: Collection[str]) -> None:
        self.topics |= set(topics)

    def offset(self, partition: SourcePartition) -> dict[str, Any] | None:
        return self._offsets.get(_key(partition))

    def offsets(self, partitions: Collection[SourcePartition]) -> list[dict[str, Any] | None]:
        return [self.offset(p) for p in partitions]

    def commit(self, offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]) -> None:
        stored = [
            (json.loads(_key(p)), None if o is None else json.loads(json.dumps(dict(o)))) for p, o in offsets
        ]
        for partition, offset in stored:
            if offset is None:
                self._offsets.pop(_key(partition), None)
            else:
                self._offsets[_key(partition)] = offset
        self.commits.append(stored)

    def client_properties(self, kind: Literal["producer", "consumer", "admin"]) -> dict[str, str]:
        return dict(self.properties)


class MemoryConnectorContext:
    """A connector's context that counts its requests."""

    def __init__(self) -> None:
        self.reconfigurations = 0
        self.errors: list[Exception] = []
        self.present_task_configs: Sequence[Mapping[str, str]] = ()

    def request_task_reconfiguration(self) -> None:
        self.reconfigurations += 1

    def raise_error(self, error: Exception) -> None:
        self.errors.append(error)


class MemoryTopicAdmin:
    """A ForwardingAdmin's delegate that keeps what it is asked for, and refuses nothing."""

    def __init__(self) -> None:
        self.topics: list[NewTopic] = []
        self.partitions: dict[str, int] = {}
        self.configs: dict[str, dict[str, str | None]] = {}
        self.acls: list[AclBinding] = []

    def create_topics(self, topics: Sequence[NewTopic]) -> Refused:
        self.topics += topics
        return {}

    def create_partitions(self, counts: Mapping[str, int]) -> Refused:
        self.partitions |= counts
        return {}

    def incremental_alter_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> Refused:
        for topic, settings in changes.items():
            self.configs.setdefault(topic, {}).update(settings)
        return {}

    def create_acls(self, bindings: Sequence[AclBinding]) -> Refused:
        self.acls += bindings
        return {}


def sink_records(
    *values: Any, topic: str = "t", offset: int = 0, schema: Schema | None = STRING
) -> list[SinkRecord]:
    """Returns records of partition 0 with these values, at consecutive offsets."""
    return [SinkRecord(topic, 0, None, None, schema, value, offset + i) for i, value in enumerate(values)]


class ConnectorConformance:
    """The suite of rules for every connector."""

    connector: type[Connector]

    def props(self, tmp_path: Path) -> dict[str, str]:
        """Returns a configuration that works."""
        raise NotImplementedError

    def test_says_its_version(self) -> None:
        version = self.connector.version()
        assert version, "version() must not be empty"
        assert version != "undefined", "version() must be overridden"

    def test_documents_every_key(self) -> None:
        missing = [key.name for key in self.connector.config() if not key.documentation.strip()]
        assert not missing, f"keys without documentation: {missing}"

    def test_accepts_a_good_configuration(self, tmp_path: Path) -> None:
        errors = [e for value in self.connector.validate(self.props(tmp_path)) for e in value.errors]
        assert not errors

    def test_reports_missing_keys_without_raising(self) -> None:
        values = {v.name: v for v in self.connector.validate({})}
        assert list(values) == self.connector.config().names, "validate answers for every key, in order"
        for key in self.connector.config():
            assert values[key.name].errors or not key.required, f"{key.name} is required and missing"

    def test_cuts_its_work_into_task_configs(self, tmp_path: Path) -> None:
        for max_tasks in (1, 2, 7):
            configs = self.task_configs(self.props(tmp_path), max_tasks)
            assert len(configs) <= max_tasks
            for config in configs:
                assert all(isinstance(x, str) for pair in config.items() for x in pair), config

    def task_configs(self, props: dict[str, str], max_tasks: int) -> list[dict[str, str]]:
        """Returns the connector's answer when it is started with `props`."""
        connector = self.connector()
        connector.initialize(MemoryConnectorContext())
        try:
            connector.start(props)
            return connector.task_configs(max_tasks)
        finally:
            connector.stop()


class SourceConformance(ConnectorConformance):
    """The suite of rules for every source connector. `produce` gives the task something to read."""

    connector: type[SourceConnector]
    records: ClassVar[int] = 20
    exact: bool = True
    """True: it goes on right after any committed record. False: it may begin anew, and leaves nothing out."""

    def produce(self, tmp_path: Path, count: int) -> None:
        """Makes the source hold `count` more records (for a generator there is nothing to do)."""
        raise NotImplementedError

    def test_gives_records_that_the_runtime_can_take(self, tmp_path: Path) -> None:
        self.produce(tmp_path, self.records)
        with RunningSource(self, tmp_path) as task:
            for record in task.read(self.records):
                assert record.topic
                assert json.loads(json.dumps(record.source_partition)) == record.source_partition
                assert json.loads(json.dumps(record.source_offset)) == record.source_offset

    def test_goes_on_after_any_committed_record(self, tmp_path: Path) -> None:
        self.produce(tmp_path, self.records)
        with RunningSource(self, tmp_path) as task:
            first = task.read(self.records)
        for stop_after in (1, self.records // 2, self.records - 1):
            self.resumes(tmp_path, first, stop_after)

    def resumes(self, tmp_path: Path, first: Sequence[SourceRecord], stop_after: int) -> None:
        """Checks the records of a task that finds the first `stop_after` records committed."""
        rest = first[stop_after:]
        with RunningSource(self, tmp_path, committed=first[:stop_after]) as task:
            again = task.read(len(rest))
            while not self.exact and again[-1].value != rest[-1].value:
                again += task.read(1)
        if self.exact:
            assert [r.value for r in again] == [r.value for r in rest]
            assert [r.source_offset for r in again] == [r.source_offset for r in rest]
        else:
            assert [r.value for r in again[-len(rest) :]] == [r.value for r in rest]

    def test_poll_returns_soon(self, tmp_path: Path) -> None:
        with RunningSource(self, tmp_path) as task:
            began = time.monotonic()
            task.task.poll()
            assert time.monotonic() - began < _POLL_LIMIT_S
            task.context.stopping.set()
            began = time.monotonic()
            task.task.poll()
            assert time.monotonic() - began < _POLL_LIMIT_S / 2, "poll waits although the task is to stop"

    def test_stops_without_having_started(self, tmp_path: Path) -> None:
        _source_task(self.connector).stop()

    def test_refuses_offsets_it_cannot_use(self, tmp_path: Path) -> None:
        props = self.props(tmp_path)
        try:
            judged = self.connector.alter_offsets(props, [({"no such key": 1}, {"no such key": 1})])
        except ConnectError:
            return
        assert not judged, "alter_offsets looked at a partition that cannot be its own and took it"


class RunningSource:
    """A started source task of a suite. The records of `committed` were committed before; the end of the block stops the
    task.
    """

    def __init__(
        self, suite: SourceConformance, tmp_path: Path, committed: Collection[SourceRecord] = ()
    ) -> None:
        props = suite.props(tmp_path)
        config = suite.task_configs(props, 1)[0]
        self.context = MemorySourceContext(config)
        for record in committed:
            self.context.commit(record)
        self._polled: list[SourceRecord] = []
        self.task = _source_task(suite.connector)
        self.task.initialize(self.context)
        self.task.start(config)

    def read(self, count: int) -> list[SourceRecord]:
        """Returns the next `count` records."""

        def enough() -> bool:
            if len(self._polled) < count:
                self._polled += self.task.poll() or []
            return len(self._polled) >= count

        wait_for(enough, f"{count} records")
        found, self._polled = self._polled[:count], self._polled[count:]
        return found

    def __enter__(self) -> RunningSource:
        return self

    def __exit__(self, *exc: object) -> None:
        self.task.stop()


class SinkConformance(ConnectorConformance):
    """The suite of rules for every sink connector. `written` returns the values that have arrived."""

    connector: type[SinkConnector]
    topic: str = "t"

    def written(self, tmp_path: Path) -> list[Any]:
        """Returns the values that the target holds, in order."""
        raise NotImplementedError

    def make(self, number: int) -> tuple[Schema | None, Any]:
        """Returns schema and value of the record of this number."""
        return STRING, "abc"[number]

    def shown(self, number: int) -> Any:
        """Returns the form of that record in `written`."""
        return self.make(number)[1]

    def test_writes_everything_before_it_agrees_to_a_commit(self, tmp_path: Path) -> None:
        task = self._start(tmp_path)
        try:
            task.put(self._records(0, 1))
            task.put([])
            task.put(self._records(2))
            agreed = task.pre_commit({TopicPartition(self.topic, 0): 3}).get(TopicPartition(self.topic, 0), 0)
            assert agreed <= 3, "a sink cannot agree to offsets that it was not asked for"
            expected = [self.shown(n) for n in range(agreed)]
            assert list(self.written(tmp_path))[:agreed] == expected
        finally:
            task.close([TopicPartition(self.topic, 0)])
            task.stop()

    def test_goes_on_after_a_restart(self, tmp_path: Path) -> None:
        for number in (0, 1):
            task = self._start(tmp_path)
            task.put(self._records(number))
            self._commit(task, number + 1)
            task.close([TopicPartition(self.topic, 0)])
            task.stop()
        assert list(self.written(tmp_path)) == [self.shown(0), self.shown(1)]

    def _commit(self, task: SinkTask, offset: int) -> None:
        """Asks until the task agrees, as the runtime does: a sink may write in the background."""
        partition = TopicPartition(self.topic, 0)

        def agrees() -> bool:
            task.put([])
            return task.pre_commit({partition: offset}).get(partition) == offset

        wait_for(agrees, f"commit at offset {offset}", _COMMIT_S)

    def _records(self, *numbers: int) -> list[SinkRecord]:
        """Returns records of these numbers, at offsets that are their numbers."""
        made = [self.make(number) for number in numbers]
        return [
            SinkRecord(self.topic, 0, None, None, m[0], m[1], n) for m, n in zip(made, numbers, strict=True)
        ]

    def test_stops_without_having_started(self) -> None:
        _sink_task(self.connector).stop()

    def _start(self, tmp_path: Path) -> SinkTask:
        config = self.task_configs(self.props(tmp_path), 1)[0]
        context = MemorySinkContext(config)
        context.assignment = frozenset({TopicPartition(self.topic, 0)})
        task = _sink_task(self.connector)
        task.initialize(context)
        task.start(config)
        task.open(context.assignment)
        return task


def _source_task(connector: type[SourceConnector]) -> SourceTask:
    task = connector.task_class()()
    assert isinstance(task, SourceTask), f"{connector.__name__} has driver tasks: run ConnectorConformance"
    return task


def _sink_task(connector: type[SinkConnector]) -> SinkTask:
    task = connector.task_class()()
    assert isinstance(task, SinkTask), f"{connector.__name__} has driver tasks: run ConnectorConformance"
    return task


def wait_for(condition: Callable[[], bool], what: str, deadline_s: float = _DEADLINE_S) -> None:
    """Waits until `condition` holds. AssertionError names what did not happen."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"no {what} within {deadline_s} s"
        time.sleep(0.001)
