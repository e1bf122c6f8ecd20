"""Work on many things that lets the event loop breathe: a slice of them, then whoever else is due, then the next.

For requests that name thousands of topics: each takes a tenth of a millisecond or more, and nobody else shall wait
for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Final, TypeVar

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
    results: list[_R] = []
    left = iter(items)
    if _slice(left, work, results):
        return results
    done: asyncio.Future[list[_R]] = loop.create_future()

    def go_on() -> None:
        if done.cancelled():
            return
        try:
            finished = _slice(left, work, results)
        except Exception as e:  # it belongs to whoever waits for the future
            done.set_exception(e)
            return
        if finished:
            done.set_result(results)
        else:
            loop.call_soon(go_on)

    loop.call_soon(go_on)
    return done


def then(
    loop: asyncio.AbstractEventLoop,
    results: list[_R] | asyncio.Future[list[_R]],
    make: Callable[[list[_R]], _T],
) -> _T | asyncio.Future[_T]:
    """What `make` makes of the results of `in_slices`, now or in a future."""
    if isinstance(results, list):
        return make(results)
    answer: asyncio.Future[_T] = loop.create_future()

    def settle(done: asyncio.Future[list[_R]]) -> None:
        try:
            answer.set_result(make(done.result()))
        except Exception as e:
            answer.set_exception(e)

    results.add_done_callback(settle)
    return answer


def _slice(left: Iterator[_T], work: Callable[[_T], _R], results: list[_R]) -> bool:
    """Work until the slice's time is up; whether nothing is left."""
    end = perf_counter() + SLICE_S
    for item in left:
        results.append(work(item))
        if perf_counter() >= end:
            return False
    return True
