"""The measures behind quotas: rates over sliding windows, and buckets of tokens. Pure; time is passed in.

They count as Kafka's do. A rate is a sum over some windows of a second, the current one included, divided by the time
that they cover; at first it counts as if the windows before had been empty. A bucket fills at its quota's pace up to
what some seconds allow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Windows:
    """The time over which is measured: `count` windows of `length_ms`, the current one included."""

    count: int = 11
    length_ms: int = 1000

    @property
    def seconds(self) -> float:
        return self.count * self.length_ms / 1000

    @property
    def max_throttle_ms(self) -> int:
        """The longest delay of those who are held up for what is no volume of data: one window, as in Kafka."""
        return self.length_ms


_START, _LAST, _SUM, _EVENTS = range(4)


class SlidingSum:
    """A sum and a number of events over the last windows. A window begins with its first event."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[list[float]] = []  # start, last event, sum, events
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples:
            samples.append([now_ms, now_ms, 0.0, 0])
        sample = samples[self._current]
        if now_ms - sample[_START] >= self._windows.length_ms:
            sample = self._advance(now_ms)
        sample[_SUM] += value
        sample[_EVENTS] += 1
        sample[_LAST] = now_ms

    def _advance(self, now_ms: int) -> list[float]:
        """Begin the next window, in place of the oldest one if there are enough. One more is kept: it overlaps the time."""
        self._current = (self._current + 1) % (self._windows.count + 1)
        fresh: list[float] = [now_ms, now_ms, 0.0, 0]
        if self._current == len(self._samples):
            self._samples.append(fresh)
        else:
            self._samples[self._current] = fresh
        return fresh

    def total(self, now_ms: int) -> float:
        """Returns the sum over the windows that are not over."""
        self._forget(now_ms)
        return sum(sample[_SUM] for sample in self._samples)

    def average(self, now_ms: int) -> float | None:
        """Returns the mean of the events; None without any."""
        self._forget(now_ms)
        events = sum(sample[_EVENTS] for sample in self._samples)
        return sum(sample[_SUM] for sample in self._samples) / events if events else None

    def covered_ms(self, now_ms: int) -> int:
        """Returns the time that the sum is divided by: at least all windows but the current one."""
        self._forget(now_ms)
        windows = self._windows
        if not self._samples:  # the first look begins the first window, as in Kafka
            self._samples.append([now_ms, now_ms, 0.0, 0])
        passed = int(now_ms - min(sample[_START] for sample in self._samples))
        missing = windows.count - 1 - passed // windows.length_ms
        if missing > 0:
            passed += missing * windows.length_ms
        return max(passed, 1)

    def _forget(self, now_ms: int) -> None:
        age = self._windows.count * self._windows.length_ms
        for sample in self._samples:
            if now_ms - sample[_LAST] >= age:
                sample[:] = (now_ms, now_ms, 0.0, 0)


class Rate:
    """Something per second."""

    __slots__ = ("_sum",)

    def __init__(self, windows: Windows) -> None:
        self._sum = SlidingSum(windows)

    def record(self, value: float, now_ms: int) -> None:
        self._sum.record(value, now_ms)

    def value(self, now_ms: int) -> float:
        return self._sum.total(now_ms) * 1000 / self._sum.covered_ms(now_ms)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Returns the time until the rate is down to `bound` if nothing is added; 0 if it is not above it."""
        value = self.value(now_ms)
        if value <= bound:
            return 0
        return _rounded((value - bound) / bound * self._sum.covered_ms(now_ms))


class TokenBucket:
    """A stock of tokens (KIP-599): whoever takes more than there are leaves a debt, and waits until it is paid.

    It holds what the quota allows in so many `seconds`.
    """

    __slots__ = ("_filled_ms", "_seconds", "_tokens")

    def __init__(self, seconds: float, now_ms: int) -> None:
        self._seconds = seconds
        self._tokens = math.inf  # full, whatever the quota is
        self._filled_ms = now_ms

    def tokens(self, quota: float, now_ms: int) -> float:
        """Returns the tokens that are there, below 0 for a debt."""
        most = self._seconds * quota
        self._tokens = min(most, self._tokens + quota * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms
        return self._tokens

    def take(self, tokens: float, quota: float, now_ms: int) -> None:
        self._tokens = min(self._seconds * quota, self.tokens(quota, now_ms) - tokens)

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Returns the time until the debt is paid; 0 without one."""
        tokens = self.tokens(quota, now_ms)
        return _rounded(-tokens * 1000 / quota) if tokens < 0 else 0


INT_MAX: Final = (1 << 31) - 1


def _rounded(ms: float) -> int:
    """Rounds as Kafka does, and bounds to what an answer can tell."""
    return min(math.floor(ms + 0.5), INT_MAX) if math.isfinite(ms) else INT_MAX
