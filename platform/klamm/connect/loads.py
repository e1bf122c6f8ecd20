"""What the tasks on this worker cost: CPU seconds per second, from their processes, for the group's balance."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from klamm.connect.model import TaskId
from klamm.connect.usage import usage_of

LEAST_S: Final = 5.0  # a shorter time says little


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
            usage = None if pid is None else usage_of(pid)
            if pid is None or usage is None:
                continue
            used = usage.cpu_s
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
