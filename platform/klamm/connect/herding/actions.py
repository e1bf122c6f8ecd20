"""What the herder asks the worker to do: plain data, carried out by the runtime in order per target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klamm.connect.model import ConnectorSpec, State, TaskId, TaskSpec

Target = str | TaskId
"""A connector (by name) or a task."""


@dataclass(frozen=True, slots=True)
class StartConnector:
    spec: ConnectorSpec


@dataclass(frozen=True, slots=True)
class StopConnector:
    name: str


@dataclass(frozen=True, slots=True)
class ComputeTasks:
    """Ask the connector for its task configs; the answer comes back with the same epoch."""

    name: str
    max_tasks: int
    epoch: int


@dataclass(frozen=True, slots=True)
class WriteTasks:
    """Write task configs and their commit to the config topic."""

    name: str
    configs: tuple[Mapping[str, str], ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class StartTask:
    """Start a task, once everything of its connector that was to be stopped before has ended; one of that id that
    runs is stopped first.
    """

    spec: TaskSpec


@dataclass(frozen=True, slots=True)
class StopTask:
    id: TaskId


@dataclass(frozen=True, slots=True)
class PauseTask:
    id: TaskId
    paused: bool


@dataclass(frozen=True, slots=True)
class PutStatus:
    target: Target
    state: State
    trace: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class DropStatus:
    target: Target


@dataclass(frozen=True, slots=True)
class SeeTopic:
    task: TaskId
    topic: str


@dataclass(frozen=True, slots=True)
class DropTopics:
    name: str


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The group is to decide anew who runs what; or it is the barrier behind which what has stopped starts again."""

    reason: str


Action = (
    StartConnector
    | StopConnector
    | ComputeTasks
    | WriteTasks
    | StartTask
    | StopTask
    | PauseTask
    | PutStatus
    | DropStatus
    | SeeTopic
    | DropTopics
    | Rejoin
)
