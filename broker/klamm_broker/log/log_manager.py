"""All partition logs of one log directory: found and opened at start, created, deleted, flushed, closed.

Owns the directory (its lock, identity, checkpoints, topic registry). Starts no thread: the server calls the
`tick_…` methods. Not thread-safe.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from klamm_base.errors import KlammError
from klamm_broker.log import checkpoints, log_dir
from klamm_broker.log.adoption import reconcile
from klamm_broker.log.checkpoints import TopicPartition
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import CorruptFile, DirectoryError, LogError
from klamm_broker.log.files import (
    SEGMENT_FILES,
    delete_dir_name,
    is_delete_dir,
    parse_partition_dir,
    segment_files_max,
    sync_directory,
)
from klamm_broker.log.log_dir import DirectoryLock, MetaProperties, new_uuid, uuid_to_bytes
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.partition_metadata import write_topic_id
from klamm_broker.log.topic_registry import FILE_NAME, Topic, TopicRegistry

log = logging.getLogger(__name__)

KRAFT_TOPIC: Final = "__cluster_metadata"  # Kafka's own metadata log: left alone


class LogManager:
    """Opened with its constructor, which may take as long as recovery takes; closed with `close`."""

    def __init__(
        self,
        directory: Path,
        defaults: Mapping[str, str] | None = None,
        *,
        now_ms: int,
        node_id: int = 1,
        cluster_id: str | None = None,
        producer_id_expiration_ms: int = 86_400_000,
    ) -> None:
        self.directory = directory
        self.defaults = dict(defaults or {})
        self._expiration_ms = producer_id_expiration_ms
        LogConfig.from_topic({}, self.defaults)  # bad defaults show at start, not at the first topic
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._doomed: list[tuple[int, Path]] = []  # (when to remove it, deleted partition's directory)
        self._checkpoint_files = checkpoints.CheckpointFiles(directory)
        self._checkpoints_stale = False  # they speak of deleted partitions: no namesake may inherit that
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise DirectoryError(f"log directory {directory} cannot be made: {e}") from e
        SEGMENT_FILES.capacity = segment_files_max()
        self._lock = DirectoryLock(directory)
        try:
            self.meta: MetaProperties = log_dir.claim(directory, node_id=node_id, cluster_id=cluster_id)
            self._registry = TopicRegistry.load(directory / FILE_NAME)
            self._registry.starts += 1
            self._open_all(now_ms)
        except BaseException:
            for partition_log in self._logs.values():
                partition_log.release()
            self._lock.release()
            raise

    # Topics

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._registry.topics

    @property
    def cluster_id(self) -> str:
        return self.meta.cluster_id

    def topic_id(self, name: str) -> bytes:
        """A topic's id as 16 bytes. Raises KeyError."""
        return uuid_to_bytes(self._registry.topics[name].id)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(self._logs.values())

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None, *, now_ms: int
    ) -> Topic:
        """Make a topic with its partitions. Raises ConfigError, DirectoryError, KeyError if it exists."""
        failed = self.create_topics({name: (partitions, configs or {})}, now_ms=now_ms)
        if name in failed:
            raise failed[name]
        return self._registry.topics[name]

    def create_topics(
        self, wanted: Mapping[str, tuple[int, Mapping[str, str]]], *, now_ms: int
    ) -> dict[str, Exception]:
        """Make several topics (partitions, configuration) with one change of the registry, which is written whole.

        What went wrong, by name, as `create_topic` raises it; the other topics are there.
        """
        failed: dict[str, Exception] = {}
        made: list[tuple[Topic, LogConfig]] = []
        for name, (partitions, configs) in wanted.items():
            try:
                made.append(self._prepare(name, partitions, configs))
            except (KlammError, KeyError, OSError) as e:
                failed[name] = e
        try:
            if made:
                self._registry.put(*(topic for topic, _ in made))
        except OSError as e:
            return failed | {topic.name: e for topic, _ in made}
        for topic, config in made:
            try:
                for partition in range(topic.partitions):
                    self._open(topic, partition, config, now_ms=now_ms)
            except (LogError, OSError) as e:
                failed[topic.name] = e
        try:
            sync_directory(self.directory)
        except OSError as e:
            failed |= {topic.name: e for topic, _ in made if topic.name not in failed}
        for topic, _ in made:
            if topic.name in failed:
                self._close_partitions(topic, range(topic.partitions))
                self._registry.take_back(topic.name)
        return failed

    def _prepare(self, name: str, partitions: int, configs: Mapping[str, str]) -> tuple[Topic, LogConfig]:
        """A topic that is to be put into the registry, with its directories."""
        if name in self._registry.topics:
            raise KeyError(name)
        if self._checkpoints_stale:
            self._write_checkpoints()
        first_start = self._registry.starts
        topic = Topic(
            name=name, id=new_uuid(), partitions=partitions, configs=dict(configs), first_start=first_start
        )
        config = self._config(topic.configs)
        for partition in range(partitions):
            self._make_directory(topic, partition)
        return topic, config

    def add_partitions(self, name: str, partitions: int, *, now_ms: int) -> None:
        """Grow a topic to `partitions`. Raises KeyError, ValueError if it has as many already."""
        topic = self._registry.topics[name]
        have = topic.partitions
        if partitions <= have:
            raise ValueError(f"topic {name} has {have} partitions; {partitions} is not more")
        for partition in range(have, partitions):
            self._make_directory(topic, partition)
        self._registry.change(topic, partitions=partitions)
        try:
            self._open_partitions(topic, range(have, partitions), self._config(topic.configs), now_ms)
        except (LogError, OSError):
            self._close_partitions(topic, range(have, partitions))
            self._registry.take_back(name, partitions=have)
            raise

    def delete_topic(self, name: str, *, now_ms: int) -> None:
        """Delete a topic: at once for everybody, on disk after file.delete.delay.ms. Raises KeyError."""
        topic = self._registry.remove(name)
        self._checkpoints_stale = True
        for partition in range(topic.partitions):
            partition_log = self._logs.pop((name, partition), None)
            if partition_log is not None:
                partition_log.release()
                self._doom(partition_log, now_ms)
        self._write_checkpoints()

    def alter_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's own configuration. Raises KeyError, ConfigError."""
        topic = self._registry.topics[name]
        config = self._config(configs)
        self._registry.change(topic, configs=configs)
        for partition in range(topic.partitions):
            partition_log = self._logs.get((name, partition))
            if partition_log is not None:
                partition_log.config = config

    def _config(self, overrides: Mapping[str, str]) -> LogConfig:
        return LogConfig.from_topic(overrides, self.defaults, producer_id_expiration_ms=self._expiration_ms)

    # Directories

    def _make_directory(self, topic: Topic, partition: int) -> None:
        path = self.directory / f"{topic.name}-{partition}"
        if path.exists():  # of a creation that a crash cut off: the registry never had this topic
            self._remove_tree(path)
        path.mkdir()
        write_topic_id(path, topic.id)

    def _doom(self, partition_log: PartitionLog, now_ms: int) -> None:
        name = delete_dir_name(partition_log.topic, partition_log.partition, uuid.uuid4().hex)
        target = partition_log.directory.rename(self.directory / name)
        self._doomed.append((now_ms + partition_log.config.file_delete_delay_ms, target))

    @staticmethod
    def _remove_tree(path: Path) -> None:
        shutil.rmtree(path)
        log.info("%s: removed", path)

    # Start

    def _open_all(self, now_ms: int) -> None:
        clean = log_dir.take_clean_shutdown(self.directory)
        recovery_points = self._read_checkpoint(checkpoints.RECOVERY_POINT)
        log_starts = self._read_checkpoint(checkpoints.LOG_START_OFFSET)
        found = self._find_partitions()
        reconcile(self._registry, self.directory, found)
        self._registry.deleted.clear()
        self._registry.save()
        for topic in self._registry.topics.values():
            config = self._config(topic.configs)
            for partition in range(topic.partitions):
                if (topic.name, partition) not in found:
                    log.error(
                        "%s-%d: its directory is missing from %s; the partition starts empty",
                        topic.name,
                        partition,
                        self.directory,
                    )
                    self._make_directory(topic, partition)
                self._open(
                    topic,
                    partition,
                    config,
                    now_ms=now_ms,
                    clean=clean,
                    recovery_point=recovery_points.get((topic.name, partition), 0),
                    log_start_offset=log_starts.get((topic.name, partition), 0),
                )
        self._checkpoints_stale = not (recovery_points.keys() | log_starts.keys()) <= self._logs.keys()

    def _open_partitions(self, topic: Topic, partitions: range, config: LogConfig, now_ms: int) -> None:
        for partition in partitions:
            self._open(topic, partition, config, now_ms=now_ms)
        sync_directory(self.directory)

    def _close_partitions(self, topic: Topic, partitions: range) -> None:
        for partition in partitions:
            partition_log = self._logs.pop((topic.name, partition), None)
            if partition_log is not None:
                partition_log.release()

    def _open(
        self,
        topic: Topic,
        partition: int,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
    ) -> None:
        self._logs[topic.name, partition] = PartitionLog.open(
            self.directory / f"{topic.name}-{partition}",
            topic.name,
            partition,
            config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            leader_epoch=self._registry.starts - topic.first_start,
            now_ms=now_ms,
        )

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoints.read_offsets(self.directory / name)
        except CorruptFile as e:
            log.warning("%s: ignored, every log is checked from its start", e)
            return {}

    def _find_partitions(self) -> dict[TopicPartition, Path]:
        """The partition directories by what their names say; those that were being deleted are removed."""
        found: dict[TopicPartition, Path] = {}
        for path in sorted(self.directory.iterdir()):
            if not path.is_dir():
                continue
            if is_delete_dir(path.name):
                self._remove_tree(path)
                continue
            parsed = parse_partition_dir(path.name)
            if parsed is not None and parsed[0] != KRAFT_TOPIC:
                found[parsed] = path
        return found

    # Ticks and end

    def tick_checkpoints(self) -> None:
        """Write the checkpoints (Kafka: every minute)."""
        self._write_checkpoints()

    def wanting_flush(self, now_ms: int) -> list[PartitionLog]:
        """The logs to flush now: by flush.messages and flush.ms, or because a segment was finished.

        `fsync` may take long: use `begin_flush`, run the job in a thread, then `end_flush`.
        """
        return [partition_log for partition_log in self._logs.values() if partition_log.wants_flush(now_ms)]

    def tick_flush(self, now_ms: int) -> int:
        """Flush `wanting_flush` here and now; how many logs."""
        wanting = self.wanting_flush(now_ms)
        for partition_log in wanting:
            partition_log.flush(now_ms)
        return len(wanting)

    def tick_retention(self, now_ms: int) -> int:
        """Apply retention, expire producers, remove files that were deleted a while ago (Kafka: every 5 min).

        Returns how many segments were deleted.
        """
        count = self.apply_retention(now_ms)
        self.removal_job(now_ms)()
        return count

    def removal_job(self, now_ms: int) -> Callable[[], None]:
        """Removes directories of topics that were deleted a while ago; to be called once, in a thread.

        Nobody else touches them while the directory is locked: wait for the job before `close`. What cannot be removed
        is logged, and goes at the next start.
        """
        due = [path for when, path in self._doomed if when <= now_ms]
        self._doomed = [(when, path) for when, path in self._doomed if when > now_ms]

        def remove() -> None:
            for path in due:
                try:
                    self._remove_tree(path)
                except OSError:
                    log.exception("%s: could not be removed; it goes at the next start", path)

        return remove

    def apply_retention(self, now_ms: int) -> int:
        """`tick_retention` without the directories of deleted topics, which `removal_job` removes."""
        count = 0
        for partition_log in self._logs.values():
            try:
                count += partition_log.delete_old_segments(now_ms)
                partition_log.remove_deleted(now_ms)
                partition_log.expire_producers(now_ms)
            except (LogError, OSError):  # one partition's trouble is not the others'
                log.exception("%s: retention failed; it will be tried again", partition_log.name)
        return count

    def checkpoint_job(self) -> Callable[[], None]:
        """What `tick_checkpoints` would write now; to be called once, in a thread. It raises OSError.

        Whatever is written here meanwhile stays; wait for the job before `close`.
        """
        logs = self._logs.items()
        recovery = {key: partition_log.recovery_point for key, partition_log in logs}
        starts = {
            key: partition_log.log_start_offset
            for key, partition_log in logs
            if partition_log.log_start_offset > partition_log.segment_base_offsets[0]
        }
        watermarks = {key: partition_log.high_watermark for key, partition_log in logs}
        return self._checkpoint_files.take(
            {
                checkpoints.RECOVERY_POINT: recovery,
                checkpoints.LOG_START_OFFSET: starts,
                checkpoints.HIGH_WATERMARK: watermarks,
            }
        )

    def _write_checkpoints(self) -> None:
        self.checkpoint_job()()
        self._checkpoints_stale = False

    def close(self) -> None:
        """Flush and close everything, and say so: the next start will not check the logs.

        If a log cannot be flushed that is not said, and the next start checks them.
        """
        clean = True
        try:
            for partition_log in self._logs.values():
                try:
                    partition_log.close()
                except (LogError, OSError):
                    log.exception("%s: could not be closed; the next start will check it", partition_log.name)
                    partition_log.release()
                    clean = False
            self._write_checkpoints()
            if clean:
                log_dir.write_clean_shutdown(self.directory, self._registry.starts)
        finally:
            self._lock.release()
