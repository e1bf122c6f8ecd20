"""Interruptible work on the disk: a generator that stops after each step and returns the result.

A step that yields a job has to wait for the disk. The caller runs the job, in a thread if it likes, and resumes the
generator when the job has ended. An exception of the job is raised in the generator, which can handle it.

`finish` runs all steps at once; the server runs them in slices, so that its event loop goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar

_R = TypeVar("_R")
Job = Callable[[], None]
Steps = Generator[Job | None, None, _R]


def finish(steps: Steps[_R]) -> _R:
    """Do all steps that are left. Returns the result; raises what a step raises."""
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
            except Exception as e:  # the generator handles it, or raises it
                advance = partial(steps.throw, e)
