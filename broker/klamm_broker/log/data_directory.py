"""One of `log.dirs`: locked, identified by its `meta.properties`, with checkpoints of its partitions.

A directory that cannot be used (missing, not writable, its disk gone) does not stop the others: `open_all` returns such
directories with the reason. A directory of somebody else, locked or of another cluster, does stop them: that is a mistake
in the configuration, which serving half of the data would hide.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from klamm_base.files import exposed, make_private_folder
from klamm_broker.log import checkpoints, log_dir
from klamm_broker.log.checkpoints import TopicPartition
from klamm_broker.log.errors import CorruptFile, DirectoryError, UnusableDirectory
from klamm_broker.log.files import (
    is_delete_dir,
    parse_future_dir,
    parse_partition_dir,
)
from klamm_broker.log.log_dir import DirectoryLock, MetaProperties
from klamm_broker.log.topic_registry import FILE_NAME as REGISTRY_FILE

log = logging.getLogger(__name__)

KRAFT_TOPIC = "__cluster_metadata"  # Kafka's own metadata log: left alone


class DataDirectory:
    """A locked log directory. The constructor opens and locks it, `release` gives it back.

    Raises DirectoryError, and UnusableDirectory when the operating system refuses.
    """

    def __init__(self, path: Path, *, node_id: int, cluster_id: str | None) -> None:
        self.path = path
        self.clean = False
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.unopened: set[TopicPartition] = set()  # partitions in it that could not be opened
        self.checkpoint_files = checkpoints.CheckpointFiles(path)
        self.checkpoints_stale = False  # they name deleted partitions, whose values no namesake may inherit
        self.forgotten = 0  # the number of partitions that made them stale
        self.doomed: list[tuple[int, Path]] = []  # (when to remove it, deleted partition's directory)
        self._lock = DirectoryLock(path)
        try:
            self.meta: MetaProperties = log_dir.claim(path, node_id=node_id, cluster_id=cluster_id)
        except OSError as e:
            self._lock.release()
            raise UnusableDirectory(f"log directory {path} cannot be written to: {e.strerror or e}") from e
        except BaseException:
            self._lock.release()
            raise

    @property
    def id(self) -> str:
        return self.meta.directory_id

    def read_state(self) -> None:
        """Read the state that the last run left: its checkpoints, and whether it ended cleanly. Removes that marker."""
        self.clean = log_dir.take_clean_shutdown(self.path)
        self.recovery_points = self._read_checkpoint(checkpoints.RECOVERY_POINT)
        self.log_starts = self._read_checkpoint(checkpoints.LOG_START_OFFSET)

    def forget_state(self) -> None:
        """Forget the state that was read, except for partitions that could not be opened."""
        unopened = self.unopened
        self.recovery_points = {key: o for key, o in self.recovery_points.items() if key in unopened}
        self.log_starts = {key: o for key, o in self.log_starts.items() if key in unopened}

    def forget(self, key: TopicPartition) -> None:
        """Forget a deleted partition that could not be opened."""
        self.unopened.discard(key)
        self.recovery_points.pop(key, None)
        self.log_starts.pop(key, None)

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoints.read_offsets(self.path / name)
        except CorruptFile as e:
            log.warning("%s: ignored, every log is checked from its start", e)
            return {}

    def find_partitions(self) -> tuple[dict[TopicPartition, Path], list[TopicPartition]]:
        """Returns the partition directories by their names, and the partitions that were being moved here.

        Removes partitions that were being deleted, and the copies of unfinished moves.
        """
        found: dict[TopicPartition, Path] = {}
        moving: list[TopicPartition] = []
        with os.scandir(self.path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
        for name in names:
            path = self.path / name
            if (parsed := parse_partition_dir(name)) is not None:
                if parsed[0] != KRAFT_TOPIC:
                    found[parsed] = path
            elif is_delete_dir(name):
                remove_tree(path)
            elif (future := parse_future_dir(name)) is not None:
                remove_tree(path)
                moving.append(future)
        return found, moving

    def doom(self, path: Path, name: str, when_ms: int) -> None:
        """Rename a partition's directory to a name of a deleted one; it is removed at `when_ms`."""
        self.doomed.append((when_ms, path.rename(self.path / name)))

    def release(self) -> None:
        self._lock.release()


def open_all(
    paths: Sequence[Path], *, node_id: int, cluster_id: str | None
) -> tuple[list[DataDirectory], dict[Path, str]]:
    """Returns the directories that can be used, and the reasons for the others. Raises DirectoryError.

    The first holds Klamm's own files, above all the topic registry: nothing works without it.
    """
    opened: list[DataDirectory] = []
    unusable: dict[Path, str] = {}
    try:
        cluster_id = cluster_id or _cluster_of(paths)
        for path in paths:
            try:
                make_private_folder(path)
            except OSError as e:
                unusable[path] = f"log directory {path} cannot be made: {e.strerror or e}"
                continue
            try:
                directory = DataDirectory(path, node_id=node_id, cluster_id=cluster_id)
            except UnusableDirectory as e:
                unusable[path] = str(e)
                continue
            opened.append(directory)
            if (said := exposed(path)) is not None:
                log.warning("%s", said)
            cluster_id = directory.meta.cluster_id
        _check(paths, opened, unusable)
    except BaseException:
        for directory in opened:
            directory.release()
        raise
    return opened, unusable


def _cluster_of(paths: Sequence[Path]) -> str | None:
    """Returns the cluster of the directories, if any has one: new directories beside them join it."""
    for path in paths:
        try:
            meta = log_dir.read_meta(path)
        except OSError:
            continue  # told when it is opened
        if meta is not None:
            return meta.cluster_id
    return None


def _check(paths: Sequence[Path], opened: Sequence[DataDirectory], unusable: dict[Path, str]) -> None:
    first = paths[0]
    if first in unusable:
        if len(paths) == 1:
            raise UnusableDirectory(unusable[first])
        raise UnusableDirectory(
            f"{unusable[first]}. It is the first of log.dirs, which holds {REGISTRY_FILE}: no topic is known without it"
        )
    ids: dict[str, Path] = {}
    for directory in opened:
        twin = ids.setdefault(directory.id, directory.path)
        if twin != directory.path:
            raise DirectoryError(
                f"{directory.path}/{log_dir.META_FILE}: directory.id={directory.id} is also that of {twin}: one is a "
                "copy of the other. Take it out of log.dirs"
            )
        if directory.path != first and (directory.path / REGISTRY_FILE).exists():
            raise DirectoryError(
                f"{directory.path / REGISTRY_FILE}: the topic registry belongs into the first of log.dirs, which is "
                f"{first}. Name {directory.path} first"
            )


def remove_tree(path: Path) -> None:
    shutil.rmtree(path)
    log.info("%s: removed", path)


def unique() -> str:
    """Returns the middle part of a temporary name of a partition's directory."""
    return uuid.uuid4().hex
