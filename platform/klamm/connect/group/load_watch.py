"""Notices when a worker's load has changed so much that the group should share the work anew. Pure; time is
passed in.

Loads are averaged over about a minute. A task's start is left out, since it costs more than its later work.
The leader learns loads only when workers join. So a worker asks for a rebalance when its total has long been
far from the reported one; the leader then decides whether anything moves. A cooperative rebalance stops
nothing by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# After this time, the average shows two thirds of a change.
AVERAGE_MS: Final = 60_000
# For so long a new task's load is not reported, and the leader takes it for average.
WARM_UP_MS: Final = 30_000

# The minimum time between two such rebalances, per worker.
INTERVAL_MS: Final = 300_000
# The change must have lasted for so long, so that a burst moves nothing.
LASTING_MS: Final = 60_000
# A change counts from half of the reported load, and from half a core.
FACTOR: Final = 0.5
CORES: Final = 0.5


@dataclass(slots=True)
class _Seen:
    first_ms: int
    last_ms: int
    average: float


class LoadWatch:
    """Averages the measured loads, and remembers the reported ones and since when they are wrong."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._told = 0.0
        self._told_at_ms: int | None = None
        self._far_since_ms: int | None = None

    def observe(self, measured: Mapping[str, float], now_ms: int) -> None:
        """Takes the loads of the tasks that run here now. Called at every heartbeat, and before joining."""
        seen = {}
        for task, load in measured.items():
            known = self._seen.get(task) or _Seen(now_ms, now_ms, load)
            if now_ms - known.first_ms < WARM_UP_MS:
                known.average = load
            else:
                share = -math.expm1((known.last_ms - now_ms) / AVERAGE_MS)
                known.average += share * (load - known.average)
            known.last_ms = now_ms
            seen[task] = known
        self._seen = seen

    def loads(self) -> dict[str, float]:
        """Returns the averages of the tasks that have run for long enough."""
        return {
            task: seen.average
            for task, seen in self._seen.items()
            if seen.last_ms - seen.first_ms >= WARM_UP_MS
        }

    def tell(self, now_ms: int) -> dict[str, float]:
        """Returns the loads that the worker reports as it joins, and remembers them."""
        loads = self.loads()
        self._told, self._told_at_ms, self._far_since_ms = sum(loads.values()), now_ms, None
        return loads

    def wants_rebalance(self, now_ms: int) -> bool:
        """Tells whether the worker should ask for a rebalance. Call it after `observe`."""
        if self._told_at_ms is None:
            return False
        change = abs(sum(self.loads().values()) - self._told)
        if change < max(CORES, FACTOR * self._told):
            self._far_since_ms = None
            return False
        if self._far_since_ms is None:
            self._far_since_ms = now_ms
        return now_ms - self._far_since_ms >= LASTING_MS and now_ms - self._told_at_ms >= INTERVAL_MS
