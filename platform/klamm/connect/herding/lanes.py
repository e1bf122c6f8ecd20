"""Runs calls for one connector or task in order. A slow call delays no other connector or task.

Only the tasks of a connector wait for each other: none starts before all of them that were asked to
stop have ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from klamm.connect.herding.actions import Target
from klamm.connect.model import TaskId

log = logging.getLogger(__name__)


class Lanes:
    """See the module. `on_error` gets the target of a call that failed, and why it failed."""

    def __init__(self, on_error: Callable[[Target, str], None]) -> None:
        self._on_error = on_error
        self._lanes: dict[Target, asyncio.Task[None]] = {}
        self._stops: dict[str, set[asyncio.Task[None]]] = {}  # of a connector's tasks, those that go on

    def run(self, target: Target, call: Callable[[], Awaitable[None]]) -> None:
        """Run `call` after all earlier calls for the same target."""
        self._run(target, call, frozenset())

    def start_task(self, task: TaskId, call: Callable[[], Awaitable[None]]) -> None:
        """Run `call` after all earlier calls for the task, and after the stops of its connector's tasks."""
        self._run(task, call, frozenset(self._stops.get(task.connector, ())))

    def stop_task(self, task: TaskId, call: Callable[[], Awaitable[None]]) -> None:
        """Run `call` after all earlier calls for the task. Tasks of its connector that start from now on wait for
        its end.
        """
        stop = self._run(task, call, frozenset())
        stops = self._stops.setdefault(task.connector, set())
        stops.add(stop)

        def ended(_: asyncio.Task[None]) -> None:
            stops.discard(stop)
            if not stops and self._stops.get(task.connector) is stops:
                del self._stops[task.connector]

        stop.add_done_callback(ended)

    def _run(
        self, target: Target, call: Callable[[], Awaitable[None]], after: frozenset[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        # A call waits only for older calls, so no two wait for each other.
        before = self._lanes.get(target)
        wait_for = after if before is None else after | {before}

        async def run() -> None:
            if wait_for:
                await asyncio.wait(wait_for)
            try:
                await call()
            except Exception as e:
                log.exception("%s", target)
                self._on_error(target, f"{type(e).__name__}: {e}")
            finally:
                if self._lanes.get(target) is asyncio.current_task():
                    del self._lanes[target]

        self._lanes[target] = asyncio.create_task(run(), name=f"lane {target}")
        return self._lanes[target]

    async def settled(self, name: str) -> None:
        """Wait until all calls for a connector and its tasks have ended (a task has stopped)."""
        while lanes := [t for k, t in self._lanes.items() if name in (k, getattr(k, "connector", None))]:
            await asyncio.wait(lanes)

    async def done(self, targets: Collection[Target]) -> None:
        """Wait until all calls so far for these targets have ended."""
        if lanes := [self._lanes[t] for t in targets if t in self._lanes]:
            await asyncio.wait(lanes)

    async def stopped(self) -> None:
        """Wait until the present stops of tasks have ended."""
        if stops := [stop for each in self._stops.values() for stop in each]:
            await asyncio.wait(stops)

    async def cancel(self) -> None:
        """Cancel every call, running or waiting."""
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        self._lanes.clear()

    @property
    def stopping(self) -> int:
        """The number of task stops that are under way."""
        return sum(map(len, self._stops.values()))
