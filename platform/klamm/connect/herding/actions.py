"""The actions that the herder asks the worker for: plain data, which the runtime carries out in order per
target.
"""

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
    """Start a task, after everything of its connector that was asked to stop has ended. A running task of that
    id is stopped first.
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
class UpdateTask:
    """Give a running task its changed settings, all of which it takes without a restart."""

    id: TaskId
    spec: TaskSpec


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
    """Ask the group to rebalance: either to decide anew who runs what, or as the barrier behind which stopped
    tasks start again.
    """

    reason: str


Action = (
    StartConnector
    | StopConnector
    | ComputeTasks
    | WriteTasks
    | StartTask
    | StopTask
    | PauseTask
    | UpdateTask
    | PutStatus
    | DropStatus
    | SeeTopic
    | DropTopics
    | Rejoin
)
