"""The offsets that a search reads, in their order. Pure.

Forward, a search reads from its beginning to the end that the log has now. From the newest record backwards, it reads windows,
the last one first; each window is read forwards, as there is no other way. Windows grow, so that a search that finds nothing
soon does not ask for little again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

Ranges = dict[int, tuple[int, int]]
"""First offset and end (not included) by partition."""
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
