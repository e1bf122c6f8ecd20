"""The open partition logs: found in the log directories at start, flushed, kept in order, closed.

It owns the directories (`data_directory`) and the topic registry, which lives in the first of them. It starts no thread:
the server calls the periodic work. Not thread-safe. `LogManager` adds changes of topics and places.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from klamm_base.files import make_private_folder, sync_directory
from klamm_broker.log import log_dir
from klamm_broker.log.adoption import reconcile
from klamm_broker.log.checkpoint_job import checkpoint_job
from klamm_broker.log.checkpoints import TopicPartition
from klamm_broker.log.config import LogConfig
from klamm_broker.log.data_directory import DataDirectory, open_all, remove_tree, unique
from klamm_broker.log.disk_failure import Report, ignore, is_full
from klamm_broker.log.errors import LogError, StorageError, UnusableDirectory
from klamm_broker.log.files import SEGMENT_FILES, delete_dir_name, segment_files_max
from klamm_broker.log.log_dir import MetaProperties, uuid_to_bytes
from klamm_broker.log.offline_log import OfflineLog
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.partition_metadata import write_topic_id
from klamm_broker.log.placement import Placement, merge
from klamm_broker.log.replica_move import ReplicaMove
from klamm_broker.log.steps import Steps, finish
from klamm_broker.log.topic_registry import FILE_NAME, Topic, TopicRegistry

log = logging.getLogger(__name__)

SAVE_PAUSE_MS: Final = 200
"""The shortest pause between two attempts to save the registry on a full disk: it may be large, and producers many."""


class OpenLogs:
    """All open logs. The constructor opens them, which may take as long as recovery takes; `close` closes them.

    With `commit_by_flush` the high watermark of every log waits for an fsync (`PartitionLog.sole_replica`).
    """

    def __init__(
        self,
        directories: Path | Sequence[Path],
        defaults: Mapping[str, str] | None = None,
        *,
        now_ms: int,
        node_id: int = 1,
        cluster_id: str | None = None,
        producer_id_expiration_ms: int = 86_400_000,
        commit_by_flush: bool = False,
    ) -> None:
        paths = [directories] if isinstance(directories, Path) else list(directories)
        paths = [
            path.absolute() for path in paths
        ]  # as DescribeLogDirs tells and AlterReplicaLogDirs names them
        self.directory = paths[0]  # holds the topic registry and the other files that exist once
        self.defaults = dict(defaults or {})
        self._expiration_ms = producer_id_expiration_ms
        self._commit_by_flush = commit_by_flush
        LogConfig.from_topic({}, self.defaults)  # bad defaults show at start, not at the first topic
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._offline: dict[TopicPartition, OfflineLog] = {}
        self.report: Report = ignore  # set by the server, to be told of errors of the disk
        self.busy: set[str] = set()  # names of topics that are being made or deleted, in steps
        self.moves: dict[TopicPartition, ReplicaMove] = {}
        self.unfinished_moves: dict[TopicPartition, Path] = {}  # moves of the last run, which are begun again
        SEGMENT_FILES.capacity = segment_files_max()
        self.directories, self.unusable = open_all(paths, node_id=node_id, cluster_id=cluster_id)
        for why in self.unusable.values():
            log.error("%s. Its partitions are offline until it works and the broker is started again", why)
        self._placement = Placement(self.directories)
        try:
            self.meta: MetaProperties = self.directories[0].meta
            self._registry = TopicRegistry.load(self.directory / FILE_NAME)
            self._registry.starts += 1
            self._save_failed_ms = 0
            self._open_all(now_ms)
        except BaseException:
            self.release()
            raise

    # Facts

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._registry.topics

    @property
    def cluster_id(self) -> str:
        return self.meta.cluster_id

    @property
    def starts(self) -> int:
        """The number of times that the directory has been opened, this time included."""
        return self._registry.starts

    def topic_id(self, name: str) -> bytes:
        """Returns a topic's id as 16 bytes. Raises KeyError."""
        return uuid_to_bytes(self._registry.topics[name].id)

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Returns a partition's log; an `OfflineLog` if its directory cannot be used; None if there is no such partition."""
        return self._logs.get((topic, partition)) or self._offline.get((topic, partition))

    def __iter__(self) -> Iterator[PartitionLog]:
        """Yields the logs that can be used."""
        return iter(self._logs.values())

    def directory_of(self, partition_log: PartitionLog) -> DataDirectory:
        """Returns the log directory of a log."""
        return self._placement.at(partition_log.directory.parent)

    def _config(self, overrides: Mapping[str, str], *, of: str | None = None) -> LogConfig:
        """Returns the configuration that these make with the defaults. `of` is a topic that exists. Raises ConfigError."""
        make = LogConfig.from_topic if of is None else partial(LogConfig.of_existing, of)
        return make(overrides, self.defaults, producer_id_expiration_ms=self._expiration_ms)

    # Directories

    def _make_directory(self, topic: Topic, partition: int) -> None:
        """Make a new partition's directory, in the log directory with the fewest partitions."""
        path = self._placement.next(topic.name, partition)
        if path.exists():  # left by a creation that a crash cut off: the registry never had this topic
            remove_tree(path)
        make_private_folder(path)
        write_topic_id(path, topic.id)

    def _doom(self, partition_log: PartitionLog, now_ms: int) -> None:
        name = delete_dir_name(partition_log.topic, partition_log.partition, unique())
        directory = self.directory_of(partition_log)
        directory.doom(partition_log.directory, name, now_ms + partition_log.config.file_delete_delay_ms)

    def _sync_directories(self) -> None:
        for directory in self.directories:
            sync_directory(directory.path)

    # Start

    def _open_all(self, now_ms: int) -> None:
        found = self._find_partitions()
        places = merge(found, self._registry)
        if not self.unusable:
            self._registry.deleted.clear()
        self._save_start(now_ms)
        self._placement.count_places(places)
        for topic in self._registry.topics.values():
            config = self._config(topic.configs, of=topic.name)
            for partition in range(topic.partitions):
                self._open_found(topic, partition, config, places, now_ms)
        for directory in self.directories:
            old = directory.recovery_points.keys() | directory.log_starts.keys()
            directory.checkpoints_stale = not old <= self._logs.keys() | directory.unopened
            directory.forget_state()

    def _save_start(self, now_ms: int) -> None:
        """Count this start on the disk. If the disk is full, that is logged, and `_confirm_start` does it later."""
        try:
            self._registry.save()
        except OSError as e:
            if not is_full(e):
                raise UnusableDirectory(f"{self.directory / FILE_NAME} cannot be written: {e}") from e
            self._save_failed_ms = now_ms
            log.error("%s. What is there can be read; nothing is written until there is room", e)  # noqa: TRY400

    def _confirm_start(self, now_ms: int) -> None:
        """Make sure that the disk knows of this start before a log begins the leader epoch that follows from it.

        Otherwise the next start would use the epoch again, for other records. Raises StorageError.
        """
        if self._registry.saved:
            return
        path = self.directory / FILE_NAME
        if 0 <= now_ms - self._save_failed_ms < SAVE_PAUSE_MS:
            raise StorageError(f"{path} could not be written a moment ago")
        try:
            self._registry.save()
        except OSError as e:
            self._save_failed_ms = now_ms
            self.report(self.directory, e)
            raise StorageError(
                f"{path} cannot be written: {e}"
            ) from None  # no cause: the error belongs to another directory
        log.warning("%s: written, there is room again", path)

    def _find_partitions(self) -> dict[DataDirectory, dict[TopicPartition, Path]]:
        """Returns the partitions in each directory. A directory that cannot be read is unusable from here on."""
        found: dict[DataDirectory, dict[TopicPartition, Path]] = {}
        adopted: set[str] = set()
        for directory in list(self.directories):
            try:
                directory.read_state()
                partitions, moving = directory.find_partitions()
                reconcile(self._registry, directory.path, partitions, adopted)
            except OSError as e:
                self._give_up(directory, e)
                continue
            found[directory] = partitions
            self.unfinished_moves |= dict.fromkeys(moving, directory.path)
        return found

    def _give_up(self, directory: DataDirectory, error: OSError) -> None:
        why = f"log directory {directory.path} cannot be used: {error}"
        if directory is self.directories[0]:
            raise UnusableDirectory(why) from error
        log.error("%s. Its partitions are offline until it works and the broker is started again", why)
        self.unusable[directory.path] = why
        self.directories.remove(directory)
        self._placement = Placement(self.directories)
        directory.release()

    def _open_found(
        self,
        topic: Topic,
        partition: int,
        config: LogConfig,
        places: dict[TopicPartition, DataDirectory],
        now_ms: int,
    ) -> None:
        key = (topic.name, partition)
        directory = places.get(key)
        if directory is None and self.unusable:
            why = "; ".join(self.unusable.values())
            self._offline[key] = OfflineLog(*key, config, self._epoch(topic), why)
            return
        if directory is None:
            log.error(
                "%s-%d: its directory is missing from %s; the partition starts empty",
                *key,
                ", ".join(str(d.path) for d in self.directories),
            )
            try:
                self._make_directory(topic, partition)
                # if the lost one comes back there are two, and the user has to choose
                if partition in topic.places:
                    finish(self._registry.moving(topic, partition, None))
                self._open(topic, partition, config, now_ms=now_ms)
            except (OSError, StorageError) as e:
                self._stays_offline(topic, partition, config, e)
            return
        self._placement.put(key, directory)
        try:
            self._open(
                topic,
                partition,
                config,
                now_ms=now_ms,
                clean=directory.clean,
                recovery_point=directory.recovery_points.get(key, 0),
                log_start_offset=directory.log_starts.get(key, 0),
            )
        except (OSError, StorageError) as e:
            self._stays_offline(topic, partition, config, e)
            directory.unopened.add(key)

    def _stays_offline(self, topic: Topic, partition: int, config: LogConfig, error: Exception) -> None:
        log.error(
            "%s-%d cannot be opened, it is offline until the next start: %s", topic.name, partition, error
        )
        self._offline[topic.name, partition] = OfflineLog(
            topic.name, partition, config, self._epoch(topic), str(error)
        )

    def _close_partitions(self, topic: Topic, partitions: range) -> None:
        for partition in partitions:
            partition_log = self._logs.pop((topic.name, partition), None)
            if partition_log is not None:
                partition_log.release()

    def _epoch(self, topic: Topic) -> int:
        return self._registry.starts - topic.first_start

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
        opened = PartitionLog.open(
            self._placement.take(topic.name, partition),
            topic.name,
            partition,
            config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            leader_epoch=self._epoch(topic),
            now_ms=now_ms,
        )
        opened.report = self._report
        opened.before_epoch = self._confirm_start
        if topic.promotion_epoch >= 0:
            opened.promotion_epoch = topic.promotion_epoch
            opened.end_promotion(partial(opened.append, now_ms=now_ms, origin="coordinator"), now_ms)
        if self._commit_by_flush:
            try:
                opened.flush(now_ms)  # nobody may read records that a power cut could still take back
            except StorageError as e:
                if not is_full(e):
                    raise
            opened.sole_replica = False
        self._logs[topic.name, partition] = opened

    def _report(self, directory: Path, error: OSError) -> None:
        self.report(directory, error)

    def fail_directory(self, path: Path, error: OSError) -> list[OfflineLog]:
        """Take a log directory and all its partitions offline until the next start. Returns the partitions' stand-ins.

        Do not call it for the first directory: nothing works without it.
        """
        failed = next((directory for directory in self.directories if directory.path == path), None)
        if failed is None:
            return []
        assert failed is not self.directories[0], "the first directory has the topic registry"
        why = f"log directory {path} has failed: {error}"
        self.unusable[path] = why
        self.directories.remove(failed)
        self._placement.drop(path)
        for key, move in list(self.moves.items()):
            if move.target is failed or move.log.directory.parent == path:
                del self.moves[key]
                move.cancel()
        gone = []
        for key, partition_log in list(self._logs.items()):
            if partition_log.directory.parent == path:
                del self._logs[key]
                partition_log.take_offline(error)
                offline = OfflineLog(*key, partition_log.config, partition_log.leader_epoch, why)
                self._offline[key] = offline
                gone.append(offline)
        failed.release()
        return gone

    # Ticks and end

    def tick_checkpoints(self) -> None:
        """Write the checkpoints (Kafka: every minute)."""
        self._write_checkpoints()

    def wanting_flush(self, now_ms: int) -> list[PartitionLog]:
        """Returns the logs to flush now: by flush.messages and flush.ms, or because a segment was finished.

        `fsync` may take long: use `begin_flush`, run the job in a thread, then `end_flush`.
        """
        return [partition_log for partition_log in self._logs.values() if partition_log.wants_flush(now_ms)]

    def tick_flush(self, now_ms: int) -> int:
        """Flush `wanting_flush` here and now. Returns the number of logs."""
        wanting = self.wanting_flush(now_ms)
        for partition_log in wanting:
            partition_log.flush(now_ms)
        return len(wanting)

    def tick_retention(self, now_ms: int) -> int:
        """Apply retention, expire producers, remove files that were deleted a while ago (Kafka: every 5 min).

        Returns the number of deleted segments.
        """
        count = self.apply_retention(now_ms)
        self.removal_job(now_ms)()
        return count

    def removal_job(self, now_ms: int) -> Callable[[], None]:
        """Returns a job that removes directories of topics that were deleted a while ago; call it once, in a thread.

        Nobody else touches them while the directory is locked: wait for the job before `close`. A directory that cannot be
        removed is logged, and goes at the next start.
        """
        due: list[Path] = []
        for directory in self.directories:
            due += [path for when, path in directory.doomed if when <= now_ms]
            directory.doomed = [(when, path) for when, path in directory.doomed if when > now_ms]

        def remove() -> None:
            for path in due:
                try:
                    remove_tree(path)
                except OSError as e:
                    log.error("%s: could not be removed; it goes at the next start: %s", path, e)  # noqa: TRY400

        return remove

    def apply_retention(self, now_ms: int) -> int:
        """Do `tick_retention` without the directories of deleted topics, which `removal_job` removes."""
        count = 0
        for partition_log in self._logs.values():
            try:
                count += partition_log.delete_old_segments(now_ms)
                partition_log.remove_deleted(now_ms)
            except (LogError, OSError) as e:  # an error in one partition must not stop the others
                log.error("%s: retention failed; it will be tried again: %s", partition_log.name, e)  # noqa: TRY400
                if isinstance(e, OSError):
                    self.report(partition_log.directory.parent, e)
        return count

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that wrote nothing for producer.id.expiration.ms, in all partitions. Returns how many."""
        return sum(partition_log.expire_producers(now_ms) for partition_log in self._logs.values())

    def checkpoint_job(self) -> Callable[[], None]:
        """Returns a job that writes what `tick_checkpoints` would write now; call it once, in a thread. It raises OSError.

        Checkpoints that are written here meanwhile stay; wait for the job before `close`.
        """
        return self._checkpoint_job()

    def _checkpoint_job(self) -> Callable[[], None]:
        by_directory: dict[Path, dict[TopicPartition, PartitionLog]] = {d.path: {} for d in self.directories}
        for key, partition_log in self._logs.items():
            by_directory[partition_log.directory.parent][key] = partition_log
        for key, move in self.moves.items():
            if move.coming:
                by_directory[move.target.path][key] = move.log
        return partial(
            self._do_all,
            [
                (directory.path, checkpoint_job(directory, by_directory[directory.path]))
                for directory in self.directories
            ],
        )

    def _do_all(self, jobs: Sequence[tuple[Path, Callable[[], None]]]) -> None:
        """Do each directory's job, even if one before it failed; then raise the first error."""
        failed: list[OSError] = []
        for path, job in jobs:
            try:
                job()
            except OSError as e:
                self.report(path, e)
                failed.append(e)
        if failed:
            raise failed[0]

    def _write_checkpoints(self) -> None:
        self._checkpoint_job()()
        for directory in self.directories:
            directory.checkpoints_stale = False

    def writing_checkpoints(self) -> Steps[None]:
        """Write the checkpoints, in a job. Raises OSError."""
        forgotten = [(directory, directory.forgotten) for directory in self.directories]
        yield self._checkpoint_job()
        for directory, count in forgotten:
            if directory.forgotten == count:
                directory.checkpoints_stale = False

    def release(self) -> None:
        """Release everything without writing a byte, as a killed process does."""
        for partition_log in self._logs.values():
            partition_log.release()
        for directory in self.directories:
            directory.release()

    def close(self) -> None:
        """Flush and close everything, and write the clean-shutdown markers: the next start will not check the logs.

        A directory with a log that cannot be flushed gets no marker, and the next start checks its logs. A full disk is no error:
        it is logged in a sentence.
        """
        dirty = {directory.path for directory in self.directories if directory.unopened}
        full: list[Exception] = []
        try:
            for partition_log in self._logs.values():
                try:
                    partition_log.close()
                except (LogError, OSError) as e:
                    if is_full(e):
                        full.append(e)
                    else:
                        log.error("%s: could not be closed: %s", partition_log.name, e)  # noqa: TRY400
                    partition_log.release()
                    dirty.add(partition_log.directory.parent)
            try:
                self._write_last(dirty)
            except OSError as e:
                if not is_full(e):
                    raise
                full.append(e)
        finally:
            for directory in self.directories:
                directory.release()
        if full:
            log.error("not everything could be written: the next start checks the logs: %s", full[0])

    def _write_last(self, dirty: Collection[Path]) -> None:
        """Write the checkpoints, and the marker of each directory that is not `dirty`. Raises OSError."""
        self._write_checkpoints()
        for directory in self.directories:
            if directory.path not in dirty:
                log_dir.write_clean_shutdown(directory.path, self._registry.starts)
