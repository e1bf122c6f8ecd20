"""Large requests: decoded, handled and answered in slices, one request of all clients at a time.

A request of some hundred kilobytes takes the event loop tens of milliseconds. The connection is held until its handler
has been called, so that no later request overtakes it. A request that needs a thread leaves the queue, and goes on beside
the others. Event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from klamm_broker.log.steps import Job, Steps
from klamm_broker.server import slices
from klamm_broker.server.slices import LONG_SLICE_S, drive_in_turn, lane_of
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
    steps: Steps[_R],
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
            finished, result, job = one_slice(steps)
            if finished:
                then(result)
            elif job is not None:
                finished = True  # for the queue
                beside(slot, what, steps, job, then, to_the_end=to_the_end)
        except Exception as e:
            _failed(slot, what, e)
        finally:
            if slot.charge is not None:
                slot.charge.pause()
        return finished

    loop = slot.connection.loop
    queue = _queues.get(loop)
    if queue is None:
        queue = _queues[loop] = _Queue(loop)
    queue.add(go_on)


def beside(
    slot: Parked,
    what: str,
    steps: Steps[_R],
    job: Job | None,
    then: Callable[[_R], None],
    *,
    to_the_end: bool = False,
) -> None:
    """Do the steps of a parked request from a job on, as `run` does but outside of the queue, which it would hold up.

    Their slices wait in the lane of all. `job` is None if no thread is needed for the next step.
    """

    def done(going: asyncio.Future[_R]) -> None:
        if slot.closed and not to_the_end:
            going.exception()
            return
        try:
            then(going.result())
        except Exception as e:
            _failed(slot, what, e)

    drive_in_turn(slot.connection.loop, _on_account(slot, steps, job, to_the_end)).add_done_callback(done)


class _Abandoned(Exception):
    """Nobody waits for the result any more."""


def _on_account(slot: Parked, steps: Steps[_R], job: Job | None, to_the_end: bool) -> Steps[_R]:
    """Does the steps from a job on, on the account of the request."""
    while True:
        error: Exception | None = None
        try:
            yield job
        except Exception as e:
            error = e
        if slot.closed and not to_the_end:
            steps.close()
            raise _Abandoned
        if slot.charge is not None:
            slot.charge.go_on()
        try:
            job = next(steps) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            if slot.charge is not None:
                slot.charge.pause()


def _failed(slot: Parked, what: str, error: Exception) -> None:
    if isinstance(error, ProtocolError):
        slot.fail(f"{what}: {error}")
    else:  # a defect of ours: the peer must not wait for an answer that will not come
        log.error("%s failed", what, exc_info=error)
        slot.fail(f"{what} failed here: {error!r}")


def finished(steps: Generator[Any, None, _R]) -> _R:
    """Do all steps at once. Returns their result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def one_slice(steps: Steps[_R]) -> tuple[bool, Any, Job | None]:
    """Work until the slice's time is up or a job is due. Returns whether all is done, the result, and the job."""
    return slices.one_slice(steps, LONG_SLICE_S)
