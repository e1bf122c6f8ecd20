"""Topics and their partition logs: created, grown, deleted, configured, moved from one log directory to another.

`OpenLogs` opens, flushes and closes the logs. Not thread-safe.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from klamm_base.errors import ConfigError, KlammError
from klamm_base.files import sync_directory
from klamm_broker.log.config import LogConfig
from klamm_broker.log.data_directory import DataDirectory, unique
from klamm_broker.log.errors import StorageError, UnknownDirectory
from klamm_broker.log.files import delete_dir_name
from klamm_broker.log.log_dir import new_uuid
from klamm_broker.log.open_logs import OpenLogs
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.replica_move import ReplicaMove
from klamm_broker.log.steps import Steps, finish
from klamm_broker.log.topic_registry import Topic

log = logging.getLogger(__name__)


class LogManager(OpenLogs):
    """Changes topics and places of logs; `OpenLogs` opens and closes them."""

    # Topics

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

        Returns the errors by name, as `create_topic` raises them; the other topics exist.
        """
        return finish(self.creating_topics(wanted, now_ms=now_ms))

    def creating_topics(
        self, wanted: Mapping[str, tuple[int, Mapping[str, str]]], *, now_ms: int
    ) -> Steps[dict[str, Exception]]:
        """Do `create_topics` in steps of a partition each: thousands of them take seconds, which nobody should wait for.

        The names are reserved from the first step to the last; the registry has the topics from the middle on.
        """
        failed: dict[str, Exception] = {}
        made: list[Topic] = []
        self._placement.count(self)
        try:
            for name, (partitions, configs) in wanted.items():
                try:
                    made.append((yield from self._prepare(name, partitions, configs)))
                except (KlammError, KeyError, OSError) as e:
                    failed[name] = e.with_traceback(None)  # which holds this frame, a cycle with `failed`
            try:
                if made:
                    yield from self._registry.putting(*made)
            except OSError as e:
                return failed | {topic.name: e for topic in made}
            for topic in made:
                try:
                    config = self._config(topic.configs, of=topic.name)
                    for partition in range(topic.partitions):
                        self._open(topic, partition, config, now_ms=now_ms)
                        yield None
                except (KlammError, OSError) as e:
                    failed[topic.name] = e.with_traceback(None)
            try:
                yield self._sync_directories
            except OSError as e:
                failed |= {topic.name: e for topic in made if topic.name not in failed}
            for topic in made:
                if topic.name in failed:
                    self._close_partitions(topic, range(topic.partitions))
                    self._registry.take_back(topic.name)
        finally:
            self.busy.difference_update(topic.name for topic in made)
        return failed

    def _prepare(self, name: str, partitions: int, configs: Mapping[str, str]) -> Steps[Topic]:
        """Returns a topic for the registry, with its directories. Its name is reserved when this ends."""
        if name in self._registry.topics or name in self.busy:
            raise KeyError(name)
        self._config(configs)  # checks them
        if any(directory.checkpoints_stale for directory in self.directories):
            yield from self.writing_checkpoints()
        if name in self._registry.topics or name in self.busy:
            raise KeyError(name)
        first_start = self._registry.starts
        topic = Topic(
            name=name, id=new_uuid(), partitions=partitions, configs=dict(configs), first_start=first_start
        )
        self.busy.add(name)
        try:
            for partition in range(partitions):
                self._make_directory(topic, partition)
                yield None
        except BaseException:
            self.busy.discard(name)
            raise
        return topic

    def add_partitions(self, name: str, partitions: int, *, now_ms: int) -> None:
        """Grow a topic to `partitions`. Raises KeyError, ValueError if it has as many already."""
        failed = finish(self.growing_topics({name: partitions}, now_ms=now_ms))
        if name in failed:
            raise failed[name]

    def growing_topics(self, wanted: Mapping[str, int], *, now_ms: int) -> Steps[dict[str, Exception]]:
        """Grow topics with one change of the registry, in steps of a partition each. Returns the errors by name.

        The names are reserved from the first step to the last. Raises KeyError, ValueError before the first step.
        """
        topics = {name: self._registry.topics[name] for name in wanted}
        have = {name: topic.partitions for name, topic in topics.items()}
        for name, partitions in wanted.items():
            if partitions <= have[name]:
                raise ValueError(f"topic {name} has {have[name]} partitions; {partitions} is not more")
            if name in self.busy:
                raise KeyError(name)
        failed: dict[str, Exception] = {}
        self._placement.count(self)
        self.busy.update(wanted)
        try:
            for name, topic in topics.items():
                try:
                    for partition in range(have[name], wanted[name]):
                        self._make_directory(topic, partition)
                        yield None
                except (KlammError, OSError) as e:
                    failed[name] = e.with_traceback(None)
            ready = {name: wanted[name] for name in topics if name not in failed}
            try:
                if ready:
                    yield from self._registry.growing(ready)
            except OSError as e:
                return failed | dict.fromkeys(ready, e)
            yield from self._opening(topics, have, ready, failed, now_ms)
            for name in [name for name in ready if name in failed]:
                self._close_partitions(topics[name], range(have[name], ready[name]))
                self._registry.take_back(name, partitions=have[name])
        finally:
            self.busy.difference_update(wanted)
        return failed

    def _opening(
        self,
        topics: Mapping[str, Topic],
        have: Mapping[str, int],
        ready: Mapping[str, int],
        failed: dict[str, Exception],
        now_ms: int,
    ) -> Steps[None]:
        """Open the partitions that topics have got; errors come into `failed`."""
        for name, partitions in ready.items():
            try:
                for partition in range(have[name], partitions):
                    # Its configuration may change between two steps
                    config = self._config(topics[name].configs, of=name)
                    self._open(topics[name], partition, config, now_ms=now_ms)
                    yield None
            except (KlammError, OSError) as e:
                failed[name] = e.with_traceback(None)
        try:
            yield self._sync_directories
        except OSError as e:
            for name in ready:
                failed.setdefault(name, e)

    def delete_topic(self, name: str, *, now_ms: int) -> None:
        """Delete a topic: at once for everybody, on disk after file.delete.delay.ms. Raises KeyError, OSError."""
        finish(self.deleting_topics([name], now_ms=now_ms))

    def deleting_topics(self, names: Sequence[str], *, now_ms: int) -> Steps[None]:
        """Delete topics: with one change of the registry, and in steps of a partition each after it.

        Raises KeyError and OSError. As long as the registry has the topics, nothing is deleted; after that, files may be left
        until the next start. The names are reserved until the last step.
        """
        self.busy.update(names)
        try:
            topics = yield from self._registry.removing(*names)
            yield None
            trouble: OSError | None = None
            for topic in topics:
                for partition in range(topic.partitions):
                    try:
                        self._forget(topic.name, partition, now_ms)
                    except OSError as e:
                        trouble = e
                    yield None
            yield from self.writing_checkpoints()
            if trouble is not None:
                raise trouble
        finally:
            self.busy.difference_update(names)

    def _forget(self, name: str, partition: int, now_ms: int) -> None:
        """Close a deleted partition's log; its directory goes later."""
        self.cancel_move(name, partition)
        self._offline.pop((name, partition), None)  # its files go when the directory is back
        for directory in self.directories:
            directory.forget((name, partition))
        partition_log = self._logs.pop((name, partition), None)
        if partition_log is not None:
            partition_log.release()
            directory = self.directory_of(partition_log)
            directory.checkpoints_stale = True
            directory.forgotten += 1
            self._doom(partition_log, now_ms)

    def alter_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's own configuration. Raises KeyError, ConfigError, OSError."""
        self._config(configs)  # checks them
        finish(self.altering_configs({name: configs}))

    def altering_configs(self, configs: Mapping[str, Mapping[str, str]]) -> Steps[None]:
        """Replace topics' own configurations with one change of the registry; the caller has checked them.

        Raises KeyError before the first step, and OSError; nothing has changed then.
        """
        topics = [self._registry.topics[name] for name in configs]
        yield from self._registry.changing(configs)
        for topic in topics:
            if self._registry.topics.get(topic.name) is topic:  # not deleted meanwhile
                self._configure_logs(topic)
            yield None

    def _configure_logs(self, topic: Topic) -> None:
        """Give a topic's logs the configuration that follows from its own and the defaults."""
        try:
            config = self._config(topic.configs, of=topic.name)
        except ConfigError as e:
            log.warning("topic %s stays with the defaults that it has: %s", topic.name, e)
            return
        for partition in range(topic.partitions):
            partition_log = self.get(topic.name, partition)
            if partition_log is not None:
                partition_log.config = config

    def promote(self, name: str, configs: Mapping[str, str]) -> list[PartitionLog]:
        """Make an ordinary topic of a mirror topic, with this configuration. Returns its logs.

        The caller calls `PartitionLog.end_promotion` for each of them. A start does it, too.
        Raises KeyError, ConfigError, OSError, StorageError for a partition that is offline.
        """
        topic = self._registry.topics[name]
        config = self._config(configs)
        logs = [self._logs.get((name, partition)) for partition in range(topic.partitions)]
        found = [partition_log for partition_log in logs if partition_log is not None]
        if len(found) < len(logs):
            raise StorageError(f"{name} has partitions that are offline: it cannot be promoted")
        epoch = max(partition_log.leader_epoch for partition_log in found) + 1
        self._registry.promote(topic, configs, epoch)
        for partition_log in found:
            partition_log.config = config
            partition_log.leader_epoch = partition_log.promotion_epoch = epoch
        log.info(
            "%s is promoted: it is no mirror topic any more, and goes on with leader epoch %d", name, epoch
        )
        return found

    def set_defaults(self, defaults: Mapping[str, str], *, producer_id_expiration_ms: int) -> None:
        """Change the defaults of all topics, for keys that they do not set themselves. Raises ConfigError.

        A topic whose own configuration contradicts the new defaults keeps its present one.
        """
        LogConfig.from_topic({}, defaults)
        self.defaults = dict(defaults)
        self._expiration_ms = producer_id_expiration_ms
        for topic in self._registry.topics.values():
            self._configure_logs(topic)

    # Moves between directories

    def begin_move(self, topic: str, partition: int, target: Path) -> None:
        """Begin to move a partition to the log directory `target`. If the partition is there already, only end its move.

        A move to another directory that is under way ends. Raises KeyError for an unknown partition, StorageError for an offline
        partition or directory, UnknownDirectory, OSError.
        """
        key = (topic, partition)
        directory = self.check_directory(target)
        if key in self._offline:
            raise StorageError(f"{topic}-{partition} is offline: {self._offline[key].why}")
        partition_log = self._logs[key]
        if key in self.moves:
            if self.moves[key].target is directory:
                return
            self.cancel_move(topic, partition)
        if partition_log.directory.parent != target:
            self.moves[key] = ReplicaMove(partition_log, directory)

    def check_directory(self, path: Path) -> DataDirectory:
        """Returns the log directory of this path. Raises StorageError when it cannot be used, and UnknownDirectory."""
        if path in self.unusable:
            raise StorageError(self.unusable[path])
        for directory in self.directories:
            if directory.path == path:
                return directory
        raise UnknownDirectory(f"{path} is not one of this broker's log directories")

    def cancel_move(self, topic: str, partition: int) -> None:
        """End a move, if there is one. Its copy is removed once no job writes to it."""
        move = self.moves.pop((topic, partition), None)
        if move is not None:
            move.cancel()
            if move.job is None:
                self.clear_move(move)

    def clear_move(self, move: ReplicaMove) -> None:
        """Remove the copy of a cancelled move, whose job has ended."""
        name = delete_dir_name(move.log.topic, move.log.partition, unique())
        try:
            move.target.doom(move.path, name, 0)
        except OSError as e:
            log.warning("%s: what a move has copied goes at the next start: %s", move.path, e)

    def finish_move(self, move: ReplicaMove, now_ms: int) -> None:
        """Let the copy take over. If it raises OSError, the partition stays where it is."""
        finish(self.preparing_move(move))
        self.end_move(move, now_ms)
        finish(self.leaving(move))

    def preparing_move(self, move: ReplicaMove) -> Steps[None]:
        """Prepare everything for the copy that is possible while the log goes on. Raises OSError, StorageError.

        The registry may name the new directory long before the end: the copy does not count until it has the partition's name.
        """
        topic = self._registry.topics[move.log.topic]
        move.coming = True
        yield move.prepare()
        try:
            yield self._checkpoint_job()  # which reports by itself
        except OSError as e:
            raise StorageError(f"the checkpoints cannot be written: {e}") from None
        try:
            yield from self._registry.moving(topic, move.log.partition, move.target.id)
        except OSError as e:  # neither the copy nor the log is to blame
            self.report(self.directory, e)
            raise StorageError(f"the topic registry cannot be written: {e}") from None

    def end_move(self, move: ReplicaMove, now_ms: int) -> None:
        """Copy the rest, and go on in the copy, which `preparing_move` has made ready; `leaving` must follow.

        If it raises OSError, the partition stays where it is.
        """
        partition_log, target = move.log, move.target
        source = self.directory_of(partition_log)
        old, new = partition_log.directory, target.path / partition_log.name
        move.complete()
        move.path.rename(new)
        try:
            sync_directory(target.path)
        except OSError as e:
            self._put_back(move, new, source)
            raise OSError(e.errno, e.strerror, str(target.path)) from e
        partition_log.relocate(new)
        partition_log.copying = False
        del self.moves[partition_log.topic, partition_log.partition]
        source.checkpoints_stale = True
        source.forgotten += 1
        try:
            delete_name = delete_dir_name(partition_log.topic, partition_log.partition, unique())
            source.doom(old, delete_name, now_ms + partition_log.config.file_delete_delay_ms)
        except OSError as e:
            log.warning("%s: is not removed yet, its partition is in %s now: %s", old, new, e)
        log.info("%s: moved from %s to %s", partition_log.name, source.path, target.path)

    def _put_back(self, move: ReplicaMove, new: Path, source: DataDirectory) -> None:
        """Renames a copy that will not replace the log, so that the next start does not prefer it to the log."""
        try:
            finish(
                self._registry.moving(self._registry.topics[move.log.topic], move.log.partition, source.id)
            )
        except OSError as e:
            log.error("%s: the topic registry still names %s as its place: %s", move.log.name, new, e)  # noqa: TRY400
        try:
            new.rename(move.path)
        except OSError as e:
            log.error("%s: remove this copy by hand before the next start: %s", new, e)  # noqa: TRY400

    def leaving(self, move: ReplicaMove) -> Steps[None]:
        """Remove the partition from the checkpoints of its old directory. An error is logged: later checkpoints do it."""
        try:
            yield from self.writing_checkpoints()
        except OSError as e:
            log.warning("%s: the checkpoints are written later: %s", move.log.name, e)
