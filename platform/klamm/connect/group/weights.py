"""How much a task weighs when work is shared out. Pure.

A task's weight is the share of a core that it was measured to take, plus a little for being there, so that tasks
that do nothing are spread by number. A task that nobody has measured yet weighs what its connector's other tasks
weigh on average, else what all do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from klamm.connect.model import TaskId

# A task that does nothing: a process, its heartbeats, its commits. In cores.
IDLE: Final = 0.05


class Weights:
    """Weight per task, in cores. `measured` says whether any load is known: without, all weigh the same."""

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
