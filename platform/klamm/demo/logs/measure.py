"""The progress of a stage: a total that grows, its rate over the last seconds, and its lag. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

SPAN_S: Final = 5.0


class Meter:
    """Measures the rate of a total over the last SPAN_S."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def rate(self, now: float, total: int) -> float:
        """Notes the current total and returns its rate per second. A total that went back (a restart) begins anew."""
        if self._points and total < self._points[-1][1]:
            self._points.clear()
        self._points.append((now, total))
        while len(self._points) > 2 and self._points[1][0] <= now - SPAN_S:
            self._points.popleft()
        then, before = self._points[0]
        return (total - before) / (now - then) if now > then else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The state of one stage. `lag` is in `unit`, and None while it is unknown. `mark` holds further figures that change when the stage moves."""

    stage: str
    total: int
    rate: float
    lag: int | None
    unit: str
    note: str = ""
    mark: tuple[int, ...] = ()
    restarts: int = 0
