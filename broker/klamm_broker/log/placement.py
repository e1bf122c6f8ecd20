"""The log directory of each partition, and the choice for a new one: Kafka's rule, the directory with the fewest."""

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
    """The directories by path, and the places of partitions that are being made. Call `count` first, then `next`."""

    def __init__(self, directories: Sequence[DataDirectory]) -> None:
        self._by_path = {directory.path: directory for directory in directories}
        self._counts: Counter[Path] = Counter()
        self._places: dict[TopicPartition, Path] = {}

    def at(self, path: Path) -> DataDirectory:
        return self._by_path[path]

    def drop(self, path: Path) -> None:
        """Put nothing into this directory any more, as it has failed."""
        del self._by_path[path]
        self._counts.pop(path, None)

    def count(self, logs: Iterable[PartitionLog]) -> None:
        """Begin with the present places of all logs."""
        self._counts = Counter(dict.fromkeys(self._by_path, 0))
        if len(self._by_path) > 1:
            self._counts.update(partition_log.directory.parent for partition_log in logs)

    def count_places(self, places: Mapping[TopicPartition, DataDirectory]) -> None:
        self.count(())
        self._counts.update(directory.path for directory in places.values())

    def next(self, topic: str, partition: int) -> Path:
        """Returns the path of a new partition. Among directories with equally few, the first one named wins."""
        directory = min(self._counts, key=lambda path: self._counts[path])
        self._counts[directory] += 1
        return self._put((topic, partition), directory)

    def put(self, key: TopicPartition, directory: DataDirectory) -> None:
        """Note the place where a partition was found."""
        self._put(key, directory.path)

    def _put(self, key: TopicPartition, directory: Path) -> Path:
        self._places[key] = directory
        return directory / f"{key[0]}-{key[1]}"

    def take(self, topic: str, partition: int) -> Path:
        """Returns the place that `next` or `put` named for the partition; call it once, when the partition is opened.

        Raises StorageError if the directory has failed since.
        """
        directory = self._places.pop((topic, partition))
        if directory not in self._by_path:
            raise StorageError(f"{topic}-{partition}: log directory {directory} has failed")
        return directory / f"{topic}-{partition}"


def merge(
    found: Mapping[DataDirectory, Mapping[TopicPartition, Path]], registry: TopicRegistry
) -> dict[TopicPartition, DataDirectory]:
    """Returns the directory of each partition that was found.

    A partition in two directories was being moved: the registry names the complete copy, and the other is removed. Raises
    DirectoryError if the registry names none: somebody has copied the partition.
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
