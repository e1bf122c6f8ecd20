"""Divides work on many things into slices, so that the event loop serves others between them.

It is for requests that name thousands of topics: each topic takes a tenth of a millisecond or more, and nobody else
should wait for all of them.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from klamm_broker.log.steps import Job, Steps

SLICE_S: Final = 0.005
"""The longest time of a slice: less than a small answer takes on its way."""

LONG_SLICE_S: Final = 0.003
"""The longest time of a slice of a large request: others wait for one such slice."""


class Lane:
    """The place where large work of all clients waits for its next slice: one slice between two turns of the event loop.

    Ten clients with large requests make the others wait no longer than one of them does.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    def next(self, work: Callable[[], None]) -> None:
        """Call `work` when it is its turn. It should not take longer than a slice, and ask again."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        work = self._waiting[0]
        try:
            work()
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._loop.call_soon(self._turn)


_lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, Lane] = WeakKeyDictionary()


def lane_of(loop: asyncio.AbstractEventLoop) -> Lane:
    """Returns the lane of an event loop."""
    lane = _lanes.get(loop)
    if lane is None:
        lane = _lanes[loop] = Lane(loop)
    return lane


class Turns:
    """Lets some do what takes much memory, in the order in which they came; the others wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop = loop
        self._left = most
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, begin: Callable[[], None]) -> None:
        """Call `begin` when there is a turn: soon, or when another one has given its own back."""
        if self._left:
            self._left -= 1
            self._loop.call_soon(begin)
        else:
            self._waiting.append(begin)

    def give_back(self) -> None:
        if self._waiting:
            self._loop.call_soon(self._waiting.popleft())
        else:
            self._left += 1


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()
TURNS: Final = min(4, os.cpu_count() or 1)
"""Requests of one event loop whose records are unpacked or packed at a time: each may hold 256 MB of them."""


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns:
    """Returns the turns of an event loop."""
    turns = _turns.get(loop)
    if turns is None:
        turns = _turns[loop] = Turns(loop, TURNS)
    return turns


_T = TypeVar("_T")
_R = TypeVar("_R")


def in_slices(
    loop: asyncio.AbstractEventLoop, items: Iterable[_T], work: Callable[[_T], _R]
) -> list[_R] | asyncio.Future[list[_R]]:
    """Call `work` on each item in turn. Returns the results, or a future of them if that takes longer than a slice.

    An exception of `work` goes to the caller or into the future.
    """

    def steps() -> Steps[list[_R]]:
        results = []
        for item in items:
            results.append(work(item))
            yield None
        return results

    return drive(loop, steps())


def drive(loop: asyncio.AbstractEventLoop, steps: Steps[_R]) -> _R | asyncio.Future[_R]:
    """Run steps, slice by slice. Returns their result, or a future of it if they take longer than a slice.

    Jobs run in a thread. An exception of the steps goes to the caller or into the future. Work that has begun is
    finished, even when nobody waits for it.
    """
    finished, result, job = one_slice(steps, SLICE_S)
    if finished:
        return result  # type: ignore[return-value]  # it is there once finished
    done: asyncio.Future[_R] = loop.create_future()
    _go_on_with(loop, steps, job, done, SLICE_S)
    return done


def drive_in_turn(loop: asyncio.AbstractEventLoop, steps: Steps[_R]) -> asyncio.Future[_R]:
    """Run steps as `drive` does. Their first job waits for its turn among those that take much memory; they keep it to their end."""
    done: asyncio.Future[_R] = loop.create_future()
    _go_on_with(loop, steps, None, done, LONG_SLICE_S, turns=turns_of(loop))
    return done


def _go_on_with(
    loop: asyncio.AbstractEventLoop,
    steps: Steps[_R],
    job: Job | None,
    done: asyncio.Future[_R],
    slice_s: float,
    *,
    turns: Turns | None = None,
) -> None:
    def go_on(error: Exception | None = None) -> None:
        try:
            finished, result, job = one_slice(steps, slice_s, error)
        except Exception as e:  # it belongs to whoever waits for the future
            if not done.cancelled():
                done.set_exception(e)
            return
        if not finished:
            then_go_on(job)
        elif not done.cancelled():
            done.set_result(result)  # type: ignore[arg-type]

    def job_done(future: asyncio.Future[Exception | None]) -> None:
        go_on(future.result())

    def in_thread(job: Job) -> None:
        loop.run_in_executor(None, _error_of, job).add_done_callback(job_done)

    def then_go_on(job: Job | None) -> None:
        nonlocal turns
        if job is None:
            lane_of(loop).next(go_on)
        elif turns is None:
            in_thread(job)
        else:
            done.add_done_callback(partial(_give_back, turns))
            turns.take(partial(in_thread, job))
            turns = None  # it has one

    then_go_on(job)


def _give_back(turns: Turns, _: asyncio.Future[Any]) -> None:
    turns.give_back()


def when_done(
    loop: asyncio.AbstractEventLoop, result: _R | asyncio.Future[_R], make: Callable[[_R], _T]
) -> _T | asyncio.Future[_T]:
    """Apply `make` to a result, at once or when its future is done. Returns the new result, or a future of it."""
    if not isinstance(result, asyncio.Future):
        return make(result)
    answer: asyncio.Future[_T] = loop.create_future()

    def settle(done: asyncio.Future[_R]) -> None:
        if done.cancelled():
            answer.cancel()
            return
        try:
            made = make(done.result())
        except Exception as e:
            if not answer.cancelled():
                answer.set_exception(e)
            return
        if not answer.cancelled():
            answer.set_result(made)

    result.add_done_callback(settle)
    return answer


def _error_of(job: Job) -> Exception | None:
    """Do a job. Returns its exception: the steps handle it, or raise it."""
    try:
        job()
    except Exception as e:
        return e
    return None


def one_slice(
    steps: Steps[_R], slice_s: float, error: Exception | None = None
) -> tuple[bool, _R | None, Job | None]:
    """Work until the slice's time is up or a job is due. Returns whether all is done, the result, and the job.

    `error` is the exception of the last job.
    """
    end = perf_counter() + slice_s
    try:
        job = next(steps) if error is None else steps.throw(error)
        while job is None and perf_counter() < end:
            job = next(steps)
    except StopIteration as finished:
        return True, finished.value, None
    return False, None, job
