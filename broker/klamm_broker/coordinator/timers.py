"""Deadlines by key, without a clock.

Invariant: every key in `_deadlines` has an entry in the heap that is not later than its deadline. Moving a
deadline to later (as every heartbeat does) touches one dictionary; the heap entry is moved when it comes
up. So the heap holds at most one live entry a key. Stale entries exist only for keys whose deadline was moved to
earlier or cancelled, until they come up or there are too many of them.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

_STALE_MIN: Final = 1_024
"""Rebuild the heap only when it holds this many entries more than twice the live ones: a rebuild is linear,
so its cost stays a constant share of the cancellations that caused it."""

Key = tuple[str, ...]


class Timers:
    """A set of named deadlines in milliseconds, on a clock of the caller's choice."""

    def __init__(self) -> None:
        self._deadlines: dict[Key, int] = {}
        self._queued: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: Key) -> bool:
        return key in self._deadlines

    def set(self, key: Key, deadline_ms: int) -> None:
        """Set or move the deadline of `key`."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queued[key] = deadline_ms
            heappush(self._heap, (deadline_ms, key))

    def cancel(self, key: Key) -> None:
        """Forget `key`; no error when it is not set."""
        self._deadlines.pop(key, None)
        if len(self._heap) > 2 * len(self._deadlines) + _STALE_MIN:
            self._queued = dict(self._deadlines)
            self._heap = [(deadline_ms, live) for live, deadline_ms in self._deadlines.items()]
            heapify(self._heap)

    def next_ms(self) -> int | None:
        """Returns a time that is not later than the earliest deadline; None when there is none.

        It may be too early (the entry of a deadline that was moved): `pop_due` then finds nothing, and the
        next answer is better.
        """
        heap = self._heap
        while heap and not self._is_live(*heap[0]):
            self._drop_top()
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: int) -> Key | None:
        """Remove and return one key whose deadline has come; None when there is none."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            entry_ms, key = heap[0]
            if not self._is_live(entry_ms, key):
                self._drop_top()
                continue
            deadline_ms = self._deadlines[key]
            self._drop_top()
            if deadline_ms <= now_ms:
                del self._deadlines[key]
                return key
            self._queued[key] = deadline_ms
            heappush(heap, (deadline_ms, key))
        return None

    def _is_live(self, entry_ms: int, key: Key) -> bool:
        return self._queued.get(key) == entry_ms and key in self._deadlines

    def _drop_top(self) -> None:
        entry_ms, key = heappop(self._heap)
        if self._queued.get(key) == entry_ms:
            del self._queued[key]
