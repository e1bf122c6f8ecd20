"""The herder's memory of each connector and task: its last request for it, and the last state that was
reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from klamm.connect.model import PluginInfo, State, TaskSpec
from klamm_plugins.contexts import LIVE_SETTINGS


class Hold(Enum):
    """The hold of a task that was stopped because its config has changed: it waits until the group has met."""

    NO = auto()
    NEW = auto()  # the group was not called yet
    CALLED = auto()
    MET = auto()  # this worker went to the group when it had stopped already, as all others do
    OVER = auto()  # it may start


@dataclass(slots=True)
class HerdedTask:
    spec: TaskSpec
    hold: Hold = Hold.NO
    state: State = State.UNASSIGNED
    trace: str | None = None
    version: str | None = None
    shown_version: str | None = None


@dataclass(slots=True)
class HerdedConnector:
    """The herder's last request to the supervisor for one connector, and the supervisor's last report on it."""

    config: dict[str, str]
    plugin: PluginInfo | None
    runs: bool = False
    state: State | None = None  # as shown; None: nothing was shown yet
    trace: str | None = None
    epoch: int = 0  # of the question for task configs: an answer to an older question does not count
    retry_at_ms: int | None = None
    retries: int = 0
    answer: list[dict[str, str]] | None = None  # the newest; None: a question is open, or nobody can be asked
    committed: list[dict[str, str]] = field(default_factory=list)  # as of the last look
    tasks: dict[int, HerdedTask] = field(default_factory=dict)

    @property
    def version(self) -> str | None:
        return self.plugin.version if self.plugin else None


def made_of(spec: TaskSpec) -> tuple[dict[str, str], dict[str, str], int]:
    """Returns the parts of a task's spec whose change restarts it: all but the settings that the running task takes. A
    new generation of an exactly-once source fences all tasks of the one before.
    """
    live = frozenset(spec.task_config.get(LIVE_SETTINGS, "").split(","))
    task, connector = (
        {k: v for k, v in config.items() if k not in live}
        for config in (spec.task_config, spec.connector_config)
    )
    return task, connector, spec.generation
