"""Which log directory a partition is in, and which one a new partition goes to: Kafka's rule, the one with the fewest."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from klamm_broker.log.checkpoints import TopicPartition
from klamm_broker.log.data_directory import DataDirectory, remove_tree
from klamm_broker.log.errors import DirectoryError, StorageError
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.topic_registry import TopicRegistry

log = logging.getLogger(__name__)


class Placement:
    """The directories by path, and where the partitions are that are being made. `count` first, then `next`."""

    def __init__(self, directories: Sequence[DataDirectory]) -> None:
        self._by_path = {directory.path: directory for directory in directories}
        self._counts: Counter[Path] = Counter()
        self._places: dict[TopicPartition, Path] = {}

    def at(self, path: Path) -> DataDirectory:
        return self._by_path[path]

    def drop(self, path: Path) -> None:
        """A directory has failed: nothing is put there any more."""
        del self._by_path[path]
        self._counts.pop(path, None)

    def count(self, logs: Iterable[PartitionLog]) -> None:
        """Begin with what is in use now."""
        self._counts = Counter(dict.fromkeys(self._by_path, 0))
        if len(self._by_path) > 1:
            self._counts.update(partition_log.directory.parent for partition_log in logs)

    def count_places(self, places: Mapping[TopicPartition, DataDirectory]) -> None:
        self.count(())
        self._counts.update(directory.path for directory in places.values())

    def next(self, topic: str, partition: int) -> Path:
        """The path of a new partition. Of several directories with as few the one that is named first."""
        directory = min(self._counts, key=lambda path: self._counts[path])
        self._counts[directory] += 1
        return self._put((topic, partition), directory)

    def put(self, key: TopicPartition, directory: DataDirectory) -> None:
        """Note where a partition was found."""
        self._put(key, directory.path)

    def _put(self, key: TopicPartition, directory: Path) -> Path:
        self._places[key] = directory
        return directory / f"{key[0]}-{key[1]}"

    def take(self, topic: str, partition: int) -> Path:
        """Where `next` or `put` said that the partition is; asked once, when it is opened.

        Raises StorageError if the directory has failed since.
        """
        directory = self._places.pop((topic, partition))
        if directory not in self._by_path:
            raise StorageError(f"{topic}-{partition}: log directory {directory} has failed")
        return directory / f"{topic}-{partition}"


def merge(
    found: Mapping[DataDirectory, Mapping[TopicPartition, Path]], registry: TopicRegistry
) -> dict[TopicPartition, DataDirectory]:
    """The directory of each partition that was found.

    One that is there twice was being moved: the registry says which copy is whole, and the other is removed. Raises
    DirectoryError where it says nothing: somebody has copied it.
    """
    places: dict[TopicPartition, DataDirectory] = {}
    for directory, partitions in found.items():
        for key in partitions:
            other = places.setdefault(key, directory)
            if other is directory:
                continue
            place = registry.topics[key[0]].places.get(key[1])
            winner = next((d for d in (other, directory) if d.id == place), None)
            if winner is None:
                raise DirectoryError(
                    f"partition {key[0]}-{key[1]} is in {other.path} and in {directory.path}. Move the directory that "
                    "is not wanted out of one of them"
                )
            loser = directory if winner is other else other
            log.info("%s-%d: its move from %s to %s is completed", *key, loser.path, winner.path)
            remove_tree(loser.path / f"{key[0]}-{key[1]}")
            places[key] = winner
    return places
