"""The offset up to which each log is clean: `cleaner-offset-checkpoint` of every log directory, in Kafka's format."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path

from klamm_broker.log import checkpoints
from klamm_broker.log.checkpoints import TopicPartition
from klamm_broker.log.errors import CorruptFile

log = logging.getLogger(__name__)


class CleanPoints:
    """Clean offsets by partition, per directory. A lost offset costs a longer round, nothing else."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self._points = {directory: self._read(directory) for directory in directories}

    @staticmethod
    def _read(directory: Path) -> dict[TopicPartition, int]:
        try:
            return checkpoints.read_offsets(directory / checkpoints.CLEANER_OFFSET)
        except (CorruptFile, OSError) as e:
            log.warning("%s: ignored, every compacted log in %s counts as dirty", e, directory)
            return {}

    def get(self, directory: Path, partition: TopicPartition) -> int | None:
        return self._points.get(directory, {}).get(partition)

    def set(self, directory: Path, partition: TopicPartition, offset: int) -> None:
        self._points.setdefault(directory, {})[partition] = offset

    def cut(self, directory: Path, partition: TopicPartition, end: int) -> None:
        """Forget the partition's offset if it lies beyond `end`, where the log ends now."""
        points = self._points.get(directory, {})
        if points.get(partition, -1) > end:
            del points[partition]
            log.warning(
                "%s-%d ends at %d, before the point up to which it was clean: it counts as dirty",
                *partition,
                end,
            )

    def drop(self, partitions: Collection[TopicPartition]) -> list[Path]:
        """Forget these partitions, as a namesake is another log. Returns the directories that had any of them."""
        changed = []
        for directory, points in self._points.items():
            known = [partition for partition in partitions if points.pop(partition, None) is not None]
            changed += [directory] if known else []
        return changed

    def keep_only(self, existing: Callable[[Path], Collection[TopicPartition]]) -> None:
        """Forget partitions that are no longer in a directory."""
        for directory, points in self._points.items():
            there = existing(directory)
            for partition in [p for p in points if p not in there]:
                del points[partition]

    def write_job(self, directory: Path) -> Callable[[], None]:
        """Returns a job that writes the directory's file as it should be now. Any thread may run it; it raises OSError."""
        content = dict(self._points.get(directory, {}))
        return partial(checkpoints.write_offsets, directory / checkpoints.CLEANER_OFFSET, content)
