"""Starts, watches, restarts and stops the children that run plugin code. Runs none itself.

Lives in the worker's event loop; every method is called there. What to do after a failure is decided by
`restart_policy`; processes come from the fork server (`launcher`). State events tell what a child does now;
the herder decides what should run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from klamm.connect.model import ConnectorSpec, Progress, StateEvent, TaskId, TaskSpec
from klamm.connect.restart_policy import RestartPolicy
from klamm_base.errors import KlammError

OffsetReader = Callable[[str, list[dict[str, Any]]], Awaitable[list[dict[str, Any] | None]]]
"""(connector, source partitions) -> the stored offset of each, None where there is none."""


class PluginCallError(KlammError):
    """A plugin did not answer: its own sentence, an exit code or signal, or a timeout.

    `kind` is the class of the plugin's exception, or "timeout", "exit", "signal"; `trace` its traceback.
    """

    def __init__(self, message: str, *, kind: str, trace: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.trace = trace


class Supervisor:
    """See the module. `clock` gives monotonic milliseconds.

    `on_event` and `on_progress` are called in the event loop and must not block. `read_offsets` reads the
    offset topic to its end first. `on_task_configs_changed` gets the name of the connector that asked.
    """

    def __init__(
        self,
        *,
        on_event: Callable[[StateEvent], None],
        on_progress: Callable[[TaskId, Progress], None],
        on_task_configs_changed: Callable[[str], None],
        read_offsets: OffsetReader,
        policy: RestartPolicy,
        clock: Callable[[], int],
    ) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Start the fork server."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Stop every child gracefully (in parallel), then the fork server."""
        raise NotImplementedError

    async def call(self, method: str, params: dict[str, Any], *, timeout_s: float = 30) -> Any:
        """Run one plugin call in a child of its own. Raises PluginCallError; never hangs.

        - "list_plugins" {} -> [PluginInfo as list, ...]
        - "plugin_config" {"plugin": name} -> list of config key dicts (kafka's names: name, type, required,
          default_value, importance, documentation, group, order_in_group, width, display_name, dependents)
        - "validate" {"config": {...}, "worker": {...}} -> {"name", "kind", "version", "groups": [...],
          "values": [{"definition": {...}, "value": {name, value, recommended_values, errors, visible}}]}
        - "alter_offsets" {"config": {...}, "offsets": [[partition, offset | None], ...]} -> bool
        """
        raise NotImplementedError

    async def start_connector(self, spec: ConnectorSpec) -> None:
        """Start a connector's child; a running one of that name is stopped first. States come as events."""
        raise NotImplementedError

    async def stop_connector(self, name: str) -> None:
        """Stop it; returns when its process is gone. Nothing happens when there is none."""
        raise NotImplementedError

    async def task_configs(self, name: str, max_tasks: int) -> list[dict[str, str]]:
        """Ask the connector for its tasks' configs; waits until it runs. Raises PluginCallError."""
        raise NotImplementedError

    async def start_task(self, spec: TaskSpec) -> None:
        """Start a task's child; a running one of that id is stopped first. States come as events."""
        raise NotImplementedError

    async def stop_task(self, task: TaskId, timeout_s: float = 5) -> None:
        """Stop it gracefully (offsets committed), after `timeout_s` by force; returns when it is gone."""
        raise NotImplementedError

    async def set_paused(self, target: TaskId | str, paused: bool) -> None:
        """Pause or resume a task, or (by name) a connector; PAUSED or RUNNING comes as an event."""
        raise NotImplementedError

    async def restart(self, target: TaskId | str) -> None:
        """Stop and start a task, or (by name) a connector; its restart budget is full again."""
        raise NotImplementedError

    def progress(self, task: TaskId) -> Progress | None:
        """The last word of a task about its progress, None when there is none."""
        raise NotImplementedError
