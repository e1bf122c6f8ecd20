"""The supervisor's interface, so that tests may put something else in its place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from klamm.connect.children.usage import Usage
from klamm.connect.config import WorkerConfig
from klamm.connect.model import ConnectorSpec, Progress, RestartNote, StateEvent, TaskId, TaskSpec
from klamm.connect.plugins.requirements import ChildEnvironment
from klamm_plugins.metrics import MetricTable

OffsetReader = Callable[[str, list[dict[str, Any]]], Awaitable[list[dict[str, Any] | None]]]
"""(connector, source partitions) -> the stored offset of each, None where there is none."""

Answer = Callable[[dict[str, Any]], Awaitable[Any]]
"""Answers a child's request; raises KlammError with a sentence for the task."""


class FindEnvironment(Protocol):
    """Finds the environment in which a connector's processes run. Raises KlammError, ConfigError for a bad
    configuration. Without `strict`, a missing plugin version is no error.
    """

    async def __call__(
        self, config: Mapping[str, str], worker: Mapping[str, str], *, strict: bool = True
    ) -> ChildEnvironment: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """The functions of a worker that its supervisor calls; `Supervisor` documents each."""

    on_event: Callable[[StateEvent], None]
    on_progress: Callable[[TaskId, Progress], None]
    on_task_configs_changed: Callable[[str], None]
    read_offsets: OffsetReader
    requests: Mapping[str, Answer]
    environment_of: FindEnvironment


class Children(Protocol):
    """The methods of the supervisor; `klamm.connect.children.supervisor.Supervisor` documents each."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def kill_all(self) -> None: ...
    async def call(self, method: str, params: dict[str, Any], *, timeout_s: float = 30) -> Any: ...
    async def start_connector(self, spec: ConnectorSpec) -> None: ...
    async def stop_connector(self, name: str) -> None: ...
    async def task_configs(
        self, name: str, max_tasks: int, present: Sequence[Mapping[str, str]] = ()
    ) -> list[dict[str, str]]: ...
    async def start_task(self, spec: TaskSpec) -> None: ...
    async def stop_task(self, task: TaskId) -> None: ...
    async def set_paused(self, target: TaskId | str, paused: bool) -> None: ...
    async def update_task(self, spec: TaskSpec) -> None: ...
    async def signal_task(self, task: TaskId, signal: Mapping[str, Any]) -> bool: ...
    def progress(self, task: TaskId) -> Progress | None: ...
    def metrics(self, task: TaskId) -> list[MetricTable]: ...
    def restarts(self, target: TaskId | str) -> RestartNote | None: ...
    def usage(self, target: TaskId | str) -> Usage | None: ...
    def pid(self, target: TaskId | str) -> int | None: ...


MakeChildren = Callable[[WorkerConfig, Callbacks], Children]
