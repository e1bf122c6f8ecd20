"""Long polls: fetches that wait until enough bytes have come to their partitions, or until their time is up.

A partition's `waiters` are its readers: a parked fetch, or a partition of a fetch session, which stays there also while
nobody waits. An append adds its bytes and marks the waiter as due. Due waiters are completed after the append was
answered, so that a producer does not wait for readers, and only so many in one turn of the loop that nobody else waits
long. Completion may find less than expected and leave the waiter in place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from klamm_broker.server.topics import Partition

WAKE_MAX: Final = 200
"""Fetches completed in one turn of the loop: some milliseconds. A client with many long polls makes thousands due at once."""


class Waiter:
    """One parked fetch. `missing` is the number of bytes that must come before an attempt to complete it is worthwhile.

    `complete(final)` tries to answer and returns whether it did; with `final` it must. It holds the request, and usually the
    waiter: whoever stops waiting lets go of it, so that no cycle of references is left to the garbage collector.
    """

    __slots__ = ("_complete", "_room", "_timer", "missing", "partitions")

    def __init__(
        self, partitions: Sequence[Partition], missing: int, complete: Callable[[bool], bool]
    ) -> None:
        self.partitions = partitions
        self.missing = missing
        self._complete = complete
        self._timer: asyncio.TimerHandle | None = None
        self._room: WaitingRoom

    def enter(self, room: WaitingRoom, timeout_s: float) -> None:
        self._room = room
        for partition in self.partitions:
            partition.waiters[self] = None
        room.enter(self)
        self._timer = room.loop.call_later(timeout_s, self.finish)

    def advanced(self, size: int) -> None:
        self.missing -= size
        if self.missing <= 0:
            self._room.due(self)

    def gone(self) -> None:
        self.finish()

    def finish(self) -> None:
        """Answer with the records that are there."""
        complete = self._complete
        self.leave()
        complete(True)

    def finish_soon(self) -> None:
        """Call `finish` in the next turn of the loop, unless the wait is over by then."""
        self._room.loop.call_soon(self._finish_if_waiting)

    def _finish_if_waiting(self) -> None:
        if self._timer is not None:
            self.finish()

    def try_complete(self) -> None:
        if self._timer is not None and self._complete(False):
            self.leave()

    def leave(self) -> None:
        """Stop waiting, without an answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._room.leave(self)
        for partition in self.partitions:
            partition.waiters.pop(self, None)
        self.partitions = ()
        self._complete = _answered


def _answered(_: bool) -> bool:
    return True


class WaitingRoom:
    """Wakes waiters. One per broker."""

    __slots__ = ("_due", "_waiting", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: set[Waiter] = set()
        self._due: dict[Waiter, None] = {}

    def advanced(self, partition: Partition, size: int) -> None:
        """Tell the readers that `size` readable bytes have come to `partition`; 0 when only its log start has moved."""
        for watcher in partition.waiters:
            watcher.advanced(size)

    def gone(self, partition: Partition) -> None:
        """Tell the readers that the partition is deleted. They see that from `deleted`."""
        for watcher in list(partition.waiters):
            watcher.gone()

    def due(self, waiter: Waiter) -> None:
        """Try to complete the waiter in the next turn of the loop."""
        if not self._due:
            self.loop.call_soon(self._wake)
        self._due[waiter] = None

    def enter(self, waiter: Waiter) -> None:
        self._waiting.add(waiter)

    def leave(self, waiter: Waiter) -> None:
        self._waiting.discard(waiter)

    def finish_all(self) -> None:
        """Answer every waiter with the records that are there."""
        for waiter in list(self._waiting):
            waiter.finish()

    def _wake(self) -> None:
        due = self._due
        if len(due) <= WAKE_MAX:
            self._due = {}
        else:
            due = dict.fromkeys(islice(due, WAKE_MAX))
            for waiter in due:
                del self._due[waiter]
            self.loop.call_soon(self._wake)
        for waiter in due:
            waiter.try_complete()
