"""Source and sink connectors and their tasks (source, sink, driver): the base classes of a plugin author.

A connector says which configuration it takes and cuts its work into task configurations; tasks move the
data. Both live in child processes, never in the worker. The doc comment of each method is the contract: when
it is called and what its exceptions mean (`klamm_plugins.errors` has the table). All methods of one task are
called from one thread, one after the other; so are those of one connector. What is called without `start`
is a class method and must not need any state.
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
    """Says that a task is asked to stop. A `threading.Event` is one."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Sleep up to `timeout` seconds; True, at once, when the task is asked to stop."""
        ...


class ConnectorContext(Protocol):
    """What a running connector may ask of the runtime. Callable from any thread."""

    def request_task_reconfiguration(self) -> None:
        """Have `task_configs` called again soon and the tasks restarted if its answer has changed."""
        ...

    def raise_error(self, error: Exception) -> None:
        """Fail the connector (not its tasks) from a thread of its own."""
        ...


class TransactionContext(Protocol):
    """How a source task says where its transactions end (KIP-618), with `transaction.boundary=connector`.

    From the task's thread, before `poll` returns or after. A record is meant as the object that `poll` returns, not as
    one that is equal to it. To ask for both of one transaction, or of one record, fails the task.
    """

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Commit after this record, or (None) after the batch that the next `poll` returns, or this one."""
        ...

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Abort after this record, or after the batch: what is in the transaction so far is never seen by readers of
        what is committed. The offsets are committed all the same: the records do not come again.
        """
        ...


class SourceTaskContext(Protocol):
    """What a source task may ask of the runtime."""

    @property
    def configs(self) -> Mapping[str, str]:
        """The task's configuration, as given to `start`."""
        ...

    @property
    def stopping(self) -> StopSignal:
        """Set when the task is asked to stop: `poll` should then return."""
        ...

    def offset(self, partition: SourcePartition) -> dict[str, Any] | None:
        """The last committed offset of a source partition, None when there is none."""
        ...

    def offsets(self, partitions: Collection[SourcePartition]) -> list[dict[str, Any] | None]:
        """Like `offset` for many, in the order of `partitions`."""
        ...

    @property
    def transaction_context(self) -> TransactionContext | None:
        """None unless the source is exactly-once and its transaction.boundary is connector."""
        ...


class Reported(Protocol):
    """A record that was reported, on its way to the dead letter topic."""

    def wait(self, timeout_s: float) -> None:
        """Return when the dead letter topic has it; without one, at once. From the task's thread.

        Only a sink that keeps offsets itself need wait, before it stores them. ConnectError when it takes too long.
        """
        ...


class ErrantRecordReporter(Protocol):
    """Takes single records that a sink could not write (KIP-610)."""

    def report(self, record: SinkRecord, error: Exception) -> Reported:
        """Say that a record cannot be written, now or later: it goes to the dead letter topic and the log, as the
        connector is configured. Raises ConnectError when errors are not tolerated: let it through. The offset of
        the record is committed as if it were written, once the dead letter topic has it.
        """
        ...


class SinkTaskContext(Protocol):
    """What a sink task may ask of the runtime, from the task's own thread."""

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
        """Where bad records go; None when the connector has neither a dead letter topic nor errors.log.enable."""
        ...

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Rewind: deliver from these offsets on, after the current call returns."""
        ...

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop delivering these partitions until `resume`."""
        ...

    def resume(self, *partitions: TopicPartition) -> None: ...

    def timeout(self, ms: int) -> None:
        """Set the back-off before a batch is handed in again after the next RetriableError."""
        ...

    def request_commit(self) -> None:
        """Commit offsets soon instead of at the next interval."""
        ...


class DriverTaskContext(Protocol):
    """What a driver task may ask of the runtime. Callable from any thread, unless a method says otherwise."""

    @property
    def configs(self) -> Mapping[str, str]:
        """The task's configuration, as given to `start`."""
        ...

    @property
    def stopping(self) -> StopSignal:
        """Set when the task is asked to stop: `run` should then finish what is under way and return."""
        ...

    @property
    def paused(self) -> bool:
        """The task is asked to pause: finish what is under way, then call `stay_paused`."""
        ...

    def stay_paused(self) -> None:
        """Say that the task is PAUSED and return when it is to go on or to stop. From the task's thread."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Sleep up to `timeout_s` seconds; return at once when an order comes (stop, pause, resume).

        From the task's thread. It is a sign of life when it begins, not while it lasts.
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
        """How far the task is, and a sign of life: call it every second, also from `start` when that takes long.

        `records` counts what was acknowledged downstream since the task started, `lag` is how many records are
        behind (None: unknown), `waiting_for` what the task waits for when it does not move ("input", "target",
        "broker", or a word of its own). `details` are figures of its own (JSON values), shown in its status.
        A task that is silent for `task.heartbeat.timeout.ms` is killed and restarted. Raises ConnectError for
        details that are no JSON, or more than 16 KiB of it.
        """
        ...

    def metrics(self, tables: Sequence[MetricTable]) -> None:
        """Figures for the worker's GET /metrics alone, in place of those before: one row for each partition or group.

        No sign of life, and told to the worker with the next `progress`. Raises ConnectError for names that are no
        metric's, rows of another length, and more than 4 MiB of JSON.
        """
        ...

    def use_topics(self, topics: Collection[str]) -> None:
        """Say which topics of the worker's cluster the task uses, for GET /connectors/NAME/topics."""
        ...

    def offset(self, partition: SourcePartition) -> dict[str, Any] | None:
        """The last committed offset of a partition, None when there is none."""
        ...

    def offsets(self, partitions: Collection[SourcePartition]) -> list[dict[str, Any] | None]:
        """Like `offset` for many, in the order of `partitions`."""
        ...

    def commit(self, offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]) -> None:
        """Store offsets and return when they are stored. A broker that is away is waited for (that counts as a sign
        of life). Raises ConnectError when it refuses, or when the task must stop before it answers.

        A source's go to the offset topic; None removes one. A sink's partitions are
        `{"kafka_topic": t, "kafka_partition": p}`, its offsets `{"kafka_offset": n}` (the next to read, never None),
        as in Connect's REST; they go to its consumer group `connect-NAME`, so that Kafka's tools show its lag. So
        the task itself must not join that group: it assigns itself partitions.
        """
        ...

    def client_properties(self, kind: Literal["producer", "consumer", "admin"]) -> dict[str, str]:
        """Kafka's client properties for the worker's cluster: `bootstrap.servers`, security, the worker's
        `producer.` and so on, the connector's overrides. In Java's names: `klamm_base.clientconfig` translates.
        """
        ...


class Plugin:
    """What every kind of plugin has: a version, a configuration, and Kafka's name if it stands for one."""

    kafka_name: ClassVar[str | None] = None
    """The Java class name that JSON written for Kafka Connect uses for this plugin."""
    former_names: ClassVar[tuple[str, ...]] = ()
    """Python paths (`package.module.Class`) that this class had before it moved: configurations may still use them."""

    @classmethod
    def version(cls) -> str:
        """The plugin's version, as GET /connector-plugins shows it. `undefined` when it does not say."""
        return "undefined"

    @classmethod
    def config(cls) -> ConfigDef:
        """Its configuration keys. One definition drives validation, parsing and the reference page."""
        return ConfigDef()


class Connector(Plugin, ABC):
    """What source and sink connectors share. Subclass `SourceConnector` or `SinkConnector`.

    Life: constructor (no arguments), `initialize`, `start`, `task_configs` (at least once, again after
    `request_task_reconfiguration`), `stop`. Never used again after `stop`.
    """

    context: ConnectorContext

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        """Check a configuration and answer for each key; errors go into the answer, they are not raised.

        The default checks by `config()`. Override it for what one key alone cannot tell, and keep it quick:
        someone waits for the answer.
        """
        return cls.config().validate(props)

    @classmethod
    @abstractmethod
    def task_class(cls) -> type[SourceTask] | type[SinkTask] | type[DriverTask]:
        """The class of its tasks; constructed without arguments in the task's process."""

    def initialize(self, context: ConnectorContext) -> None:
        """Called once before `start`. The default keeps the context as `self.context`."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begin, with a configuration that passed `validate`. An exception fails the connector."""

    @abstractmethod
    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One configuration per task, at most `max_tasks`; fewer (or none) where there is less to do."""

    def stop(self) -> None:
        """Release what `start` took. Called once, also after a `start` that raised."""


class SourceConnector(Connector):
    """Brings data from a system into topics."""

    @classmethod
    @abstractmethod
    def task_class(cls) -> type[SourceTask] | type[DriverTask]: ...

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Check, before they are written, offsets that a user sets by REST (KIP-875); None removes one.

        Called while the connector is stopped. Raise ConnectError, with a sentence for the user, for a
        partition or an offset that the tasks could not use. Return True when the connector knows how to judge
        them (or keeps offsets of its own and has changed these), False when it does not look.
        """
        return False

    @classmethod
    def exactly_once_support(cls, props: Mapping[str, str]) -> bool | None:
        """Whether, with this configuration, its tasks can write exactly once: from an offset that they are given they go
        on with the very next record. None (the default): it does not say, and `exactly.once.support=required` is refused.

        Where the workers have `exactly.once.source.support=enabled` every source writes records and offsets in
        transactions, whatever this says.
        """
        return None

    @classmethod
    def can_define_transaction_boundaries(cls, props: Mapping[str, str]) -> bool:
        """Whether its tasks use the `transaction_context`: without it `transaction.boundary=connector` is refused."""
        return False


class SinkConnector(Connector):
    """Takes data from topics into a system."""

    @classmethod
    @abstractmethod
    def task_class(cls) -> type[SinkTask] | type[DriverTask]: ...

    @classmethod
    def alter_offsets(cls, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Like SourceConnector.alter_offsets, for consumer offsets.

        Override it when the connector keeps its offsets in the target system and must change them there.
        """
        return False


class SourceTask(ABC):
    """Reads from a system.

    Life: constructor, `initialize`, `start`, then `poll` again and again with `commit_record` and `commit` in
    between, `stop`. The runtime commits the offset of a record once that record and all before it of the same
    source partition are acknowledged by the broker, so a task never looks after that itself.
    """

    context: SourceTaskContext

    kafka_name: ClassVar[str | None] = None
    """The Java class name of the task, where its connector has one: Kafka's worker goes on with tasks by it."""

    def initialize(self, context: SourceTaskContext) -> None:
        """Called once before `start`. The default keeps the context as `self.context`."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begin: read committed offsets (`self.context.offset`) and open what is needed.

        An exception fails the task.
        """

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord] | None:
        """The next records, as a list or a `klamm_plugins.batch.SourceBatch`; None or an empty one when there are none now.

        It may block while it waits, for a second at most, and sleeps with `self.context.stopping.wait(seconds)`
        so that it returns at once when the task is to stop. A task that never returns is killed. Answer soon
        with what there is rather than late with a full batch. Records given out are never given out again
        unless the task restarts.

        RetriableError: `poll` is called again after a back-off. DataError and anything else: see
        `klamm_plugins.errors`.
        """

    def lag(self) -> int | None:
        """How much is there that `poll` has not given out, in the source's own unit (bytes, rows); None: unknown.

        Asked about once a second, from the task's thread: it must be quick. An exception is logged.
        """
        return None

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:  # noqa: B027
        """The broker has acknowledged `record`. `metadata` is None for a record that was filtered out.

        Called in the order of acknowledgement, from the task's thread, between two polls. For systems that
        want to be told (a queue's ack); it costs a call per record, and the runtime makes none where a task
        does not override it. An exception is logged and the task goes on.
        """

    def commit(self) -> None:  # noqa: B027
        """Offsets were committed. An exception is logged and the task goes on."""

    def stop(self) -> None:  # noqa: B027
        """Release what `start` took. Called once, in the task's thread, after the last `poll` has returned.

        Also called after a `start` or a `poll` that raised. Nothing that it does may take longer than a few
        seconds: the process is killed after `task.shutdown.graceful.timeout.ms`.
        """


class SinkTask(ABC):
    """Writes to a system.

    Life: constructor, `initialize`, `start`, `open` with the first partitions, `put` again and again, now and
    then `pre_commit`; on a rebalance `pre_commit`, `close` (those that go), `open` (those that come); at the end
    `pre_commit`, `close`, `stop`. Delivery is at least once: after a crash, records since the last commit come
    again. It is exactly once where the task keeps offsets itself, in the transaction that writes the records: `open` then
    rewinds to them, `put` leaves out what is written and compares before it sets (docs/writing-plugins.md).
    """

    context: SinkTaskContext

    kafka_name: ClassVar[str | None] = None
    """The Java class name of the task, where its connector has one: Kafka's worker goes on with tasks by it."""

    def initialize(self, context: SinkTaskContext) -> None:
        """Called once before `start`. The default keeps the context as `self.context`."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begin. Partitions are not yet assigned. An exception fails the task."""

    def open(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027
        """These partitions were added. May call `self.context.offset` to choose where to begin."""

    @abstractmethod
    def put(self, records: list[SinkRecord]) -> None:
        """Take records, in order within each partition; an empty list is a chance to do what is due.

        It need not write at once: what `put` has taken is committed only after `pre_commit` says so.
        RetriableError: the same list comes again after a back-off (set by `self.context.timeout`), nothing else
        is delivered before. DataError: a record is bad. Anything else fails the task.
        """

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:  # noqa: B027
        """Write out everything that `put` has taken. Called by the default `pre_commit`.

        An exception means that nothing is committed; the task rewinds to the last committed offsets.
        """

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Say what may be committed, given the offset after the last record delivered, for each partition.

        The default flushes and returns `offsets`. A sink that writes in the background returns what it has
        safely written, and leaves out partitions with nothing new.
        """
        self.flush(offsets)
        return offsets

    def close(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027
        """These partitions go away (after a `pre_commit`): drop what belongs to them."""

    def stop(self) -> None:  # noqa: B027
        """Release what `start` took. Called once, in the task's thread, also after a method that raised."""


class DriverTask(ABC):
    """Moves data itself: the runtime hands it no records and takes none. For what must not, or cannot, pass
    record by record through the runtime: whole batches between clusters, a job in an engine of its own.

    Its connector is a source or a sink connector like any other (it decides what REST shows and validates).
    Life: constructor, `initialize`, `start`, `run` once, `stop`. RUNNING is said when `start` has returned.
    What it has acknowledged downstream it commits itself (`self.context.commit`), and after a crash it goes on
    from there: delivery is at least once unless the task does better.
    """

    context: DriverTaskContext

    kafka_name: ClassVar[str | None] = None
    """The Java class name of the task, where its connector has one."""

    def initialize(self, context: DriverTaskContext) -> None:
        """Called once before `start`. The default keeps the context as `self.context`."""
        self.context = context

    @abstractmethod
    def start(self, props: Mapping[str, str]) -> None:
        """Begin: read committed offsets and open what is needed. An exception fails the task."""

    @abstractmethod
    def run(self) -> None:
        """Move data until `self.context.stopping` is set, then finish what is under way, commit, and return.

        To return earlier is to say that there is nothing left to do: the task stays RUNNING and idle. It may block,
        run an event loop or have threads, as long as `self.context.progress` is called every second. When
        `self.context.paused` is set, it calls `self.context.stay_paused`. DataError and ConfigError fail the task
        for good; after anything else the restart policy starts it again.
        """

    def stop(self) -> None:  # noqa: B027
        """Release what `start` took (processes, too). Called once, in the task's thread, after `run`, also after
        a method that raised.
        """
