"""Messages that are logged at intervals, however often there is a reason for them.

Threads may share a `Sparing`: its dict is replaced, never changed. At worst a message comes twice.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

_FORGOTTEN_AFTER: Final = 10
"""A subject is forgotten after so many intervals without a message. There may be a subject for each file."""


@dataclass(slots=True)
class _Said:
    at: float
    left_out: int = 0


class Sparing:
    """A gate that lets a message about the same subject through at most every `every_s` seconds, and counts those in
    between.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._said: dict[str, _Said] = {}

    def left_out(self, about: str, now: float) -> int | None:
        """Returns how many messages were left out since the last one, if another may be logged now; else None.

        With None this message, too, counts as left out.
        """
        last = self._said.get(about)
        if last is not None and now - last.at < self._every_s:
            last.left_out += 1
            return None
        horizon = now - _FORGOTTEN_AFTER * self._every_s
        kept = {subject: said for subject, said in self._said.items() if said.at > horizon}
        self._said = kept | {about: _Said(now)}
        return 0 if last is None else last.left_out

    def forget(self, about: str) -> None:
        """Lets the next message about this subject through."""
        self._said = {subject: said for subject, said in self._said.items() if subject != about}

    def warning(self, log: logging.Logger, about: str, text: str) -> None:
        """Logs the text if another may be logged now, with the number of messages about the subject that were left out."""
        left_out = self.left_out(about, time.monotonic())
        if left_out:
            log.warning("%s (%d more like this since the last time)", text, left_out)
        elif left_out is not None:
            log.warning("%s", text)
