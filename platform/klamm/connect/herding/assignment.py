"""The assignment of a worker, and the view of the config topic that the group assigns: plain data between
group and herder.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from klamm.connect.model import TaskId
from klamm.connect.topics.config_topic import ConfigState, TargetState


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The connectors and tasks that the group wants this worker to run."""

    connectors: frozenset[str] = frozenset()
    tasks: frozenset[TaskId] = frozenset()

    def without(self, connectors: Collection[str], tasks: Collection[TaskId]) -> Assignment:
        return Assignment(
            connectors=self.connectors.difference(connectors), tasks=self.tasks.difference(tasks)
        )

    def names(self) -> set[str]:
        """Returns every connector of which this worker runs something."""
        return {*self.connectors, *(task.connector for task in self.tasks)}

    def differing(self, other: Assignment) -> set[str]:
        """Returns every connector of which the other has something else."""
        tasks = self.tasks ^ other.tasks
        return {*(self.connectors ^ other.connectors), *(task.connector for task in tasks)}


def view(config: ConfigState) -> dict[str, int]:
    """Returns every connector with the number of its tasks that should run: what the group has to assign."""
    return {
        name: 0 if config.target(name) is TargetState.STOPPED else len(config.tasks(name))
        for name in config.connectors
    }


def everything(config: ConfigState) -> Assignment:
    """Returns the assignment of a worker that is alone."""
    there = view(config)
    return Assignment(
        connectors=frozenset(there),
        tasks=frozenset(TaskId(name, i) for name, count in there.items() for i in range(count)),
    )
