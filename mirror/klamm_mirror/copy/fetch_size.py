"""The number of lanes to a broker, and the sizes of their fetches. Pure.

A lane waits a round trip between an answer and the next one. On a long line other lanes must fill that time, and a
lane's answers must be large. They grow while they come quickly, so that a slow line never has to carry for a minute what
was meant for a quick one. Bound: all answers that are under way have `FAR_BYTES` together, from near brokers `UNDER_WAY_BYTES`,
at a mebibyte for each lane.
"""

from __future__ import annotations

import math
from typing import Final

from klamm_mirror.copy.fetch_settings import FetchSettings

FETCH_BYTES: Final = 16 << 20
PARTITION_BYTES: Final = 4 << 20
NEAR_S: Final = 0.01
"""The round trip up to which one lane is enough: a large answer takes longer than that."""
LANE_S: Final = 0.0125
"""The round trip that a lane stands for: eight lanes at 100 ms, each with the window of its own TCP connection."""
LANES_MAX: Final = 8
UNDER_WAY_BYTES: Final = 64 << 20
FAR_BYTES: Final = 128 << 20
"""The bytes that far brokers may have under way: a line holds 50 MB at 500 MB/s and 100 ms, and lanes pause at the same time by chance."""
LANE_BYTES: Final = 64 << 20
"""The bytes that an answer may have: Kafka's brokers give no more by default."""
SMALLEST: Final = 1 << 20
FIRST: Final = 4 << 20
QUICK_S: Final = 1.0
SLOW_S: Final = 4.0


def lanes_for(round_trip_s: float, partitions: int) -> int:
    """Returns how many lanes fetch from a broker that leads so many partitions."""
    if round_trip_s < NEAR_S:
        return min(partitions, 1)
    return min(partitions, LANES_MAX, math.ceil(round_trip_s / LANE_S))


class FetchSize:
    """The size of one lane's fetches. `fit` comes first."""

    def __init__(self, settings: FetchSettings) -> None:
        self._settings = settings
        self._most = self._bytes = 0
        self._share = 1
        self._far = False

    def fit(self, *, lanes: int, share: int, far: bool) -> None:
        """Sets the bounds for a lane with `share` partitions, of so many lanes in all. `far`: it goes over a long line."""
        most = min(max((FAR_BYTES if far else UNDER_WAY_BYTES) // lanes, SMALLEST), LANE_BYTES)
        default = most if far else FETCH_BYTES
        self._most = min(self._settings.max_bytes or default, most)
        if not self._bytes:
            self._bytes = FIRST if far else self._most
        self._bytes = min(self._bytes, self._most)
        self._share, self._far = max(share, 1), far

    @property
    def max_bytes(self) -> int:
        """The bytes of an answer."""
        return self._bytes

    @property
    def partition_bytes(self) -> int:
        """The bytes of a partition in an answer: all of them, if it is alone on a long line."""
        if self._settings.partition_bytes is not None:
            return self._settings.partition_bytes
        share = self._bytes // self._share if self._far else PARTITION_BYTES
        return min(max(share, PARTITION_BYTES), self._bytes)

    @property
    def buffer_bytes(self) -> int:
        """The bytes on their way from which a partition is not fetched further: two answers."""
        return max(2 * self.partition_bytes, 2 * PARTITION_BYTES)

    def took(self, size: int, seconds: float) -> None:
        """Notes an answer: fetches grow if a large one came quickly, and shrink if it came slowly."""
        if seconds > SLOW_S and size >= self._bytes // 4:
            self._bytes = max(self._bytes // 2, min(SMALLEST, self._most))
        elif seconds < QUICK_S and size >= self._bytes // 2:
            self._bytes = min(self._bytes * 2, self._most)
