"""The result of comparing one partition: counts, the first difference, checksums by range. Pure; storable as JSON."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self
from zlib import crc32

from klamm_mirror.verify.rows import Row

RANGE_RECORDS: Final = 100_000
"""The source's records in a range that has a checksum of its own."""


@dataclass(slots=True)
class Difference:
    """The first record that differs. `field` is a record's field, `missing` or `extra`."""

    source_offset: int | None
    target_offset: int | None
    field: str


@dataclass(slots=True)
class Range:
    """Counts and checksums of a range of both logs; offsets are the first, and the one after the last."""

    source_from: int
    target_from: int
    source_to: int
    target_to: int
    source_records: int = 0
    target_records: int = 0
    source_checksum: int = 0
    target_checksum: int = 0

    def add(self, source: Sequence[Row], target: Sequence[Row]) -> None:
        """Adds rows that follow."""
        if source:
            self.source_to = source[-1].offset + 1
            self.source_records += len(source)
            self.source_checksum = _checksum(source, self.source_checksum)
        if target:
            self.target_to = target[-1].offset + 1
            self.target_records += len(target)
            self.target_checksum = _checksum(target, self.target_checksum)

    @property
    def equal(self) -> bool:
        return (self.source_records, self.source_checksum) == (self.target_records, self.target_checksum)


def _checksum(rows: Sequence[Row], before: int) -> int:
    return crc32(array("I", [row.check for row in rows]).tobytes(), before)


@dataclass(slots=True)
class Tally:
    """Counts of records: `same` on both sides.

    Differences are `missing`, `extra`, `different` and, in the end, `behind` (at the source's end, not at the
    target yet). The others explain why a record is at one side only: it came twice (`repeated`), belongs to an
    aborted transaction, was compacted or deleted by retention there, or lies before the flow's start.
    """

    same: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    behind: int = 0
    repeated: int = 0
    aborted_copied: int = 0
    aborted_left_out: int = 0
    compacted_at_source: int = 0
    compacted_at_target: int = 0
    purged_at_source: int = 0
    purged_at_target: int = 0
    before_start: int = 0
    first: Difference | None = None
    ranges: list[Range] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return bool(self.missing or self.extra or self.different or self.behind)

    def note(self, source_offset: int | None, target_offset: int | None, what: str) -> None:
        """Remembers the first difference."""
        if self.first is None:
            self.first = Difference(source_offset, target_offset, what)

    def cover(self, source: Sequence[Row], target: Sequence[Row]) -> None:
        """Adds rows to the last range, or begins the next."""
        if not source and not target:
            return
        if not self.ranges or self.ranges[-1].source_records >= RANGE_RECORDS:
            self._begin_range(source, target)
        self.ranges[-1].add(source, target)

    def _begin_range(self, source: Sequence[Row], target: Sequence[Row]) -> None:
        last = self.ranges[-1] if self.ranges else Range(0, 0, 0, 0)
        source_from = source[0].offset if source else last.source_to
        target_from = target[0].offset if target else last.target_to
        self.ranges.append(Range(source_from, target_from, source_from, target_from))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, found: dict[str, Any]) -> Self:
        first = Difference(**found["first"]) if found["first"] else None
        return cls(**{**found, "first": first, "ranges": [Range(**each) for each in found["ranges"]]})
