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
from typing import Any, ClassVar

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_plugins.batch import SinkBatch
from klamm_plugins.contexts import (
    ConnectorContext,
    DriverTaskContext,
    DriverTransactions,
    ErrantRecordReporter,
    Reported,
    SinkTaskContext,
    SourceOffset,
    SourcePartition,
    SourceTaskContext,
    StopSignal,
    TransactionContext,
)
from klamm_plugins.original_keys import OriginalKeys, add_refusals, without_effect
from klamm_plugins.records import RecordMetadata, SinkRecord, SourceRecord, TopicPartition

__all__ = [
    "Connector",
    "ConnectorContext",
    "DriverTask",
    "DriverTaskContext",
    "DriverTransactions",
    "ErrantRecordReporter",
    "Plugin",
    "Reported",
    "SinkConnector",
    "SinkTask",
    "SinkTaskContext",
    "SourceConnector",
    "SourceOffset",
    "SourcePartition",
    "SourceTask",
    "SourceTaskContext",
    "StopSignal",
    "TransactionContext",
]


class Plugin:
    """The common part of every kind of plugin: a version, a configuration, and the Java class that it stands for, if any."""

    kafka_name: ClassVar[str | None] = None
    """The Java class name that JSON written for Kafka Connect uses for this plugin."""
    full_name_only: ClassVar[bool] = False
    """True: the last part of `kafka_name` is the short name of another plugin, and does not stand for this one."""
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

    original_keys: ClassVar[OriginalKeys | None] = None
    """The verdict on each key of the connector whose name it takes (`kafka_name`). A connector that names one gets its JSON,
    and refuses or warns of what it cannot do.
    """
    key_prefixes: ClassVar[tuple[str, ...]] = ()
    """Beginnings of keys that `config()` cannot list, because users choose the rest. Other keys get a warning."""

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        """Checks a configuration and answers for each key. Errors go into the answer; they are not raised.

        The default checks by `config()` and `original_keys`. Override it for checks that need more than one key, and keep it
        quick: someone waits for the answer.
        """
        return add_refusals(cls.config().validate(props), cls.original_keys, props)

    @classmethod
    def warnings(cls, props: Mapping[str, str]) -> dict[str, str]:
        """Returns sentences for the user, each under the key that it is about: settings without effect, or with an effect that
        nobody may want.

        The default warns by `original_keys`. The worker adds keys that nobody knows. Sentences must not contain values, which
        may be secrets.
        """
        return without_effect(cls.original_keys, props)

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
        """Returns the next records, as a list or in columns (`SourceBatch`, `SourceBatches` of `klamm_plugins.batch`); None or
        an empty one when there are none now.

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

    def signal(self, name: str, type: str, data: Mapping[str, Any]) -> None:  # noqa: B027
        """Takes a signal that somebody sent to the running task by REST (`POST /connectors/NAME/tasks/N/signals`).

        Called from the task's thread, between two polls. A request is refused where a task does not override this. A
        signal that was taken is nobody else's: keep in the offsets what a restarted task must know of it. An exception is
        logged and the task goes on.
        """

    def check_signal(self, type: str, data: Mapping[str, Any]) -> None:  # noqa: B027
        """Raises ConfigError or DataError for a signal that `signal` could only throw away: the sender is told (400).

        Called before `signal`, from another thread, also while `start` or `poll` runs: only look at what does not change,
        and answer at once.
        """

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

    raw_formats: Collection[str] = ()
    """The formats (`klamm_plugins.batch`) of values that `put_batches` takes as bytes. `start` may set it."""

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

    def put_batches(self, batches: Sequence[SinkBatch]) -> None:
        """Takes records in columns. Override it beside `put` where columns are faster; then it is called instead of `put`,
        with the same contract. The default calls `put` with the records.

        The batches come in the order of their records. `raw(…)` of a batch has the bytes of values that nobody needed to
        convert, of the `raw_formats`. In a class that overrides `put` only, above a class with `put_batches`, the runtime calls `put`.
        """
        self.put([record for batch in batches for record in batch])

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
