"""The lag of groups over time: sampled while somebody looks at a group, and for a while after. Kept in memory.

`Series` is pure; `LagHistory` has the tasks that sample.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.errors import KlammError
from klamm_kafka.client import ClientError

log = logging.getLogger(__name__)

EVERY_S: Final = 5.0
KEPT: Final = 720
"""Samples: an hour."""
UNSEEN_S: Final = 15 * 60.0
"""A group that nobody has looked at for so long is sampled no more."""
GROUPS_MAX: Final = 50
TOPICS_MAX: Final = 20
"""Lines of a chart; the topics with the most lag."""

Sample = dict[str, int]
"""Lag by topic."""


@dataclass(slots=True)
class Series:
    """Samples of one group, the oldest first."""

    samples: deque[tuple[float, Sample]] = field(default_factory=lambda: deque(maxlen=KEPT))
    seen_s: float = 0.0
    why: str | None = None

    def add(self, at_s: float, lag: Sample) -> None:
        """Appends a sample."""
        self.samples.append((at_s, lag))

    def chart(self) -> dict[str, Any]:
        """Returns `times`, and `lines` with a name and values each, as the chart draws them."""
        newest = self.samples[-1][1] if self.samples else {}
        names = sorted(
            {name for _, lag in self.samples for name in lag}, key=lambda n: (-newest.get(n, 0), n)
        )
        return {
            "times": [round(at, 1) for at, _ in self.samples],
            "lines": [
                {"name": name, "values": [lag.get(name) for _, lag in self.samples]}
                for name in names[:TOPICS_MAX]
            ],
        }


class LagHistory:
    """The series of a cluster's groups."""

    def __init__(self) -> None:
        self._series: dict[str, Series] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def watch(self, group: str, ask: Callable[[], Awaitable[Sample]], now_s: float) -> Series:
        """Returns a group's series, which goes on to be sampled from now on."""
        found = self._series.setdefault(group, Series())
        found.seen_s = now_s
        if group not in self._tasks:
            self._make_room()
            self._tasks[group] = asyncio.create_task(self._sample(group, found, ask), name=f"lag of {group}")
        return found

    def _make_room(self) -> None:
        while len(self._tasks) >= GROUPS_MAX:
            self._drop(min(self._tasks, key=lambda g: self._series[g].seen_s))

    def _drop(self, group: str) -> None:
        self._tasks.pop(group).cancel()
        self._series.pop(group, None)

    async def _sample(self, group: str, series: Series, ask: Callable[[], Awaitable[Sample]]) -> None:
        import time

        while time.time() - series.seen_s < UNSEEN_S:
            try:
                series.add(time.time(), await ask())
                series.why = None
            except (KlammError, ClientError, OSError) as e:
                series.why = str(e)
            await asyncio.sleep(EVERY_S)
        self._tasks.pop(group, None)
        self._series.pop(group, None)

    async def close(self) -> None:
        """Ends the samples."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
