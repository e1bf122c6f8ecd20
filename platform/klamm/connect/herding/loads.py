"""Measures the cost of the tasks on this worker for the group's balance: CPU seconds per second, and
throughput in the same unit.

The cost of work inside a task mostly shows as its CPU. Data that a task only hands on (a mirror's
batches) loads the network and the broker more than the task, so throughput counts on its own.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from klamm.connect.children.usage import usage_of
from klamm.connect.model import Progress, TaskId

LEAST_S: Final = 5.0  # a shorter time says little
# This throughput weighs as much as one core.
BYTES_PER_CORE: Final = 100_000_000
RECORDS_PER_CORE: Final = 1_000_000


class _Seen(NamedTuple):
    """A process at one moment: the time (monotonic s), and its cost until then."""

    at_s: float
    cost: float


class Loads:
    """Measures on request; each answer covers the time since the one before."""

    def __init__(
        self,
        tasks: Callable[[], Collection[TaskId]],
        pid: Callable[[TaskId], int | None],
        progress: Callable[[TaskId], Progress | None] = lambda _task: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tasks = tasks
        self._pid = pid
        self._progress = progress
        self._clock = clock
        self._seen: dict[tuple[TaskId, int], _Seen] = {}
        self._loads: dict[str, float] = {}
        self._measured_s = -math.inf

    def measure(self) -> Mapping[str, float]:
        """Returns the load per task (`name-0`); a task that has just started has none yet.

        Many rebalances in a row get the same answer: they look at no task, and do not ask the kernel.
        """
        now = self._clock()
        if now - self._measured_s < LEAST_S:
            return self._loads
        seen, loads = {}, {}
        pids = {task: pid for task in self._tasks() if (pid := self._pid(task)) is not None}
        sharing = Counter(pids.values())  # tasks of a shared process count alike
        usages = {pid: usage_of(pid) for pid in sharing}
        for task, pid in pids.items():
            usage = usages[pid]
            if usage is None:
                continue
            name, before = str(task), self._seen.get((task, pid))
            cost = usage.cpu_s / sharing[pid] + moved(self._progress(task))
            if before is not None:
                loads[name] = max(0.0, cost - before.cost) / (now - before.at_s)
            elif name in self._loads:
                loads[name] = self._loads[name]
            seen[task, pid] = _Seen(now, cost)
        self._seen, self._loads, self._measured_s = seen, loads, now
        return loads


def moved(progress: Progress | None) -> float:
    """Returns how much data a task has moved since it started, in core seconds."""
    if progress is None:
        return 0.0
    told: Any = progress.details.get("bytes")
    data = told if isinstance(told, int | float) else 0
    return progress.records / RECORDS_PER_CORE + data / BYTES_PER_CORE
