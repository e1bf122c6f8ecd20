"""The runtime's side of connectors and tasks: what each may ask of it. `klamm_plugins.connector` has these names, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from klamm_plugins.metrics import MetricTable
from klamm_plugins.record_pipeline import RecordPipeline
from klamm_plugins.records import SinkRecord, SourceRecord, TopicPartition

LIVE_SETTINGS: Final = "task.live.settings"
"""A key that a connector gives its driver tasks' configurations: the names, by commas, of settings whose change restarts no
task. The running task takes it by `DriverTaskContext.take_update`.
"""

SourcePartition = Mapping[str, Any]
SourceOffset = Mapping[str, Any]


class StopSignal(Protocol):
    """A signal that asks a task to stop. A `threading.Event` fits."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Sleeps up to `timeout` seconds. Returns True, at once, when the task is asked to stop."""
        ...


class ConnectorContext(Protocol):
    """The requests that a running connector may make to the runtime. Callable from any thread."""

    def request_task_reconfiguration(self) -> None:
        """Asks the runtime to call `task_configs` again soon, and to restart the tasks if its answer has changed."""
        ...

    def raise_error(self, error: Exception) -> None:
        """Fails the connector (not its tasks), from a thread of its own."""
        ...

    @property
    def present_task_configs(self) -> Sequence[Mapping[str, str]]:
        """The configurations that the tasks have while `task_configs` is asked for the next ones, so that these can be like
        them. Secrets in them are references.
        """
        ...


class TransactionContext(Protocol):
    """The way for a source task to end its transactions (KIP-618), with `transaction.boundary=connector`.

    Call it from the task's thread, before or after `poll` returns. A record means the very object that `poll`
    returns, not an equal one. Asking for both commit and abort of one transaction, or of one record, fails the task.
    """

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Commits after this record, or (None) after the batch that the next `poll` returns, or the current one."""
        ...

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Aborts after this record, or after the batch. Readers of committed records never see the transaction's records so
        far. The offsets are committed all the same: the records do not come again.
        """
        ...


class SourceTaskContext(Protocol):
    """The requests that a source task may make to the runtime."""

    @property
    def configs(self) -> Mapping[str, str]:
        """The task's configuration, as given to `start`."""
        ...

    @property
    def stopping(self) -> StopSignal:
        """A signal that is set when the task is asked to stop: `poll` should then return."""
        ...

    def offset(self, partition: SourcePartition) -> dict[str, Any] | None:
        """Returns the last committed offset of a source partition, None when there is none."""
        ...

    def offsets(self, partitions: Collection[SourcePartition]) -> list[dict[str, Any] | None]:
        """Returns what `offset` does for many partitions, in the order of `partitions`."""
        ...

    @property
    def transaction_context(self) -> TransactionContext | None:
        """The transaction context; None unless the source is exactly-once and its transaction.boundary is connector."""
        ...


class Reported(Protocol):
    """A reported record on its way to the dead letter topic."""

    def wait(self, timeout_s: float) -> None:
        """Returns when the dead letter topic has the record; without such a topic, at once. Call it from the task's thread.

        Only a sink that keeps offsets itself needs to wait, before it stores them. Raises ConnectError when it takes too
        long.
        """
        ...


class ErrantRecordReporter(Protocol):
    """Takes single records that a sink could not write (KIP-610)."""

    def report(self, record: SinkRecord, error: Exception) -> Reported:
        """Reports a record that cannot be written, now or later. It goes to the dead letter topic and the log, as the
        connector is configured. Raises ConnectError when errors are not tolerated: let it through. The offset of the
        record is committed as if it were written, once the dead letter topic has it.
        """
        ...


class SinkTaskContext(Protocol):
    """The requests that a sink task may make to the runtime, from the task's own thread."""

    @property
    def configs(self) -> Mapping[str, str]: ...

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the task has now."""
        ...

    @property
    def stopping(self) -> StopSignal: ...

    @property
    def leaving(self) -> frozenset[TopicPartition]:
        """The partitions that go away after the `pre_commit` that runs now: what it does not return comes again elsewhere.
        Empty in the regular commits.
        """
        ...

    @property
    def errant_record_reporter(self) -> ErrantRecordReporter | None:
        """The reporter of bad records; None when the connector has neither a dead letter topic nor errors.log.enable."""
        ...

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Rewinds: the runtime delivers from these offsets on, after the current call returns."""
        ...

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops the delivery of these partitions until `resume`."""
        ...

    def resume(self, *partitions: TopicPartition) -> None: ...

    def timeout(self, ms: int) -> None:
        """Sets the back-off before a batch is handed in again after the next RetriableError."""
        ...

    def request_commit(self) -> None:
        """Asks the runtime to commit offsets soon instead of at the next interval."""
        ...


class DriverTransactions(Protocol):
    """Exactly once for a driver source that has a transactional producer of its own (KIP-618).

    The order at every start: `fence`, InitProducerId with `transactional_id`, `confirm`, `offsets` of the context. The
    offsets then go with their records: `encode` gives the records for `offsets_topic`, each for the partition that Java's
    partitioner gives its key. The task does not call the context's `commit`. All calls block.
    """

    transactional_id: str
    offsets_topic: str
    """The workers' offset topic: the task's data must go to the workers' cluster."""

    def fence(self) -> None:
        """Ends the producers of the connector's former tasks. Raises ConnectError."""
        ...

    def confirm(self) -> None:
        """Asks whether the task is still wanted, so that no outdated task writes. Raises ConnectError if it is not."""
        ...

    def encode(self, offsets: Sequence[tuple[SourcePartition, SourceOffset]]) -> list[tuple[bytes, bytes]]:
        """Returns keys and values for the offset topic."""
        ...


class DriverTaskContext(Protocol):
    """The requests that a driver task may make to the runtime. Callable from any thread, unless a method says otherwise."""

    @property
    def configs(self) -> Mapping[str, str]:
        """The task's configuration, as given to `start`."""
        ...

    @property
    def stopping(self) -> StopSignal:
        """A signal that is set when the task is asked to stop: `run` should then finish the work under way and return."""
        ...

    @property
    def paused(self) -> bool:
        """True when the task is asked to pause: finish the work under way, then call `stay_paused`."""
        ...

    def stay_paused(self) -> None:
        """Makes the task PAUSED, and returns when it should go on or stop. Call it from the task's thread."""
        ...

    def take_update(self) -> Mapping[str, str] | None:
        """Returns the task's changed configuration, once: settings named by `LIVE_SETTINGS` have changed. None: nothing has."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Sleeps up to `timeout_s` seconds; returns at once when an order comes (stop, pause, resume).

        Call it from the task's thread. It is a sign of life when it begins, not while it lasts.
        """
        ...

    def progress(
        self,
        records: int,
        *,
        lag: int | None = None,
        waiting_for: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Tells the task's progress, and is a sign of life: call it every second, also from `start` when that takes long.

        `records` counts the records acknowledged downstream since the task started; `lag` is how many records it is
        behind (None: unknown); `waiting_for` names the cause when the task does not move ("input", "target", "broker", or
        a word of its own). `details` are figures of its own (JSON values), shown in its status; `degraded` in it is a
        sentence about a part of the work that stands still while the rest goes on. A task that is silent for
        `task.heartbeat.timeout.ms` is killed and restarted. Raises ConnectError for details that are no JSON, or more
        than 16 KiB of it.
        """
        ...

    def metrics(self, tables: Sequence[MetricTable]) -> None:
        """Sets figures for the worker's GET /metrics alone, in place of those before: one row for each partition or group.

        It is no sign of life; the worker gets the figures with the next `progress`. Raises ConnectError for names that
        are no metric's, rows of another length, and more than 4 MiB of JSON.
        """
        ...

    def use_topics(self, topics: Collection[str]) -> None:
        """Tells which topics of the worker's cluster the task uses, for GET /connectors/NAME/topics."""
        ...

    @property
    def transactions(self) -> DriverTransactions | None:
        """A source's share in exactly once; None where the workers have not enabled it."""
        ...

    def offset(self, partition: SourcePartition) -> dict[str, Any] | None:
        """Returns the last committed offset of a partition, None when there is none."""
        ...

    def offsets(self, partitions: Collection[SourcePartition]) -> list[dict[str, Any] | None]:
        """Returns what `offset` does for many partitions, in the order of `partitions`."""
        ...

    def commit(self, offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]) -> None:
        """Stores offsets and returns when they are stored. It waits for a broker that is away (that counts as a sign of
        life). Raises ConnectError when the broker refuses, or when the task must stop before it answers.

        A source's offsets go to the offset topic; None removes an offset. A sink's partitions are `{"kafka_topic": t,
        "kafka_partition": p}`, its offsets `{"kafka_offset": n}` (the next to read, never None), as in Connect's REST;
        they go to its consumer group `connect-NAME`, so that Kafka's tools show its lag. The task itself must therefore
        not join that group: it assigns itself partitions.
        """
        ...

    def client_properties(self, kind: Literal["producer", "consumer", "admin"]) -> dict[str, str]:
        """Returns Kafka's client properties for the worker's cluster: `bootstrap.servers`, security, the worker's
        `producer.` and so on, the connector's overrides. They have Java's names: `klamm_base.clientconfig` translates.
        """
        ...

    def record_pipeline(self) -> RecordPipeline | None:
        """Returns the connector's transforms and converters, for records that the task moves itself; None where these would
        pass as they are. A converter that the connector itself does not name passes bytes (ByteArrayConverter).

        Call it once, from the task's thread, before or in `run`. Raises ConfigError for a part that cannot be made.
        """
        ...
