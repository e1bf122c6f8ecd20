"""Work on many things that lets the event loop breathe: a slice of them, then whoever else is due, then the next.

For requests that name thousands of topics: each takes a tenth of a millisecond or more, and nobody else shall wait
for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Final, TypeVar

from klamm_broker.log.steps import Job, Steps

SLICE_S: Final = 0.005
"""How long a slice may take: less than a small answer takes on its way."""

_T = TypeVar("_T")
_R = TypeVar("_R")


def in_slices(
    loop: asyncio.AbstractEventLoop, items: Iterable[_T], work: Callable[[_T], _R]
) -> list[_R] | asyncio.Future[list[_R]]:
    """`work` on each item in turn; the results, or, when it takes longer than a slice, a future of them.

    What `work` raises goes to the caller or into the future.
    """

    def steps() -> Steps[list[_R]]:
        results = []
        for item in items:
            results.append(work(item))
            yield None
        return results

    return drive(loop, steps())


def drive(loop: asyncio.AbstractEventLoop, steps: Steps[_R]) -> _R | asyncio.Future[_R]:
    """Run steps, slice by slice; their result, or a future of it when they take longer than a slice.

    Jobs are done in a thread. What the steps raise goes to the caller or into the future. Work that has begun ends, also when nobody waits for it.
    """
    finished, result, job = _slice(steps)
    if finished:
        return result  # type: ignore[return-value]  # it is there once finished
    done: asyncio.Future[_R] = loop.create_future()

    def go_on(error: Exception | None = None) -> None:
        try:
            finished, result, job = _slice(steps, error)
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

    def then_go_on(job: Job | None) -> None:
        if job is None:
            loop.call_soon(go_on)
        else:
            loop.run_in_executor(None, _error_of, job).add_done_callback(job_done)

    then_go_on(job)
    return done


def when_done(
    loop: asyncio.AbstractEventLoop, result: _R | asyncio.Future[_R], make: Callable[[_R], _T]
) -> _T | asyncio.Future[_T]:
    """What `make` makes of a result, now or in a future."""
    if not isinstance(result, asyncio.Future):
        return make(result)
    answer: asyncio.Future[_T] = loop.create_future()

    def settle(done: asyncio.Future[_R]) -> None:
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
    """Do a job; what went wrong: the steps deal with it, or raise it."""
    try:
        job()
    except Exception as e:
        return e
    return None


def _slice(steps: Steps[_R], error: Exception | None = None) -> tuple[bool, _R | None, Job | None]:
    """Work until the slice's time is up or a job is to be done; whether all is done, what came of it, and the job.

    `error` is what the last job raised.
    """
    end = perf_counter() + SLICE_S
    try:
        job = next(steps) if error is None else steps.throw(error)
        while job is None and perf_counter() < end:
            job = next(steps)
    except StopIteration as finished:
        return True, finished.value, None
    return False, None, job
