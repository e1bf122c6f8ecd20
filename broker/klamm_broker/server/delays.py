"""Delays of one connection that quotas ask for. Event loop's thread only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm_broker.quota.meters import Quota


class Delays:
    """The delays that are not over. A connection that pipelines requests may have several: the longest counts."""

    __slots__ = ("_timers",)

    def __init__(self) -> None:
        self._timers: dict[asyncio.TimerHandle, Quota] = {}

    def begin(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, quota: Quota, over: Callable[[], None]
    ) -> None:
        """Begin a delay of a quota. `over` is called when none is left."""

        def end() -> None:
            self._timers.pop(timer).queued -= 1
            if not self._timers:
                over()

        quota.queued += 1
        timer = loop.call_later(delay_ms / 1000, end)
        self._timers[timer] = quota

    def end(self) -> None:
        """End all, without a call."""
        for timer, quota in self._timers.items():
            timer.cancel()
            quota.queued -= 1
        self._timers.clear()
