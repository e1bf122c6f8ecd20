"""When a worker's load has changed so much that the group should meet and share the work anew. Pure; time is passed in.

The leader learns loads only when workers join. So a worker asks for a rebalance when its own total has been far from what it
told for a while; whether anything moves is then the leader's decision. A cooperative rebalance stops nothing by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# No more than one such rebalance in this time, per worker.
INTERVAL_MS: Final = 300_000
# The change must have lasted: a burst moves nothing.
LASTING_MS: Final = 60_000
# Far: by half of what was told, and by half a core.
FACTOR: Final = 0.5
CORES: Final = 0.5


class LoadWatch:
    """Remembers what was told, and since when it is wrong."""

    def __init__(self) -> None:
        self._told = 0.0
        self._told_at_ms: int | None = None
        self._far_since_ms: int | None = None

    def told(self, loads: Mapping[str, float], now_ms: int) -> None:
        """The worker has joined and said this."""
        self._told = sum(loads.values())
        self._told_at_ms = now_ms
        self._far_since_ms = None

    def wants_rebalance(self, loads: Mapping[str, float], now_ms: int) -> bool:
        """To be asked now and then."""
        if self._told_at_ms is None:
            return False
        change = abs(sum(loads.values()) - self._told)
        if change < max(CORES, FACTOR * self._told):
            self._far_since_ms = None
            return False
        if self._far_since_ms is None:
            self._far_since_ms = now_ms
        return now_ms - self._far_since_ms >= LASTING_MS and now_ms - self._told_at_ms >= INTERVAL_MS
