"""Decides when a demonstration gives up: when nothing moves, however long it has taken so far.

A stage moves when one of its figures changes or its processes compute. On a busy machine Spark's first batch changes no figure
for minutes. Computing counts for a limited time only, because a process may spin.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

WORK_SHARE: Final = 0.1
"""Processes that had this share of a core since the last look count as working. An idle Spark takes a few percent."""
WORK_TIMES: Final = 6
"""Work counts for this many times the patience after the last new figure."""


class Patience:
    """Decides whether to give up: when no figure has changed for `still_s`, and `cpu_s` (CPU seconds so far) shows no work either."""

    def __init__(self, still_s: float, cpu_s: Callable[[], float] = lambda: 0.0) -> None:
        self.still_s = still_s
        self._cpu_s = cpu_s
        self._figures: object = None
        self._moved_at = self._worked_at = time.monotonic()
        self._cpu_then = 0.0

    def over(self, figures: object) -> bool:
        """Notes the current figures, and returns True when it is time to give up."""
        now = time.monotonic()
        if figures != self._figures:
            self._figures, self._moved_at, self._worked_at, self._cpu_then = figures, now, now, self._cpu_s()
        elif now - self._worked_at > self.still_s:
            cpu_s = self._cpu_s()
            if cpu_s - self._cpu_then < WORK_SHARE * (now - self._worked_at):
                return True
            self._worked_at, self._cpu_then = now, cpu_s
        return now - self._moved_at > WORK_TIMES * self.still_s


def cpu_seconds(sessions: Collection[int], proc: Path = Path("/proc")) -> float:
    """Returns the CPU seconds of all processes in these sessions; 0 where the system does not say (no /proc)."""
    ticks = 0
    for stat in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) in sessions:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
