"""Translates a source's offsets to those of a restored partition: pure.

A restored log has no holes: control records, aborted and compacted records have no place in it. The mapping holds rows of offsets that
are contiguous on both sides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class Mapping:
    """The places of one partition's records. `base` is the target's offset of the first record."""

    def __init__(self, base: int = 0) -> None:
        self.next = base
        """The target's offset of the record that is added next."""
        self._first: list[int] = []
        self._count: list[int] = []
        self._target: list[int] = []

    def add(self, runs: Iterable[tuple[int, int]]) -> None:
        """Append records by rows of source offsets without a hole, (first, count). Offsets must rise."""
        for first, count in runs:
            if not count:
                continue
            if self._first and first < self._end(-1):
                raise ValueError(f"offset {first} comes behind {self._end(-1) - 1}")
            if self._first and first == self._end(-1):
                self._count[-1] += count
            else:
                self._first.append(first)
                self._count.append(count)
                self._target.append(self.next)
            self.next += count

    def translate(self, offset: int) -> int:
        """Return the target's offset of the first record that is at `offset` or behind it; the end where there is none."""
        at = bisect_right(self._first, offset) - 1
        if at >= 0 and offset < self._end(at):
            return self._target[at] + offset - self._first[at]
        return self._target[at + 1] if at + 1 < len(self._first) else self.next

    def source_of(self, target: int) -> int | None:
        """Return the source's offset of the record at `target`; None where there is none."""
        at = bisect_right(self._target, target) - 1
        if at < 0 or target >= self._target[at] + self._count[at]:
            return None
        return self._first[at] + target - self._target[at]

    @property
    def is_identity(self) -> bool:
        """True while all records have the offsets that they had."""
        return self._first == self._target

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        """Rows of (first source offset, first target offset, count)."""
        return list(zip(self._first, self._target, self._count, strict=True))

    def _end(self, at: int) -> int:
        return self._first[at] + self._count[at]


class Unmoved(Mapping):
    """The places of records in the log that they come from. `end`: none is behind it."""

    def __init__(self, end: int) -> None:
        super().__init__()
        self._last = end

    def translate(self, offset: int) -> int:
        return min(offset, self._last)
