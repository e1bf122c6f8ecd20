"""The data between the worker and its children: ids, specs and events.

Everything here converts to and from JSON (`to_json`, `from_json`), because the control channel is lines
of JSON. No I/O, no plugin code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

STANDALONE: Final = "klamm.standalone"
"""A worker property that the worker adds for its tasks: "true" when it keeps their source offsets itself."""


class TaskId(NamedTuple):
    """The id of a connector's task (Kafka: ConnectorTaskId). Prints as `name-0`."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


def transactional_id(group_id: str, task: TaskId) -> str:
    """Returns the id of an exactly-once task's producer (Kafka: Worker.taskTransactionalId)."""
    return f"{group_id}-{task.connector}-{task.task}"


class Kind(StrEnum):
    """The kinds of things that a child hosts."""

    SOURCE = "source"
    SINK = "sink"
    CONNECTOR = "connector"


class State(StrEnum):
    """States of connectors and tasks as Connect's status API spells them."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    DESTROYED = "DESTROYED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorSpec:
    """Everything that a child needs to host a connector, which computes task configs and watches for changes."""

    name: str
    config: dict[str, str]
    worker: dict[str, str]
    paused: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ConnectorSpec:
        return cls(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """Everything that a child needs to run a task.

    `connector_config` is the connector's raw config, `task_config` the part that the connector gave this task,
    `worker` the worker properties that a task needs (bootstrap.servers, converters, offset topic, producer.*
    and consumer.* settings). `paused` starts the task paused. `generation` numbers the connector's sets of task
    configs: an exactly-once source does not start when a set with a higher number exists.
    """

    id: TaskId
    kind: Kind
    connector_config: dict[str, str]
    task_config: dict[str, str]
    worker: dict[str, str]
    paused: bool = False
    generation: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"id": list(self.id)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TaskSpec:
        return cls(**data | {"id": TaskId(*data["id"]), "kind": Kind(data["kind"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A task's progress, which it reports at least once a second while it lives.

    `last_ack_ms`: epoch ms of the last record acknowledged downstream (None: none yet). `records`:
    acknowledged since the task started (a sink counts the records that `put` took). `lag`: records behind
    (sink), None when unknown. `waiting_for`: None while the task moves, otherwise the reason why it does
    not: "input", "broker", "target", "paused", "assignment" of partitions, "done" (nothing is left to do),
    "plugin" (its code holds the interpreter), or a driver task's own word. `details`: a driver task's own
    figures, as JSON values. `retrying`: the operation that the task repeats, and why (see
    `child.error_figures`).
    """

    records: int = 0
    last_ack_ms: int | None = None
    lag: int | None = None
    waiting_for: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def shown(self) -> dict[str, Any]:
        """Returns the fields for a status, `details` only where there are some. The details are not copied."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "details" or self.details}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartNote:
    """The restart policy's decision on the last failure of a connector or task, for its status.

    `error` is the class of the error, `failed_ms` its time. `attempt` counts restarts since the last healthy
    period; 0 means no restart, and `why` gives the reason. `next_try_ms` is the time of the next or last
    restart. The policy still allows `left` of `budget` restarts within `window_ms`. Times are epoch ms.
    """

    error: str
    failed_ms: int
    budget: int
    window_ms: int
    left: int
    attempt: int = 0
    next_try_ms: int | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEvent:
    """A change of a child's state, told by the supervisor. `task` is None for the connector itself.

    `trace` is the error text of FAILED and RESTARTING (no secrets), `attempt` the restart number of
    RESTARTING, `version` the plugin's version. `topics` are the topics that the task has used since it
    started; each new topic repeats the RUNNING event. `restart` is set after the first failure.
    """

    connector: str
    task: int | None
    state: State
    trace: str | None = None
    attempt: int = 0
    version: str | None = None
    topics: list[str] = field(default_factory=list)
    restart: RestartNote | None = None


class PluginInfo(NamedTuple):
    """One row of GET /connector-plugins: class name, kind (source, sink, converter, …) and version.

    `names` are all names of the plugin; a short name may also mean another plugin. `entry_point` is the name
    and module of its entry point, `package` the installed package that has it (`name==version`; empty:
    beside the worker).
    """

    plugin_class: str
    type: str
    version: str
    names: Sequence[str] = ()
    entry_point: Sequence[str] = ()
    package: str = ""
