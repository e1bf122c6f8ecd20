"""The connectors of a worker as the REST API sees them, in Kafka's terms: each method returns the JSON of
its endpoint.

Raises RequestError subclasses (with their HTTP status) and LogError. Config changes happen one at a
time, are acknowledged by the broker and read back before a method returns. This module knows no HTTP
and runs no plugin code.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from klamm.connect.children.supervisor import PluginCallError
from klamm.connect.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    RequestError,
    Starting,
)
from klamm.connect.herding.cluster import Elsewhere
from klamm.connect.model import State, TaskId
from klamm.connect.runtime import Runtime
from klamm.connect.service.offsets import ConnectorOffsets
from klamm.connect.service.plugins import Config, ConfigWithNulls, PluginService
from klamm.connect.service.redaction import has_hidden, unhide
from klamm.connect.settings.connector_keys import CONNECTOR_CLASS
from klamm.connect.settings.restart_policy import ErrorClass
from klamm.connect.topics.config_topic import (
    RestartRequest,
    Status,
    TargetState,
    connector_record,
    delete_records,
    restart_record,
    target_state_record,
    task_records,
)
from klamm.connect.topics.kafka_log import LogError
from klamm.web.request_counts import RequestCounts
from klamm_base.redaction import shown_name

log = logging.getLogger(__name__)

HEALTH_TIMEOUT_S: Final = 10.0
LOST: Final = (
    "This worker has lost contact with its group, and runs nothing until it is back. States are those that it last read; "
    "other workers may have gone on."
)
_AT_WORK: Final = (State.RUNNING, State.RESTARTING)


class ConnectService(PluginService):
    """See the module. `ready` once the worker has read its topics; `cluster_id` is the broker's."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.cluster_id: str | None = None
        self.offsets = ConnectorOffsets(runtime)
        self.requests = RequestCounts()
        self.ready = False

    async def health(self) -> str:
        """Returns "healthy"; raises Starting, or RequestError with the reason."""
        if not self.ready:
            raise Starting("Worker is still starting up.")
        try:
            await self._runtime.config_log.read_to_end(HEALTH_TIMEOUT_S)
        except LogError as e:
            raise RequestError(f"Worker cannot reach its topics: {e}") from None
        return "healthy"

    # Connectors

    def connectors(self) -> list[str]:
        return self._runtime.configs.connectors

    def info(self, name: str) -> dict[str, Any]:
        config = self.config(name)
        return self._info(name, config)

    def _info(self, name: str, config: Mapping[str, str]) -> dict[str, Any]:
        configs = self._runtime.configs
        # Another leader or request may have removed the record before this worker reads it back.
        runs = name in configs and configs.target(name) is not TargetState.STOPPED
        tasks = configs.tasks(name) if runs else []
        return {
            "name": name,
            "config": dict(config),
            "tasks": [{"connector": name, "task": i} for i in range(len(tasks))],
            "type": self._type(config),
        }

    def config(self, name: str) -> Config:
        config = self._runtime.configs.config(name)
        if config is None:
            raise NotFound(f"Connector {name} not found")
        return config

    def tasks(self, name: str) -> list[dict[str, Any]]:
        self.config(name)
        tasks = self._runtime.configs.tasks(name)
        return [{"id": {"connector": name, "task": i}, "config": c} for i, c in enumerate(tasks)]

    async def create(
        self, name: str, config: ConfigWithNulls, initial_state: TargetState | None = None
    ) -> dict[str, Any]:
        """Does POST /connectors."""
        await self._runtime.cluster.require_leader()
        checked = await self.checked(name, config)
        async with self._runtime.config_lock:
            if name in self._runtime.configs:
                raise AlreadyExists(f"Connector {name} already exists")
            records = [connector_record(name, checked.config)]
            if initial_state is not None:
                records.insert(0, target_state_record(name, initial_state))
            await self._runtime.write_config(records)
        _log_change(name, None, checked.config)
        return checked.add_to(self._info(name, checked.config))

    async def put_config(self, name: str, config: ConfigWithNulls) -> tuple[bool, dict[str, Any]]:
        """Does PUT config: returns whether the connector is new, and its present state. Values sent as [hidden]
        stay as they are.
        """
        await self._runtime.cluster.require_leader()
        hides = has_hidden(config)
        while True:
            base = self._runtime.configs.config(name)
            checked = await self.checked(name, unhide(config, base or {}))
            async with self._runtime.config_lock:
                before = self._runtime.configs.config(name)
                # Checking takes a moment: keep a password that another request set meanwhile.
                if not hides or before == base:
                    await self._runtime.write_config([connector_record(name, checked.config)])
                    _log_change(name, before, checked.config)
                    return before is None, checked.add_to(self._info(name, checked.config))

    async def patch_config(self, name: str, patch: ConfigWithNulls) -> dict[str, Any]:
        """Does PATCH config: sets keys, or removes them with null. Values sent as [hidden] stay as they are."""
        await self._runtime.cluster.require_leader()
        while True:
            base = self.config(name)
            changed: dict[str, str | None] = {**base, **unhide(patch, base)}
            checked = await self.checked(name, {k: v for k, v in changed.items() if v is not None})
            async with self._runtime.config_lock:
                # Checking takes a moment: do not undo a change that another request wrote meanwhile.
                if self.config(name) == base:
                    await self._runtime.write_config([connector_record(name, checked.config)])
                    _log_change(name, base, checked.config)
                    return checked.add_to(self._info(name, checked.config))

    async def delete(self, name: str) -> None:
        await self._runtime.cluster.require_leader()
        async with self._runtime.config_lock:
            self.config(name)
            await self._runtime.write_config(delete_records(name))
        log.info("connector %s is deleted", name)

    def target(self, name: str) -> TargetState:
        """Returns the state that a connector is to have."""
        return self._runtime.configs.target(name)

    async def set_target(self, name: str, state: TargetState) -> None:
        """Pauses, resumes or stops a connector. The leader removes the tasks of a stopped connector, which has
        none; any worker does the rest.
        """
        by_leader = state is TargetState.STOPPED
        if by_leader:
            await self._runtime.cluster.require_leader()
        async with self._runtime.config_lock:
            if name not in self._runtime.configs:
                raise NotFound(f"Unknown connector {name}")
            records = [target_state_record(name, state)]
            if state is TargetState.STOPPED:
                records = [*task_records(name, []), *records]
            await self._runtime.write_config(records, by_leader=by_leader)

    async def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> dict[str, Any]:
        """Restarts; returns the connector's state, with RESTARTING for everything that restarts.

        A connector alone restarts on its worker. A request for tasks goes to all workers (KIP-745).
        """
        if name not in self._runtime.configs:
            raise NotFound(f"Unknown connector: {name}")
        if not include_tasks and not only_failed:
            await self._runtime.cluster.require_owner(name)
            self._runtime.restart(RestartRequest(connector=name, include_tasks=False, only_failed=False))
            return await self.status(name)
        await self._runtime.cluster.require_leader()
        plan = await self._restart_plan(name, include_tasks=include_tasks, only_failed=only_failed)
        request = RestartRequest(connector=name, include_tasks=include_tasks, only_failed=only_failed)
        async with self._runtime.config_lock:
            await self._runtime.write_config([restart_record(request)])
        return plan

    async def _restart_plan(self, name: str, *, include_tasks: bool, only_failed: bool) -> dict[str, Any]:
        """Returns the status after the restart. A paused or stopped connector does not run and is not restarted."""
        plan = await self.status(name)
        self.config(name)  # its status outlives it for a moment
        runs = self._runtime.configs.target(name) is TargetState.STARTED
        chosen = [plan["connector"]] if runs else []
        for each in [*chosen, *(plan["tasks"] if include_tasks else [])]:
            if not only_failed or each["state"] == State.FAILED:
                each["state"] = State.RESTARTING
        # One of Apache's workers may have forwarded the request; its JSON parser accepts Kafka's keys only.
        plan.pop("note", None)
        for each in [plan["connector"], *plan["tasks"]]:
            each.pop("progress", None)
            each.pop("restart", None)
        return plan

    async def restart_task(self, id: TaskId) -> None:
        await self._require_task(id)
        try:
            self._runtime.perform(self._runtime.herder.restart_task(id))
        except KeyError:
            raise NotFound(f"Unknown task: {id}") from None

    async def signal_task(self, id: TaskId, signal: Mapping[str, Any]) -> None:
        """Hands a signal to a running task, on the worker that runs it."""
        await self._require_task(id)
        try:
            taken = await self._runtime.children.signal_task(id, signal)
        except PluginCallError as e:
            if e.kind in {ErrorClass.CONFIG, ErrorClass.DATA}:
                raise BadRequest(f"Task {id} refuses the signal: {e}") from None
            raise Conflict(f"Task {id} cannot take the signal now: {e}") from e
        if not taken:
            raise BadRequest(f"Task {id} takes no signals: its plugin has no use for them")

    async def _require_task(self, id: TaskId) -> None:
        """Raises NotFound for a task that there is not, NotAssigned for one that does not run here."""
        configs = self._runtime.configs
        if id.connector not in configs:
            raise NotFound(f"Unknown connector: {id.connector}")
        if id.task >= len(configs.tasks(id.connector)):
            raise NotFound(f"Unknown task: {id}")
        await self._runtime.cluster.require_owner(id)

    # State

    async def status(self, name: str) -> dict[str, Any]:
        """Returns Kafka's keys and our own: `progress` of tasks that run, `restart` of what has failed."""
        statuses = self._runtime.statuses
        if statuses.get(name) is None:
            raise NotFound(f"No status found for connector {name}")
        tasks = statuses.tasks(name)
        elsewhere = await self._elsewhere([name, *tasks])
        status = statuses.get(name)
        if status is None:  # gone while others were asked
            raise NotFound(f"No status found for connector {name}")
        config = self._runtime.configs.config(name) or {}
        here = name in self._runtime.herder.assigned.connectors
        return {
            "name": name,
            **({"note": LOST} if self._runtime.lost else {}),
            "connector": self._state(status)
            | dict(self.details(name) if here else elsewhere.connectors.get(name, {})),
            "tasks": [self._task_state(task, elsewhere) for task in tasks if statuses.get(task) is not None],
            "type": self._type(config),
        }

    async def task_status(self, id: TaskId) -> dict[str, Any]:
        if self._runtime.statuses.get(id) is not None:
            elsewhere = await self._elsewhere([id])
            if self._runtime.statuses.get(id) is not None:
                return self._task_state(id, elsewhere)
        raise NotFound(f"No status found for task {id}")

    async def _elsewhere(self, targets: Sequence[str | TaskId]) -> Elsewhere:
        """Returns the other workers' reports, if any of these targets runs there."""
        assigned = self._runtime.herder.assigned
        if all(t in (assigned.tasks if isinstance(t, TaskId) else assigned.connectors) for t in targets):
            return Elsewhere()
        return await self._runtime.cluster.elsewhere()

    def _task_state(self, id: TaskId, elsewhere: Elsewhere) -> dict[str, Any]:
        status = self._runtime.statuses.get(id)
        assert status is not None, "callers looked"
        here = id in self._runtime.herder.assigned.tasks
        details = dict(self.task_details(id) if here else elsewhere.tasks.get(str(id), {}))
        if status.state not in {State.RUNNING, State.PAUSED}:
            details.pop("progress", None)
        return {"id": id.task, **self._state(status), **details}

    def _state(self, status: Status) -> dict[str, Any]:
        """Returns the status as the status topic has it. A worker that has lost its membership has killed all of
        its tasks: its own running statuses become UNASSIGNED.
        """
        runtime = self._runtime
        if runtime.lost and status.worker_id == runtime.worker_id and status.state in _AT_WORK:
            return _state(replace(status, state=State.UNASSIGNED, trace=None))
        return _state(status)

    def task_details(self, id: TaskId) -> dict[str, Any]:
        """Returns `progress` (`details` only where it has some) and `restart` of a task on this worker."""
        progress = self._runtime.children.progress(id)
        if progress is None:
            return self.details(id)
        return {"progress": progress.shown(), **self.details(id)}

    def details(self, target: str | TaskId) -> dict[str, Any]:
        """Returns `restart`, the restart policy's note on the last failure, of something that runs on this worker."""
        note = self._runtime.children.restarts(target)
        if note is None:
            return {}
        return {"restart": {k: v for k, v in asdict(note).items() if v is not None}}

    def topics(self, name: str) -> dict[str, Any]:
        if not self._runtime.config["topic.tracking.enable"]:
            raise Forbidden("Topic tracking is disabled.")
        return {name: {"topics": sorted(t.topic for t in self._runtime.statuses.topics(name))}}

    def reset_topics(self, name: str) -> None:
        config = self._runtime.config
        if not config["topic.tracking.enable"]:
            raise Forbidden("Topic tracking is disabled.")
        if not config["topic.tracking.allow.reset"]:
            raise Forbidden("Topic tracking reset is disabled.")
        self._runtime.drop_topics(name)


def _log_change(name: str, before: Config | None, now: Config) -> None:
    """Logs the names of changed keys, never their values, which may be secrets."""
    if before is None:
        log.info("connector %s is created: %s", name, now[CONNECTOR_CLASS])
        return
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    log.info(
        "connector %s has a new config; changed: %s", name, ", ".join(map(shown_name, changed)) or "nothing"
    )


def _state(status: Status) -> dict[str, Any]:
    answer: dict[str, Any] = {"state": status.state, "worker_id": status.worker_id}
    if status.version is not None:
        answer["version"] = status.version
    if status.trace:
        answer["trace"] = status.trace
    return answer
