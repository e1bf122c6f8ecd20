"""Log lines that clients can cause: few are told, many are counted. Event loop's thread only."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

LINES_MAX: Final = 10
LINES_S: Final = 10.0
"""So many lines of a kind are logged in so many seconds, and then how many more there were."""


class FewLines:
    """The lines of one kind. `what` is told after "12 more"."""

    def __init__(self, log: logging.Logger, what: str, lines_max: int = LINES_MAX) -> None:
        self._log = log
        self._what = what
        self._lines_max = lines_max
        self._since = -LINES_S
        self._count = 0

    def level(self, loop: asyncio.AbstractEventLoop, usual: int = logging.WARNING) -> int:
        """Count a line. Returns the level to log it with."""
        now = loop.time()
        if now - self._since >= LINES_S:
            self._since, self._count = now, 0
            loop.call_later(LINES_S, self._tell)
        self._count += 1
        return usual if self._count <= self._lines_max else logging.DEBUG

    def _tell(self) -> None:
        if self._count > self._lines_max:
            self._log.warning("%d more %s within %d s", self._count - self._lines_max, self._what, LINES_S)
