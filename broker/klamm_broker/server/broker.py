"""The broker's state: topics and their partitions, on top of the logs; what every handler works with.

`Broker` knows no sockets. It is opened once, serves from one event loop's thread, and is closed once. Partition
state keeps log end offset, high watermark, last stable offset and leader epoch apart (they live in the
`PartitionLog`); on a single node an append advances the high watermark at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from klamm_base.errors import ConfigError
from klamm_broker.log.config import LogConfig
from klamm_broker.log.disk_failure import is_broken
from klamm_broker.log.errors import LogError, UnusableDirectory
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.steps import Steps, finish
from klamm_broker.server.cleaner import LogCleaner
from klamm_broker.server.cluster_config import FILE_NAME as CLUSTER_FILE
from klamm_broker.server.cluster_config import ClusterConfig, ResourceType
from klamm_broker.server.config import BrokerConfig, Listener
from klamm_broker.server.dynamic_config import MIN_ISR
from klamm_broker.server.fetch_sessions import FetchSessions
from klamm_broker.server.flusher import Flusher
from klamm_broker.server.group_commit import GroupCommit
from klamm_broker.server.metrics import IdleMeter
from klamm_broker.server.replica_mover import ReplicaMover
from klamm_broker.server.scram_users import FILE_NAME as USERS_FILE
from klamm_broker.server.scram_users import ScramUsers
from klamm_broker.server.slices import then
from klamm_broker.server.topic_changes import TopicChanges
from klamm_broker.server.topics import Partition, Topic, TopicTable
from klamm_broker.server.waiting import WaitingRoom
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.log.partition_log import AppendInfo
    from klamm_broker.server.groups import GroupShell
    from klamm_broker.server.transactions import TransactionShell

log = logging.getLogger(__name__)

PAUSE_MAX_S: Final = 86_400.0
"""Longest pause of periodic work: Kafka's "never" (Long.MAX_VALUE) is not a time for a timer."""
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"


class Broker:
    """Owns logs, topics and coordinators of one node.

    `listeners` are the addresses that clients are told, by listener name; set by `main` once the ports are known.
    """

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.loop = loop
        self.node_id = config.node_id
        self.listeners: dict[str, Listener] = {}
        self.topics = TopicTable()
        self.waiting = WaitingRoom(loop)
        self.topic_changes = TopicChanges(self)
        self.fetch_sessions = FetchSessions(config["max.incremental.fetch.session.cache.slots"])
        self.started_s = time.time()
        self.idle = IdleMeter()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._jobs: dict[str, asyncio.Future[None]] = {}
        self._failing: set[str] = set()  # jobs that failed the last time, which has been told
        self.failure: UnusableDirectory | None = None  # why the broker has to stop
        self.on_failure: Callable[[], None] = lambda: None
        self.logs: LogManager
        self.cluster_config: ClusterConfig
        self.scram_users: ScramUsers
        self._flusher: Flusher
        self.commits = GroupCommit(self)  # of durability=fsync and flush.messages
        self.mover = ReplicaMover(self)
        self.cleaner = LogCleaner(self)
        self.groups: GroupShell
        self.transactions: TransactionShell

    @property
    def cluster_id(self) -> str:
        return self.logs.cluster_id

    @staticmethod
    def now_ms() -> int:
        """Wall clock in milliseconds."""
        return int(time.time() * 1000)

    # ---- life

    def open(self) -> None:
        """Lock the data directory, recover every partition, start the coordinators. Raises KlammError."""
        from klamm_broker.server.groups import GroupShell
        from klamm_broker.server.transactions import TransactionShell

        config = self.config
        self.logs = LogManager(
            config.log_dirs,
            config.topic_defaults,
            now_ms=self.now_ms(),
            node_id=config.node_id,
            cluster_id=config["cluster.id"],
            producer_id_expiration_ms=config["producer.id.expiration.ms"],
            commit_by_flush=config["durability"] == "fsync",
        )
        self.logs.report = self._disk_error
        self._load_cluster_config()
        self.scram_users = ScramUsers.load(config.log_dir / USERS_FILE)
        for name in self.logs.topics:
            self._serve_topic(name)
        self.groups = GroupShell(self)
        self.transactions = TransactionShell(self)
        self.groups.open()
        self.transactions.open()
        self._every("log.flush.offset.checkpoint.interval.ms", self._write_checkpoints)
        self._every("log.retention.check.interval.ms", self._apply_retention)
        self._every(
            "producer.id.expiration.check.interval.ms", lambda: self.logs.expire_producers(self.now_ms())
        )
        self._flusher = Flusher(self.logs, interval_ms=config["log.flush.scheduler.interval.ms"])
        self._flusher.start(self.loop)
        self.mover.resume()
        self.cleaner.start()

    def _load_cluster_config(self) -> None:
        """What was changed while it ran before. A value that does not fit any more is told and left aside."""
        # Once and for all the cluster's, as with Kafka's eligible leader replicas.
        least = str(self.config[MIN_ISR])
        new = {(ResourceType.BROKER, ""): {MIN_ISR: least}}
        self.cluster_config = ClusterConfig.load(self.config.log_dir / CLUSTER_FILE, new=new)
        try:
            self.apply_dynamic_config()
        except ConfigError as e:
            log.error("configurations in %s could not be applied: %s", CLUSTER_FILE, e)  # noqa: TRY400

    async def close(self) -> None:
        """Flush, checkpoint, leave the clean-shutdown marker."""
        for timer in self._timers.values():
            timer.cancel()
        await self.topic_changes.finish()
        await self.cleaner.stop()
        await self.mover.stop()
        await self._flusher.stop()
        await self.commits.stop()
        if self._jobs:
            await asyncio.wait(list(self._jobs.values()))
        if self.failure is not None:
            self._abandon()
            return
        self.transactions.close()
        self.groups.close()
        self.logs.close()

    # ---- directories that fail

    def _disk_error(self, directory: Path, error: OSError) -> None:
        """An operation in a log directory has failed. Called in any thread, in the middle of anything."""
        if is_broken(directory, error):
            self.loop.call_soon_threadsafe(self.fail_directory, directory, error)

    def fail_directory(self, path: Path, error: OSError) -> None:
        """Take a log directory offline until the next start; without the first one the broker has to stop."""
        logs = self.logs
        if self.failure is not None or path in logs.unusable:
            return
        if path == logs.directories[0].path:
            why = f"log directory {path} has failed: {error}"
            if len(self.config.log_dirs) > 1:
                why += ". It is the first of log.dirs, without which no topic is known"
            self.failure = UnusableDirectory(f"{why}. The broker stops")
            log.critical("%s", self.failure)
            self.on_failure()
            return
        gone = logs.fail_directory(path, error)
        log.critical(
            "log directory %s has failed: %s. Its %d partitions are offline until the broker is started with it in order",
            path, error, len(gone),
        )  # fmt: skip
        for offline in gone:
            partition = self.partition(offline.topic, offline.partition)
            if partition is not None:
                partition.log = offline
                self.waiting.gone(partition)
                self.commits.gone(partition)

    def _abandon(self) -> None:
        """Let go of everything without writing: what is on a disk that fails is for the next start to find out."""
        self.transactions.close()
        self.groups.close()
        self.logs.release()

    def _write_checkpoints(self) -> None:
        self._in_thread("writing checkpoints", self.logs.checkpoint_job)

    def _apply_retention(self) -> None:
        now_ms = self.now_ms()
        self.logs.apply_retention(now_ms)
        self.fetch_sessions.note_log_starts()
        self._in_thread("removing deleted topics", lambda: self.logs.removal_job(now_ms))

    def _in_thread(self, what: str, make_job: Callable[[], Callable[[], None]]) -> None:
        """Work for the disk: made here, done in a thread. While the last such job is under way it is left for later."""
        if what in self._jobs:
            return

        def done(job: asyncio.Future[None]) -> None:
            del self._jobs[what]
            error = job.exception()
            if error is None:
                if what in self._failing:
                    self._failing.remove(what)
                    log.warning("%s succeeds again", what)
            elif not isinstance(error, OSError):
                log.error("%s failed; it will be tried again", what, exc_info=error)
            elif what not in self._failing:  # a disk that is full is so for a while
                self._failing.add(what)
                log.error("%s failed; it will be tried again: %s", what, error)

        self._jobs[what] = self.loop.run_in_executor(None, make_job())
        self._jobs[what].add_done_callback(done)

    def _every(self, key: str, work: Callable[[], object]) -> None:
        """Do `work` in the rhythm of a property. A disk that fails is reported and tried again."""
        pause_s = min(self.config[key] / 1000, PAUSE_MAX_S)

        def tick() -> None:
            try:
                work()
            except (LogError, OSError) as e:
                log.error("%s: the periodic work failed: %s", key, e)  # noqa: TRY400
            self._timers[key] = self.loop.call_later(pause_s, tick)

        if pause_s > 0:
            self._timers[key] = self.loop.call_later(pause_s, tick)

    # ---- topics

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.by_name.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def create_topic(
        self, name: str, *, partitions: int, overrides: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic; it is on the disk when this returns. The caller has checked name and count.

        Raises KeyError when it exists, ConfigError for bad overrides, DirectoryError and OSError for the disk.
        """
        failed = self.create_topics({name: (partitions, overrides or {})})
        if name in failed:
            raise failed[name]
        return self.topics.by_name[name]

    def create_topics(self, wanted: Mapping[str, tuple[int, Mapping[str, str]]]) -> dict[str, Exception]:
        """Create several topics, by name with number of partitions and own properties, at the cost of one.

        What went wrong, by name, as `create_topic` raises it; the other topics are served.
        """
        return finish(self.creating_topics(wanted))

    def creating_topics(
        self, wanted: Mapping[str, tuple[int, Mapping[str, str]]]
    ) -> Steps[dict[str, Exception]]:
        """`create_topics` in steps of a partition each. The topics are served after the last one, all together."""
        failed = yield from self.logs.creating_topics(wanted, now_ms=self.now_ms())
        for name, (partitions, _) in wanted.items():
            if name in failed:
                continue
            log.info("created topic %s with %d partitions", name, partitions)
            self._serve_topic(name)
            if name == OFFSETS_TOPIC:
                self.groups.coordinator.on_offsets_topic_created(partitions)
            elif name == TRANSACTIONS_TOPIC:
                self.transactions.coordinator.on_topic_created(partitions)
        self.groups.on_topics_changed(wanted.keys() - failed.keys(), created=True)
        return failed

    def auto_create(self, names: Iterable[str]) -> asyncio.Future[None] | None:
        """Create topics with the broker's defaults (the offsets topic with its own). A failure is logged.

        The future, if there is one, ends when they are there: many are made in slices.
        """
        wanted: dict[str, tuple[int, Mapping[str, str]]] = {}
        for name in names:
            if name == OFFSETS_TOPIC:
                self.groups.ensure_topic()
            elif name == TRANSACTIONS_TOPIC:
                self.transactions.ensure_topic()
            elif name not in self.logs.busy:
                wanted[name] = self.config["num.partitions"], {}

        def tell(failed: Mapping[str, Exception]) -> None:
            for name, error in failed.items():
                if not isinstance(error, KeyError):  # that is: somebody else has begun to create it meanwhile
                    log.error("topic %s could not be created: %s", name, error)

        return then(self.loop, self.topic_changes.create(wanted), tell) if wanted else None

    def add_partitions(self, topic: Topic, total: int) -> None:
        """Grow a topic to `total` partitions."""
        finish(self.adding_partitions(topic, total))

    def adding_partitions(self, topic: Topic, total: int) -> Steps[None]:
        """`add_partitions` in steps; the partitions are served after the last one."""
        yield from self.logs.adding_partitions(topic.name, total, now_ms=self.now_ms())
        self._add_partitions(topic)
        self.groups.on_topics_changed([topic.name])

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic with its records and its committed offsets. Raises OSError, and then it is there still."""
        finish(self.deleting_topics([topic]))

    def deleting_topics(self, topics: Sequence[Topic]) -> Steps[None]:
        """Delete topics in steps: once the registry is written they are gone for everybody, or OSError is raised."""
        steps = self.logs.deleting_topics([topic.name for topic in topics], now_ms=self.now_ms())
        try:
            yield next(steps)
        except OSError as e:
            steps.throw(e)  # it may have been written all the same
        else:
            next(steps)
        for topic in topics:
            self.topics.remove(topic)
            for partition in topic.partitions:
                partition.deleted = True
        try:
            yield from steps
        except OSError as e:
            log.error("deleted topics have left files, which go at the next start: %s", e)  # noqa: TRY400
        # An answer may let its connection go on with requests that wait in its buffer, which may create the topic
        # anew: nothing is answered before logs and topics agree.
        for topic in topics:
            self._note_deleted(topic)

    def _note_deleted(self, topic: Topic) -> None:
        """Tell everybody who deals with a topic that it is gone."""
        for partition in topic.partitions:
            self.waiting.gone(partition)
            self.commits.gone(partition)
        gone = [(topic.name, p.index) for p in topic.partitions]
        self.cleaner.on_partitions_deleted(gone)
        self.groups.on_partitions_deleted(gone)
        if topic.name == TRANSACTIONS_TOPIC:
            self.transactions.coordinator.on_topic_deleted()
        log.info("deleted topic %s", topic.name)

    def set_topic_overrides(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Replace a topic's own configuration. Raises ConfigError."""
        self.logs.alter_configs(topic.name, overrides)

    def apply_dynamic_config(self) -> None:
        """Take what is stored for all brokers and for this one. Raises ConfigError, and then nothing has changed."""
        stored = self.cluster_config
        config = self.config.with_dynamic(
            defaults=stored.get(ResourceType.BROKER, ""),
            own=stored.get(ResourceType.BROKER, str(self.node_id)),
        )
        self.logs.set_defaults(
            config.topic_defaults, producer_id_expiration_ms=config["producer.id.expiration.ms"]
        )
        self.config = config

    def check_dynamic_config(self, name: str, configs: Mapping[str, str]) -> None:
        """Whether the broker can run with these, for all brokers (`name` is empty) or for this one. Raises ConfigError."""
        config = self.config
        changed = config.with_dynamic(
            defaults=config.dynamic_defaults if name else configs, own=configs if name else config.dynamic
        )
        LogConfig.from_topic({}, changed.topic_defaults)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The configuration of a topic with these own properties. Raises ConfigError."""
        return LogConfig.from_topic(overrides, self.config.topic_defaults)

    def _serve_topic(self, name: str) -> Topic:
        topic = Topic(name=name, id=self.logs.topic_id(name), entry=self.logs.topics[name])
        self._add_partitions(topic)
        self.topics.add(topic)
        return topic

    def _add_partitions(self, topic: Topic) -> None:
        for index in range(len(topic.partitions), topic.entry.partitions):
            opened = self.logs.get(topic.name, index)
            assert opened is not None, "the registry has the partition, so its log is open"
            topic.partitions.append(Partition(topic, index, opened))

    # ---- records

    def append(
        self,
        partition: Partition,
        batches: bytearray | memoryview,
        *,
        now_ms: int,
        origin: Literal["client", "coordinator"] = "client",
        transaction_version: int | None = 0,
    ) -> AppendInfo:
        """Append and wake the fetches that wait for it. Raises LogError."""
        info = partition.log.append(
            batches, now_ms=now_ms, origin=origin, transaction_version=transaction_version
        )
        partition.topic.metrics.note_append(info.last_offset - info.first_offset + 1, len(batches))
        self.appended(partition, len(batches))
        return info

    def appended(self, partition: Partition, size: int) -> None:
        """`size` bytes have come to a partition's log: see that they are committed, and wake those who wait for them."""
        if partition.log.high_watermark < partition.log.log_end_offset:
            self.commits.appended(partition, size)
        elif partition.waiters:
            self.waiting.advanced(partition, size)

    def when_committed(
        self, partition: Partition, end_offset: int, callback: Callable[[ErrorCode], None]
    ) -> None:
        """Call `callback` once everything below `end_offset` is committed: the high watermark is there or beyond.

        At once where that holds already. The callback gets NONE, or why it will never be: KAFKA_STORAGE_ERROR.
        """
        if partition.log.high_watermark >= end_offset:
            callback(ErrorCode.NONE)
            return
        self.commits.wait(partition, end_offset, callback)
