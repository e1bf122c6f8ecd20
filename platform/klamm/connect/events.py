"""The event bus of a worker: state changes, config changes, rebalances, plugins.

Each worker has one bus and uses it in its event loop only. The bus keeps the last events, so that a
listener that lost its connection continues where it was. A publisher never waits: a listener that does
not read loses events, and learns how many.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

KEPT_MAX: Final = 1_000
"""The bus keeps this many events for listeners that come back; a rebalance of 300 tasks makes about as many."""
WAITING_MAX: Final = 1_000
"""At most this many events wait for one listener."""

KINDS: Final[Mapping[str, str]] = {
    "connector.state": "A connector's state changed: connector, state, worker_id, and trace where it failed.",
    "task.state": "A task's state changed: connector, task, state, worker_id, and trace where it failed.",
    "connector.created": "A connector was created: connector.",
    "connector.config": "A connector's config changed: connector, changed (names of keys).",
    "connector.target": "A connector's target state changed (run, pause or stop): connector, target.",
    "connector.deleted": "A connector was deleted: connector.",
    "tasks.config": "A connector's tasks were committed: connector, tasks (how many).",
    "group.rebalance": "The worker has a new assignment: generation, leader, connectors, tasks.",
    "plugin.installed": "A plugin package was installed: name, version.",
    "plugin.removed": "A plugin package was removed: name, version.",
    "missed": "Some events were not kept or not read in time: count (null when it is not known).",
}
"""Every kind of event, with a description of its data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event. `id` grows by one; `at_ms` is epoch milliseconds; `data` is JSON without secrets."""

    id: int
    kind: str
    at_ms: int
    data: Mapping[str, Any]


class EventBus:
    """See the module. `published` counts events by kind since the start."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock_ms = clock_ms
        self._kept: deque[Event] = deque(maxlen=KEPT_MAX)
        self._ids = itertools.count(1)
        self._listeners: set[Listener] = set()
        self.published: Counter[str] = Counter()

    def publish(self, kind: str, data: Mapping[str, Any]) -> None:
        """Gives an event to every listener. `kind` is one of `KINDS`."""
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no kind of event; there are: {', '.join(KINDS)}")
        event = Event(id=next(self._ids), kind=kind, at_ms=self._clock_ms(), data=dict(data))
        self._kept.append(event)
        self.published[kind] += 1
        for listener in self._listeners:
            listener.take(event)

    def listen(self, after: int | None = None) -> Listener:
        """Returns a new listener for events from now on, or (with `after`) for those after the event of that id."""
        listener = Listener(on_close=self._listeners.discard, clock_ms=self._clock_ms)
        self._listeners.add(listener)
        if after is None:
            return listener
        first, last = (self._kept[0].id, self._kept[-1].id) if self._kept else (1, 0)
        if after > last:  # an id of a worker that ran before this one
            listener.lose(None)
            after = 0
        elif after < first - 1:
            listener.lose(first - 1 - after)
        for event in self._kept:
            if event.id > after:
                listener.take(event)
        return listener

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def close(self) -> None:
        """Ends every listener's iteration, because the worker ends."""
        for listener in list(self._listeners):
            listener.close()


class Listener:
    """An async iterator of events; `close` it when done. Only the bus calls `take` and `lose`."""

    def __init__(self, *, on_close: Callable[[Listener], None], clock_ms: Callable[[], int]) -> None:
        self._on_close = on_close
        self._clock_ms = clock_ms
        self._waiting: deque[Event] = deque()
        self._news = asyncio.Event()
        self._missed: int | None = 0
        self._closed = False
        self._last = 0

    def take(self, event: Event) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft()
            self.lose(1)
        self._waiting.append(event)
        self._news.set()

    def lose(self, count: int | None) -> None:
        self._missed = None if count is None or self._missed is None else self._missed + count
        self._news.set()

    def close(self) -> None:
        self._closed = True
        self._on_close(self)
        self._news.set()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._missed != 0:
                missed, self._missed = self._missed, 0
                at = self._waiting[0].id - 1 if self._waiting else self._last
                return Event(id=at, kind="missed", at_ms=self._clock_ms(), data={"count": missed})
            if self._waiting:
                event = self._waiting.popleft()
                self._last = event.id
                return event
            if self._closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
