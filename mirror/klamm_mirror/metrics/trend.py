"""The movement of a partition: its rates, and how fast its lag shrinks. Pure: times are passed in, ms.

Rates follow a change within seconds: they are means in which the past counts half as much every `HALF_LIFE_MS`.
The rates of the sensors (`sensors`) cover a minute, as Kafka's do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HALF_LIFE_MS: Final = 5_000
REST_RATE: Final = 0.05
"""Records per second that count as none."""


@dataclass(slots=True)
class Trend:
    """The movement of one partition, by figures that are looked at every few seconds.

    `closing_rate` is the number of records by which the lag shrinks each second; below zero, it grows. `peak` is the
    largest lag since the target last had everything.
    """

    record_rate: float = 0.0
    byte_rate: float = 0.0
    closing_rate: float = 0.0
    peak: int = 0
    _looks: int = 0
    _at_ms: int = 0
    _records: int = 0
    _bytes: int = 0
    _lag: int | None = None

    def observe(self, now_ms: int, records: int, size: int, lag: int | None) -> None:
        """Notes the figures of now: records and bytes since the start, and the lag (None: not known)."""
        if self._still(records, lag):
            self.record_rate = self.byte_rate = self.closing_rate = 0.0
            self._at_ms = now_ms
            return
        passed_ms = now_ms - self._at_ms
        if self._looks and passed_ms > 0:  # else the first look, or a clock that was set back
            weight = 1.0 if self._looks == 1 else 1 - 0.5 ** (passed_ms / HALF_LIFE_MS)
            per_s = 1000 / passed_ms
            closed = 0 if lag is None or self._lag is None else self._lag - lag
            self.record_rate += weight * ((records - self._records) * per_s - self.record_rate)
            self.byte_rate += weight * ((size - self._bytes) * per_s - self.byte_rate)
            self.closing_rate += weight * (closed * per_s - self.closing_rate)
        self._looks += 1
        self._at_ms, self._records, self._bytes = now_ms, records, size
        if lag is not None:
            self._lag = lag
            self.peak = max(self.peak, lag) if lag else 0

    def _still(self, records: int, lag: int | None) -> bool:
        """Returns whether a partition is at rest, and was so for long: most are, mostly, so this comes first."""
        return (
            self._looks > 0
            and records == self._records
            and lag == self._lag == 0
            and self.record_rate < REST_RATE
            and -REST_RATE < self.closing_rate < REST_RATE
        )
