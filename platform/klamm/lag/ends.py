"""The known ends of a log over time: for Burrow's rules, and to estimate when an offset was written. Pure.

The history of one partition is thinned as it ages: it has at most `_POINTS_MAX` points, dense near now and sparse long
ago. An estimate is then off by a part of its age, whatever the age is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

_POINTS_MAX: Final = 96
"""Half of them are kept as they are; the older half loses every second point when there is no room."""


class Age(NamedTuple):
    """The time since a record was written. Not `exact`: it is at least as old as that."""

    ms: int
    exact: bool


class EndHistory:
    """The ends of one partition's log: the last `recent` looks, and points (time, end) since it is watched."""

    __slots__ = ("points", "recent")

    def __init__(self, looks: int, points: Iterable[tuple[int, int]] = ()) -> None:
        self.recent: deque[int] = deque(maxlen=looks)
        self.points: list[tuple[int, int]] = [(int(at), int(end)) for at, end in points]

    @property
    def end(self) -> int | None:
        """The log's end at the last look."""
        return self.recent[-1] if self.recent else self.points[-1][1] if self.points else None

    def look(self, end: int, now_ms: int) -> None:
        """Take in the log's end of now. A log that ends before its former end is another log: its history is over."""
        points = self.points
        if points and end < points[-1][1]:
            points.clear()
            self.recent.clear()
        self.recent.append(end)
        if len(points) > 1 and points[-1][1] == points[-2][1] == end:
            points[-1] = (now_ms, end)  # nothing was written: the plateau becomes longer
            return
        points.append((now_ms, end))
        if len(points) > _POINTS_MAX:
            half = _POINTS_MAX // 2
            points[1:half] = points[2:half:2]  # the oldest stays: it says how far we can look back

    def age(self, offset: int, now_ms: int) -> Age | None:
        """Estimates when the record at an offset was written, between the looks before and after it.

        Returns None where the log is not known to reach it.
        """
        points = self.points
        if not points or offset >= points[-1][1]:
            return None
        at = bisect_right(points, offset, key=lambda point: point[1])
        if at == 0:
            return Age(max(now_ms - points[0][0], 0), exact=False)
        (before, low), (after, high) = points[at - 1], points[at]
        written = before + (after - before) * (offset - low + 1) / (high - low)
        return Age(max(now_ms - int(written), 0), exact=True)
