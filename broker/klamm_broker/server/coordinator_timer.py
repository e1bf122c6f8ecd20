"""The timer of a coordinator on the event loop: it calls `tick` no later than the coordinator's next deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class CoordinatorTimer:
    """Calls `tick`, which does what is due. `next_deadline_ms` is on the loop's clock, in milliseconds."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        next_deadline_ms: Callable[[], int | None],
        tick: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._next_deadline_ms = next_deadline_ms
        self._do_tick = tick
        self._handle: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def set(self) -> None:
        """Set the timer anew: a deadline may have come nearer."""
        due_ms = self._next_deadline_ms()
        if due_ms is None or (self._handle is not None and self._due_ms <= due_ms):
            return  # it goes off no later than needed
        self.cancel()
        self._due_ms = due_ms
        self._handle = self._loop.call_at(due_ms / 1000, self._tick)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _tick(self) -> None:
        self._handle = None
        try:
            self._do_tick()
        finally:  # an error in one group or transaction must not stop the timer of all
            self.set()
