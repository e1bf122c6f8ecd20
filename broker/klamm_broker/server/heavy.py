"""Large requests: decoded, handled and answered in slices, one request of all clients at a time.

A request of some hundred kilobytes takes the event loop tens of milliseconds. The connection is held until its handler
has been called, so that no later request overtakes it. Event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from klamm_broker.server.slices import LONG_SLICE_S, lane_of
from klamm_kafka.wire.errors import ProtocolError

log = logging.getLogger(__name__)

LARGE_BYTES: Final = 16 * 1024
"""A request from this size on is large: some 500 partitions, which take a millisecond or two."""
_R = TypeVar("_R")


class Account(Protocol):
    """The account of a parked request: it is charged while it is worked at."""

    def go_on(self) -> None: ...
    def pause(self) -> None: ...


class Owner(Protocol):
    """The connection of a parked request."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...


class Parked(Protocol):
    """A parked request: `connection.Slot`."""

    @property
    def closed(self) -> bool: ...
    @property
    def charge(self) -> Account | None: ...
    @property
    def connection(self) -> Owner: ...
    def fail(self, why: str) -> None: ...


class _Queue:
    """The large requests of one event loop, done one after the other: only one has its thousands of objects in memory."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._lane = lane_of(loop)
        self._jobs: deque[Callable[[], bool]] = deque()
        self._under_way = False

    def add(self, job: Callable[[], bool]) -> None:
        """Call `job` until it returns True, once in each turn of the lane. What a job adds itself comes next."""
        if self._under_way:
            self._jobs.appendleft(job)
            return
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._lane.next(self._turn)

    def _turn(self) -> None:
        self._under_way = True
        job = self._jobs.popleft()
        try:
            if not job():
                self._jobs.appendleft(job)
        finally:
            self._under_way = False
            if self._jobs:
                self._lane.next(self._turn)


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue] = WeakKeyDictionary()


def run(
    slot: Parked,
    what: str,
    steps: Generator[Any, None, _R],
    then: Callable[[_R], None],
    *,
    to_the_end: bool = False,
) -> None:
    """Do the steps of a parked request in slices, then call `then` with their result.

    They end without it when the connection is gone, unless they are to be done `to_the_end`, and close it when they fail.
    """

    def go_on() -> bool:
        if slot.closed and not to_the_end:
            steps.close()
            return True
        if slot.charge is not None:
            slot.charge.go_on()
        finished = True
        try:
            finished, result = one_slice(steps)
            if finished:
                then(result)
        except ProtocolError as e:
            slot.fail(f"{what}: {e}")
        except Exception as e:  # a defect of ours: the peer must not wait for an answer that will not come
            log.exception("%s failed", what)
            slot.fail(f"{what} failed here: {e!r}")
        finally:
            if slot.charge is not None:
                slot.charge.pause()
        return finished

    loop = slot.connection.loop
    queue = _queues.get(loop)
    if queue is None:
        queue = _queues[loop] = _Queue(loop)
    queue.add(go_on)


def finished(steps: Generator[Any, None, _R]) -> _R:
    """Do all steps at once. Returns their result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def one_slice(steps: Generator[Any, None, _R]) -> tuple[bool, Any]:
    """Work until the slice's time is up. Returns whether all is done, and the result."""
    end = perf_counter() + LONG_SLICE_S
    try:
        next(steps)
        while perf_counter() < end:
            next(steps)
    except StopIteration as finished:
        return True, finished.value
    return False, None
