"""The weights of tasks when work is shared out. Pure.

A task's weight is its measured share of a core, plus a small constant, so that idle tasks are spread by
number. A task without a measurement weighs the average of its connector's other tasks, else the average of
all tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from klamm.connect.model import TaskId

# The weight of an idle task (its process, its heartbeats, its commits), in cores.
IDLE: Final = 0.05


class Weights:
    """Weight per task, in cores. `measured`: some load is known; without any, all weigh the same."""

    def __init__(self, tasks: Iterable[TaskId], loads: Mapping[str, float]) -> None:
        known: dict[TaskId, float] = {}
        by_connector: defaultdict[str, list[float]] = defaultdict(list)
        tasks = list(tasks)
        for task in tasks:
            load = loads.get(str(task))
            if load is not None:
                known[task] = IDLE + load
                by_connector[task.connector].append(IDLE + load)
        self.measured = bool(known)
        everywhere = _mean(list(known.values()), IDLE)
        means = {name: _mean(weights, everywhere) for name, weights in by_connector.items()}
        self._weights = {t: known.get(t, means.get(t.connector, everywhere)) for t in tasks}

    def __getitem__(self, task: TaskId) -> float:
        return self._weights.get(task, IDLE)


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
