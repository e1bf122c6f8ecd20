"""The segments of one partition in the order of their base offsets; the last one is the active one.

The list creates, drops and looks up segments. Dropped segments are renamed to `.deleted` at once and removed from the
disk after a delay, as in Kafka; readers that hold a file are not disturbed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

from klamm_broker.log import producer_snapshot
from klamm_broker.log.config import LogConfig
from klamm_broker.log.retention import SegmentFacts
from klamm_broker.log.segment import Segment


class SegmentList:
    """At least one segment. Base offsets rise strictly."""

    __slots__ = ("_deleted", "_directory", "_segments", "bases")

    def __init__(self, directory: Path, segments: list[Segment]) -> None:
        self._directory = directory
        self._segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self._deleted: list[tuple[int, Path]] = []  # (when to remove it, file)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def size(self) -> int:
        """Bytes in the `.log` files."""
        return sum(segment.size for segment in self._segments)

    def number_of(self, offset: int) -> int:
        """Returns the number of the segment that has, or would have, this offset; 0 for offsets before the first."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def since(self, offset: int) -> list[Segment]:
        """Returns the segments from the one that has `offset` on."""
        return self._segments[self.number_of(offset) :]

    def create(self, base_offset: int, config: LogConfig, now_ms: int) -> None:
        """Add a new active segment. If it raises OSError, nothing has changed."""
        segment = Segment.create(
            self._directory,
            base_offset,
            index_interval=config.index_interval_bytes,
            max_index_bytes=config.segment_index_bytes,
            now_ms=now_ms,
            reserve_bytes=config.segment_bytes if config.preallocate else 0,
        )
        self._segments.append(segment)
        self.bases.append(base_offset)

    def drop(self, first: int, end: int, *, remove_at_ms: int) -> None:
        """Take segments first to end-1 out; their files are removed at `remove_at_ms`."""
        for segment in self._segments[first:end]:
            self._deleted += [(remove_at_ms, path) for path in segment.rename_deleted()]
            producer_snapshot.snapshot_path(self._directory, segment.base_offset).unlink(missing_ok=True)
            segment.release()
        del self._segments[first:end], self.bases[first:end]

    def replace(self, first: int, end: int, segment: Segment) -> None:
        """Replace segments first to end-1 by a cleaned segment. The caller handles their files."""
        for old in self._segments[first:end]:
            old.release()
        self._segments[first:end] = [segment]
        self.bases[first:end] = [segment.base_offset]

    def remove_later(self, paths: Iterable[Path], remove_at_ms: int) -> None:
        """Remove these files, which belong to no segment any more, at `remove_at_ms`."""
        self._deleted += [(remove_at_ms, path) for path in paths]

    def take_deleted(self, now_ms: int) -> list[Path]:
        """Returns the files that are due to be removed; the caller removes them."""
        due = [path for when, path in self._deleted if when <= now_ms]
        if due:
            self._deleted = [(when, path) for when, path in self._deleted if when > now_ms]
        return due

    def remove_deleted(self, now_ms: int) -> int:
        """Remove the files that are due. Returns how many."""
        due = self.take_deleted(now_ms)
        for path in due:
            path.unlink(missing_ok=True)
        return len(due)

    def relocate(self, directory: Path) -> None:
        """Use the same files in another directory. Files that wait for their removal stay with the old one."""
        self._directory = directory
        self._deleted.clear()
        for segment in self._segments:
            segment.relocate(directory)

    def facts(self, log_end_offset: int) -> list[SegmentFacts]:
        """Returns the facts for retention."""
        ends = [*self.bases[1:], log_end_offset]
        return [_facts(segment, end) for segment, end in zip(self._segments, ends, strict=True)]

    def release(self) -> None:
        for segment in self._segments:
            segment.release()


def _facts(segment: Segment, end_offset: int) -> SegmentFacts:
    timestamp = segment.largest_timestamp if segment.size else -1
    return SegmentFacts(
        size=segment.size,
        end_offset=end_offset,
        timestamp=timestamp if timestamp >= 0 else segment.modified_ms,
    )
