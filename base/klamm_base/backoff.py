"""Pauses between tries that double with every failure in a row, up to a limit. Pure: time and chance are passed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_S: Final = 0.1
LONGEST_S: Final = 5.0
_DOUBLINGS_MAX: Final = 40
"""No caller waits for a longer pause. The cap keeps a large number of failures from overflowing."""


def pause(failures: int, *, first: float, longest: float, jitter: float = 0.0, chance: float = 0.0) -> float:
    """Returns the pause after this many failures in a row (from 1), in the unit of `first` and `longest`.

    `jitter` is the largest part of the pause by which it may be shortened, so that many clients do not come back at the
    same time; `chance` in [0, 1] says how much of that part this time.
    """
    full = min(longest, first * 2.0 ** min(failures - 1, _DOUBLINGS_MAX))
    return full * (1 - jitter * chance)


@dataclass(slots=True)
class Backoff:
    """The time at which the next try may begin (`until`, on the caller's clock). `why` is the last failure, None when
    all is well.
    """

    first_s: float = FIRST_S
    longest_s: float = LONGEST_S
    until: float = 0.0
    why: str | None = None
    _failures: int = 0

    def failed(self, now: float, why: str) -> float:
        """Notes a failure, and returns the pause after it."""
        self._failures += 1
        wait_s = pause(self._failures, first=self.first_s, longest=self.longest_s)
        self.until, self.why = now + wait_s, why
        return wait_s

    def succeeded(self) -> None:
        """Forgets the failures: the next one is followed by the shortest pause."""
        self.until, self.why, self._failures = 0.0, None, 0
