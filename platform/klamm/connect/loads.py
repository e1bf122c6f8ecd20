"""What the tasks on this worker cost: CPU seconds per second, from their processes, for the group's balance."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from klamm.connect.model import TaskId

LEAST_S: Final = 5.0  # a shorter time says little
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Loads:
    """Asked now and then; each answer is about the time since the one before it."""

    def __init__(self, tasks: Callable[[], Collection[TaskId]], pid: Callable[[TaskId], int | None]) -> None:
        self._tasks = tasks
        self._pid = pid
        self._seen: dict[int, tuple[float, float]] = {}  # per process: monotonic s, CPU s
        self._loads: dict[str, float] = {}

    def measure(self) -> Mapping[str, float]:
        """Load per task (`name-0`); a task that has just started has none yet."""
        now = time.monotonic()
        seen, loads = {}, {}
        for task in self._tasks():
            pid = self._pid(task)
            used = None if pid is None else cpu_s(pid)
            if pid is None or used is None:
                continue
            since, before = self._seen.get(pid, (now, used))
            if now - since >= LEAST_S:
                loads[str(task)] = (used - before) / (now - since)
                seen[pid] = (now, used)
            else:
                seen[pid] = (since, before)
                if str(task) in self._loads:
                    loads[str(task)] = self._loads[str(task)]
        self._seen, self._loads = seen, loads
        return loads


def cpu_s(pid: int) -> float | None:
    """User and system time of a process, None when there is none (or no /proc)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
