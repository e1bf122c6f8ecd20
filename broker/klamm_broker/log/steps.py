"""Work on the disk that can be interrupted: a generator that stops after each step and returns the result.

A step that yields a job has to wait for the disk: whoever drives it calls the job, in a thread if it likes, and goes on
when it has ended. What the job raises is raised in the generator, which can deal with it.

Whoever has a second runs it with `finish`; the server runs it in slices, so that its event loop goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar

_R = TypeVar("_R")
Job = Callable[[], None]
Steps = Generator[Job | None, None, _R]


def finish(steps: Steps[_R]) -> _R:
    """Do all that is left; the result. Raises what a step raises."""
    advance: Callable[[], Job | None] = steps.__next__
    while True:
        try:
            job = advance()
        except StopIteration as end:
            result: _R = end.value
            return result
        advance = steps.__next__
        if job is not None:
            try:
                job()
            except Exception as e:  # the generator deals with it, or raises it
                advance = partial(steps.throw, e)
