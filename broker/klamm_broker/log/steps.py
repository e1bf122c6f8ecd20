"""Work on the disk that can be interrupted: a generator that stops after each step and returns the result.

Whoever has a second runs it with `finish`; the server runs it in slices, so that its event loop goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

_R = TypeVar("_R")
Steps = Generator[None, None, _R]


def finish(steps: Generator[None, None, _R]) -> _R:
    """Do all that is left; the result. Raises what a step raises."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _R = end.value
            return result
