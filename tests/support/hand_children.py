"""The worker's engine with children in the test's hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from support.connect_worker import worker_properties

from klamm.connect.children.interface import Callbacks
from klamm.connect.children.supervisor import PluginCallError
from klamm.connect.config import WorkerConfig
from klamm.connect.model import ConnectorSpec, Progress, State, StateEvent, TaskId, TaskSpec
from klamm.connect.runtime import Runtime
from klamm_plugins.metrics import MetricTable

CONVERTERS = "org.apache.kafka.connect"


class HandChildren:
    """Children that do at once what is asked, but for stops of tasks in `slow`: those wait to be let go."""

    def __init__(self, callbacks: Callbacks) -> None:
        self.callbacks = callbacks
        self.tasks: dict[TaskId, TaskSpec] = {}
        self.slow: dict[TaskId, asyncio.Event] = {}
        self.log: list[str] = []
        self.paths: set[str] = set()  # classes that no package lists

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def call(self, method: str, params: dict[str, Any], *, timeout_s: float = 60) -> Any:
        if method == "alter_offsets":
            return True
        if method == "validate":
            name = params["config"]["connector.class"]
            self.log.append(f"validate {name}")
            if name not in self.paths:
                raise PluginCallError(f"there is no {name}", kind="config")
            return {"name": name, "kind": "source", "version": "1"}
        assert method == "list_plugins"
        json, headers = f"{CONVERTERS}.json.JsonConverter", f"{CONVERTERS}.storage.SimpleHeaderConverter"
        rows = [["Src", "source", "1"], [json, "converter", "1"], [headers, "header_converter", "1"]]
        return {"plugins": rows, "broken": [], "files": []}

    async def start_connector(self, spec: ConnectorSpec) -> None:
        self.callbacks.on_event(StateEvent(connector=spec.name, task=None, state=State.RUNNING))

    async def stop_connector(self, name: str) -> None:
        pass

    async def task_configs(
        self, name: str, max_tasks: int, present: Sequence[Mapping[str, str]] = ()
    ) -> list[dict[str, str]]:
        return [{"n": str(i)} for i in range(max_tasks)]

    async def start_task(self, spec: TaskSpec) -> None:
        self.tasks[spec.id] = spec
        self.log.append(f"start {spec.id}")

    async def signal_task(self, task: TaskId, signal: Mapping[str, Any]) -> bool:
        raise NotImplementedError

    async def update_task(self, spec: TaskSpec) -> None:
        self.tasks[spec.id] = spec
        self.log.append(f"update {spec.id}")

    async def stop_task(self, task: TaskId) -> None:
        if task in self.slow:
            await self.slow[task].wait()
        self.tasks.pop(task, None)
        self.log.append(f"stop {task}")

    async def kill_all(self) -> None:
        self.tasks.clear()

    def pid(self, target: TaskId | str) -> int | None:
        return None

    async def set_paused(self, target: TaskId | str, paused: bool) -> None:
        pass

    def restarts(self, target: TaskId | str) -> None:
        return None

    def usage(self, target: TaskId | str) -> None:
        return None

    def progress(self, task: TaskId) -> Progress | None:
        return None

    def metrics(self, task: TaskId) -> list[MetricTable]:
        return []


def make(bootstrap: str, **properties: str) -> tuple[Runtime, HandChildren]:
    group = f"lanes-{time.monotonic_ns()}"
    config = WorkerConfig.from_properties(worker_properties(bootstrap, group, **properties))
    made: list[HandChildren] = []

    def children(_config: WorkerConfig, callbacks: Callbacks) -> HandChildren:
        made.append(HandChildren(callbacks))
        return made[0]

    client = {"bootstrap.servers": bootstrap}
    return Runtime(config, client=client, worker_id="w:1", make_children=children), made[0]
