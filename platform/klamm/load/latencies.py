"""Latencies of many records in bounded memory, and the pace at which records are sent. Pure: the time is passed in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

_EXACT_MS: Final = 10_000
"""Below, each millisecond has a class of its own; above, each tenth of a second."""


@dataclass(slots=True)
class Latencies:
    """Counts of latencies by millisecond, with the bytes of their records."""

    count: int = 0
    bytes: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    classes: Counter[int] = field(default_factory=Counter)

    def add(self, ms: float, size: int) -> None:
        """Count one record."""
        self.count += 1
        self.bytes += size
        self.total_ms += ms
        self.max_ms = max(self.max_ms, ms)
        whole = int(ms)
        self.classes[whole if whole < _EXACT_MS else whole - whole % 100] += 1

    @property
    def mean_ms(self) -> float:
        return self.total_ms / self.count if self.count else 0.0

    def percentile(self, share: float) -> int:
        """Return the milliseconds that this share of the records does not exceed."""
        wanted, seen = share * self.count, 0
        for ms, number in sorted(self.classes.items()):
            seen += number
            if seen >= wanted:
                return ms
        return 0

    def rate(self, elapsed_s: float) -> tuple[float, float]:
        """Return records and MB (of 1024 * 1024 bytes) a second."""
        elapsed_s = max(elapsed_s, 0.001)
        return self.count / elapsed_s, self.bytes / elapsed_s / (1024 * 1024)


@dataclass(frozen=True, slots=True)
class Pace:
    """At most so many records a second since `began_s`; none of 0 or less: as fast as it goes."""

    per_s: float
    began_s: float

    def wait_s(self, sent: int, now_s: float) -> float:
        """Return the seconds to wait before the next record."""
        if self.per_s <= 0:
            return 0.0
        return max(0.0, self.began_s + sent / self.per_s - now_s)
