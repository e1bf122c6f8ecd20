"""Tasks of a Kafka Streams application: a subtopology and a partition of its source topics, in three roles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

Tasks = Mapping[str, AbstractSet[int]]
"""Partitions by subtopology. No set is empty."""
EpochTasks = Mapping[str, Mapping[int, int]]
"""The epoch of the assignment, by subtopology and partition. No mapping is empty."""


class TaskId(NamedTuple):
    """One task, in the order in which Kafka sorts tasks."""

    subtopology: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """Tasks by role: a target assignment, or the tasks that a member says it owns."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedTasks:
    """The tasks of a member by role; active ones with the epoch in which they were assigned."""

    active: EpochTasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def overlaps(self, owned: TaskSet) -> bool:
        """Decides whether any of these tasks is owned in the same role."""
        return (
            overlap(self.active, owned.active)
            or overlap(self.standby, owned.standby)
            or overlap(self.warmup, owned.warmup)
        )

    def merged(self, other: OwnedTasks) -> OwnedTasks:
        """Returns the tasks of both."""
        active = {s: dict(t) for s, t in self.active.items()}
        for subtopology, tasks in other.active.items():
            active.setdefault(subtopology, {}).update(tasks)
        return OwnedTasks(
            active=active,
            standby=_union(self.standby, other.standby),
            warmup=_union(self.warmup, other.warmup),
        )


NO_TASKS = TaskSet()
NOTHING_OWNED = OwnedTasks()


def overlap(tasks: EpochTasks | Tasks, owned: Tasks) -> bool:
    """Decides whether any task is in both."""
    return any(
        not owned.get(subtopology, frozenset()).isdisjoint(found) for subtopology, found in tasks.items()
    )


def within(owned: Tasks, assigned: EpochTasks | Tasks) -> bool:
    """Decides whether all owned tasks are assigned."""
    return all(
        subtopology in assigned and all(p in assigned[subtopology] for p in found)
        for subtopology, found in owned.items()
    )


def each(tasks: EpochTasks | Tasks) -> Iterator[TaskId]:
    """Yields every task."""
    for subtopology, partitions in tasks.items():
        for partition in partitions:
            yield TaskId(subtopology, partition)


def _union(one: Tasks, other: Tasks) -> dict[str, frozenset[int]]:
    result = {s: frozenset(t) for s, t in one.items()}
    for subtopology, tasks in other.items():
        result[subtopology] = result.get(subtopology, frozenset()) | tasks
    return result
