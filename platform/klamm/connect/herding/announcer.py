"""Publishes on the event bus what changed in the config and status topics, whoever wrote it.

The announcer is level-triggered: a caller says that a connector or task may have changed, and the
announcer compares the present state with what it said last. So every worker of a group tells the same
story, once. It never publishes values of settings or secrets.
"""

from __future__ import annotations

from typing import Any

from klamm.connect.events import EventBus
from klamm.connect.model import TaskId
from klamm.connect.topics.config_topic import ConfigState, TargetState
from klamm.connect.topics.status_state import Status, StatusState

_Known = tuple[dict[str, str], TargetState, int]


class Announcer:
    """See the module. Silent until `begin`, because what the topics held before is no news."""

    def __init__(self, bus: EventBus, configs: ConfigState, statuses: StatusState) -> None:
        self._bus = bus
        self._configs = configs
        self._statuses = statuses
        self._said: dict[str, _Known] = {}
        self._shown: dict[str | TaskId, Status] = {}
        self._speaks = False

    def begin(self) -> None:
        """Publish changes from now on."""
        self._said = {name: self._now(name) for name in self._configs.connectors}
        for name in self._statuses.connectors():
            targets: list[str | TaskId] = [name, *self._statuses.tasks(name)]
            for target in targets:
                if (status := self._statuses.get(target)) is not None:
                    self._shown[target] = status
        self._speaks = True

    def config(self, name: str) -> None:
        """Compare a connector's configuration, target state and number of tasks with what was last published."""
        if not self._speaks:
            return
        before = self._said.get(name)
        if name not in self._configs:
            if before is not None:
                del self._said[name]
                self._bus.publish("connector.deleted", {"connector": name})
            return
        config, target, tasks = self._said[name] = self._now(name)
        if before is None:
            self._bus.publish("connector.created", {"connector": name})
        elif before[0] != config:
            changed = sorted(k for k in before[0].keys() | config.keys() if before[0].get(k) != config.get(k))
            self._bus.publish("connector.config", {"connector": name, "changed": changed})
        if target is not (before[1] if before else TargetState.STARTED):
            self._bus.publish("connector.target", {"connector": name, "target": target.value})
        if tasks != (before[2] if before else 0):
            self._bus.publish("tasks.config", {"connector": name, "tasks": tasks})

    def status(self, target: str | TaskId) -> None:
        """Compare the status of a connector (by name) or a task with what was last published."""
        if not self._speaks:
            return
        status, before = self._statuses.get(target), self._shown.get(target)
        if status is None:
            self._shown.pop(target, None)
            return
        self._shown[target] = status
        if before is not None and _seen(before) == _seen(status):
            return
        data: dict[str, Any] = {"state": status.state.value, "worker_id": status.worker_id}
        if status.trace:
            data["trace"] = status.trace
        if isinstance(target, TaskId):
            self._bus.publish("task.state", {"connector": target.connector, "task": target.task, **data})
        else:
            self._bus.publish("connector.state", {"connector": target, **data})

    def _now(self, name: str) -> _Known:
        return (
            self._configs.config(name) or {},
            self._configs.target(name),
            len(self._configs.tasks(name)),
        )


def _seen(status: Status) -> tuple[str, str, str | None]:
    return status.state.value, status.worker_id, status.trace
