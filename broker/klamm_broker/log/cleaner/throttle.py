"""Keeps the cleaner's reading and writing below a rate on average (log.cleaner.io.max.bytes.per.second)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_WINDOW_S: Final = 0.3
"""The window in which bytes are counted before the rate is judged: short bursts may pass, as in Kafka."""


class Throttle:
    """Limits a rate. Call `used` with every amount; it sleeps when that was too much."""

    __slots__ = ("_bytes", "_clock", "_rate", "_since", "_sleep")

    def __init__(
        self,
        bytes_per_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = max(bytes_per_s, 1.0)
        self._clock = clock
        self._sleep = sleep
        self._since = clock()
        self._bytes = 0

    def used(self, count: int) -> None:
        self._bytes += count
        elapsed = self._clock() - self._since
        if elapsed < _WINDOW_S and self._bytes < self._rate * _WINDOW_S:
            return
        ahead = self._bytes / self._rate - elapsed
        if ahead > 0:
            self._sleep(ahead)
        self._since = self._clock()
        self._bytes = 0
