"""The offsets that a search reads, in their order. Pure.

Forward, a search reads from its beginning to the end that the log has now. From the newest record backwards, it reads windows,
the last one first; each window is read forwards, as there is no other way. Windows grow, so that a search that finds nothing
soon does not ask for little again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from klamm.console.records.shown import Record

Ranges = dict[int, tuple[int, int]]
"""First offset and end (not included) by partition."""
Places = dict[int, int]
"""The next offset of a search that goes on, by partition; for one that goes back the end (not included)."""
BYTES_MAX: Final = 16 << 20
"""Bytes of a window's records that are kept for the page."""
GROWTH: Final = 4
WINDOW_MAX: Final = 100_000
PICKY_WINDOW: Final = 2_000
"""Offsets of the first window, over all partitions, where records are left out."""


def windows(bounds: Mapping[int, tuple[int, int]], limit: int, *, picky: bool) -> Iterator[Ranges]:
    """Yields what to read from the newest record backwards."""
    ends = {p: end for p, (start, end) in bounds.items() if start < end}
    width = max(limit, PICKY_WINDOW // max(len(ends), 1) if picky else 1)
    while ends:
        window = {p: (max(bounds[p][0], end - width), end) for p, end in ends.items()}
        yield window
        ends = {p: start for p, (start, _) in window.items() if start > bounds[p][0]}
        width = min(width * GROWTH, max(WINDOW_MAX // max(len(ends), 1), limit))


def total(ranges: Mapping[int, tuple[int, int]]) -> int:
    """Returns the number of offsets."""
    return sum(max(0, end - start) for start, end in ranges.values())


def from_offset(bounds: Mapping[int, tuple[int, int]], at: int) -> Ranges:
    """Returns ranges from an offset on; a negative one counts from the end."""
    return {p: (min(max(start, at if at >= 0 else end + at), end), end) for p, (start, end) in bounds.items()}


def going_on(bounds: Mapping[int, tuple[int, int]], places: Places, *, back: bool) -> Ranges:
    """Returns what is left of partitions for a search that was here before."""
    left = {p: bounds[p] for p in places.keys() & bounds.keys()}
    if back:
        return {p: (start, min(max(places[p], start), end)) for p, (start, end) in left.items()}
    return {p: (min(max(places[p], start), end), end) for p, (start, end) in left.items()}


def _age(record: Record) -> tuple[int, int]:
    return (record.timestamp or 0, record.offset)


class Newest:
    """The newest records of a window, `limit` of them and `BYTES_MAX` at most, however many come."""

    def __init__(self, limit: int) -> None:
        self.kept: list[Record] = []
        self.left: Places = {}
        """The largest offset that was left out, by partition."""
        self._limit = limit
        self._bytes = 0
        self._floor = (-1, -1)
        """The newest that was left out: what is older is left out, too."""

    def add(self, records: Iterable[Record]) -> None:
        """Takes in records of the window."""
        for record in records:
            self.kept.append(record)
            self._bytes += record.size
        if len(self.kept) > 2 * self._limit or self._bytes > 2 * BYTES_MAX:
            self.cut()

    def cut(self) -> None:
        """Sorts the records, the newest first, and leaves out those that are too many."""
        self.kept.sort(key=_age, reverse=True)
        room, at = BYTES_MAX, 0
        for record in self.kept[: self._limit]:
            if (at and record.size > room) or _age(record) <= self._floor:
                break
            room -= record.size
            at += 1
        for record in self.kept[at:]:
            self._floor = max(self._floor, _age(record))
            self.left[record.partition] = max(self.left.get(record.partition, 0), record.offset)
        del self.kept[at:]
        self._bytes = BYTES_MAX - room

    def places(self, window: Ranges, bounds: Ranges) -> Places:
        """Returns where to go on after this window."""
        ends = {p: self.left[p] + 1 if p in self.left else start for p, (start, _) in window.items()}
        return {p: end for p, end in ends.items() if end > bounds[p][0]}
