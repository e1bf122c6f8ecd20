"""Source and sink connectors and their tasks (source, sink, driver): the base classes of a plugin author.

A connector defines its configuration and cuts its work into task configurations; tasks move the data. Both live
in child processes, never in the worker. The doc comment of each method is the contract: when it is called and
what its exceptions mean (`klamm_plugins.errors` has the table). All methods of one task are called from one
thread, one after the other; so are those of one connector. Methods that are called without `start` are class
methods and must not need any state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_plugins.metrics import MetricTable
from klamm_plugins.records import RecordMetadata, SinkRecord, SourceRecord, TopicPartition

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
        a word of its own). `details` are figures of its own (JSON values), shown in its status. A task that is silent for
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


class Plugin:
    """The common part of every kind of plugin: a version, a configuration, and the Java class that it stands for, if any."""

    kafka_name: ClassVar[str | None] = None
    """The Java class name that JSON written for Kafka Connect uses for this plugin."""
    former_names: ClassVar[tuple[str, ...]] = ()
    """Python paths (`package.module.Class`) of this class before it moved. Configurations may still use them."""

    @classmethod
    def version(cls) -> str:
        """Returns the plugin's version, as GET /connector-plugins shows it. The default is `undefined`."""
        return "undefined"

    @classmethod
    def config(cls) -> ConfigDef:
        """Returns its configuration keys. One definition drives validation, parsing and the reference page."""
        return ConfigDef()


class Connector(Plugin, ABC):
    """The common part of source and sink connectors. Subclass `SourceConnector` or `SinkConnector`.

    Life: constructor (no arguments), `initialize`, `start`, `task_configs` (at least once, again after
    `request_task_reconfiguration`), `stop`. Never used again after `stop`.
    """

    context: ConnectorContext

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        """Checks a configuration and answers for each key. Errors go into the answer; they are not raised.

        The default checks by `config()`. Override it for checks that need more than one key, and keep it quick: someone
        waits for the answer.
        """
        return cls.config().validate(props)

    @classmethod
    @abstractmethod
    def task_class(cls) -> type[SourceTask] | type[SinkTask] | type[DriverTask]:
        """Returns the class of its tasks, which is constructed without arguments in the task's process."""

    def initialize(self, context: ConnectorContext) -> None:
        """Takes the context, once, before `start`. The default keeps it as `self.context`."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begins, with a configuration that passed `validate`. An exception fails the connector."""

    @abstractmethod
    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Returns one configuration per task, at most `max_tasks`; fewer (or none) where there is less to do."""

    def stop(self) -> None:
        """Releases what `start` took. Called once, also after a `start` that raised."""


class SourceConnector(Connector):
    """Brings data from a system into topics."""

    @classmethod
    @abstractmethod
    def task_class(cls) -> type[SourceTask] | type[DriverTask]: ...

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Checks offsets that a user sets by REST (KIP-875) before they are written; None removes an offset.

        Called while the connector is stopped. Raise ConnectError, with a sentence for the user, for a partition or an
        offset that the tasks could not use. Return True when the connector can judge offsets (or keeps offsets of its own
        and has changed these), False when it does not look.
        """
        return False

    @classmethod
    def exactly_once_support(cls, props: Mapping[str, str]) -> bool | None:
        """Returns whether its tasks can write exactly once with this configuration: from a given offset they go on with the
        very next record. None (the default) gives no answer, and `exactly.once.support=required` is then refused.

        Where the workers have `exactly.once.source.support=enabled`, every source writes records and offsets in
        transactions, whatever this answer is.
        """
        return None

    @classmethod
    def can_define_transaction_boundaries(cls, props: Mapping[str, str]) -> bool:
        """Returns whether its tasks use the `transaction_context`. If not, `transaction.boundary=connector` is refused."""
        return False


class SinkConnector(Connector):
    """Takes data from topics into a system."""

    @classmethod
    @abstractmethod
    def task_class(cls) -> type[SinkTask] | type[DriverTask]: ...

    @classmethod
    def alter_offsets(cls, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Checks consumer offsets as SourceConnector.alter_offsets does.

        Override it when the connector keeps its offsets in the target system and must change them there.
        """
        return False


class SourceTask(ABC):
    """A task that reads from a system.

    Life: constructor, `initialize`, `start`, then `poll` again and again with `commit_record` and `commit` in
    between, `stop`. The runtime commits the offset of a record once the broker has acknowledged that record and all
    before it of the same source partition. A task never commits offsets itself.
    """

    context: SourceTaskContext

    kafka_name: ClassVar[str | None] = None
    """The Java class name of the task, where its connector has one. Kafka's worker continues tasks under this name."""

    def initialize(self, context: SourceTaskContext) -> None:
        """Takes the context, once, before `start`. The default keeps it as `self.context`."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begins: reads committed offsets (`self.context.offset`) and opens what the task needs.

        An exception fails the task.
        """

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord] | None:
        """Returns the next records, as a list or a `klamm_plugins.batch.SourceBatch`; None or an empty one when there are
        none now.

        It may block for a second at most while it waits, and sleeps with `self.context.stopping.wait(seconds)`, so that
        it returns at once when the task should stop. A task that never returns is killed. Return a few records soon
        rather than a full batch late. Records are never returned twice unless the task restarts.

        After a RetriableError `poll` is called again after a back-off. For DataError and anything else see
        `klamm_plugins.errors`.
        """

    def lag(self) -> int | None:
        """Returns how much data `poll` has not returned yet, in the source's own unit (bytes, rows); None: unknown.

        Called about once a second from the task's thread, so it must be quick. An exception is logged.
        """
        return None

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:  # noqa: B027
        """Tells the task that the broker has acknowledged `record`. `metadata` is None for a record that was filtered out.

        Called in the order of acknowledgement, from the task's thread, between two polls. It serves systems that want an
        acknowledgement (a queue's ack). It costs a call per record, and the runtime makes no calls where a task does not
        override it. An exception is logged and the task goes on.
        """

    def commit(self) -> None:  # noqa: B027
        """Tells the task that offsets were committed. An exception is logged and the task goes on."""

    def stop(self) -> None:  # noqa: B027
        """Releases what `start` took. Called once, in the task's thread, after the last `poll` has returned.

        Also called after a `start` or a `poll` that raised. It may take a few seconds at most: the process is killed
        after `task.shutdown.graceful.timeout.ms`.
        """


class SinkTask(ABC):
    """A task that writes to a system.

    Life: constructor, `initialize`, `start`, `open` with the first partitions, `put` again and again, now and then
    `pre_commit`; on a rebalance `pre_commit`, `close` (those that go), `open` (those that come); at the end
    `pre_commit`, `close`, `stop`. Delivery is at least once: after a crash, records since the last commit come again.
    It is exactly once where the task keeps offsets itself, in the transaction that writes the records: `open` then
    rewinds to them, and `put` skips records that are written and compares before it sets (docs/writing-plugins.md).
    """

    context: SinkTaskContext

    kafka_name: ClassVar[str | None] = None
    """The Java class name of the task, where its connector has one. Kafka's worker continues tasks under this name."""

    def initialize(self, context: SinkTaskContext) -> None:
        """Takes the context, once, before `start`. The default keeps it as `self.context`."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begins. Partitions are not yet assigned. An exception fails the task."""

    def open(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027
        """Takes added partitions. It may call `self.context.offset` to choose where to begin."""

    @abstractmethod
    def put(self, records: list[SinkRecord]) -> None:
        """Takes records, in order within each partition; an empty list is a chance to do work that is due.

        It need not write at once: records that `put` has taken are committed only after `pre_commit` says so. After a
        RetriableError the same list comes again after a back-off (set by `self.context.timeout`), and nothing else is
        delivered before. A DataError marks a record as bad. Anything else fails the task.
        """

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:  # noqa: B027
        """Writes out everything that `put` has taken. Called by the default `pre_commit`.

        An exception means that nothing is committed; the task rewinds to the last committed offsets.
        """

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Returns the offsets that may be committed, given the offset after the last record delivered, for each partition.

        The default flushes and returns `offsets`. A sink that writes in the background returns the offsets that it has
        safely written, and leaves out partitions with nothing new.
        """
        self.flush(offsets)
        return offsets

    def close(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027
        """Drops what belongs to these partitions, which go away (after a `pre_commit`)."""

    def stop(self) -> None:  # noqa: B027
        """Releases what `start` took. Called once, in the task's thread, also after a method that raised."""


class DriverTask(ABC):
    """A task that moves data itself: the runtime hands it no records and takes none. It serves data that must not, or
    cannot, pass record by record through the runtime: whole batches between clusters, a job in an engine of its own.

    Its connector is a source or a sink connector like any other (it decides what REST shows and validates). Life:
    constructor, `initialize`, `start`, `run` once, `stop`. The task becomes RUNNING when `start` has returned. It
    commits itself what it has acknowledged downstream (`self.context.commit`), and continues from there after a
    crash: delivery is at least once unless the task does better.
    """

    context: DriverTaskContext

    kafka_name: ClassVar[str | None] = None
    """The Java class name of the task, where its connector has one."""

    def initialize(self, context: DriverTaskContext) -> None:
        """Takes the context, once, before `start`. The default keeps it as `self.context`."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begins: reads committed offsets and opens what the task needs. An exception fails the task."""

    @abstractmethod
    def run(self) -> None:
        """Moves data until `self.context.stopping` is set, then finishes the work under way, commits, and returns.

        An earlier return means that there is nothing left to do: the task stays RUNNING and idle. `run` may block, run an
        event loop or have threads, as long as `self.context.progress` is called every second. When `self.context.paused`
        is set, it calls `self.context.stay_paused`. DataError and ConfigError fail the task for good; after anything else
        the restart policy starts it again.
        """

    def stop(self) -> None:  # noqa: B027
        """Releases what `start` took, processes too. Called once, in the task's thread, after `run` or a method that raised."""
