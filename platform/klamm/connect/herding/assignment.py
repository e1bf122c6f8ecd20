"""What a worker runs of what there is: plain data between the group and the herder."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from klamm.connect.model import TaskId
from klamm.connect.topics.config_topic import ConfigState, TargetState


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the group wants this worker to run."""

    connectors: frozenset[str] = frozenset()
    tasks: frozenset[TaskId] = frozenset()

    def without(self, connectors: Collection[str], tasks: Collection[TaskId]) -> Assignment:
        return Assignment(
            connectors=self.connectors.difference(connectors), tasks=self.tasks.difference(tasks)
        )

    def names(self) -> set[str]:
        """Every connector of which this worker runs something."""
        return {*self.connectors, *(task.connector for task in self.tasks)}


def view(config: ConfigState) -> dict[str, int]:
    """What there is to assign: every connector and how many tasks of it are to run."""
    return {
        name: 0 if config.target(name) is TargetState.STOPPED else len(config.tasks(name))
        for name in config.connectors
    }


def everything(config: ConfigState) -> Assignment:
    """The assignment of a worker that is alone."""
    there = view(config)
    return Assignment(
        connectors=frozenset(there),
        tasks=frozenset(TaskId(name, i) for name, count in there.items() for i in range(count)),
    )
