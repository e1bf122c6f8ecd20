"""The status of a flow, as its own process knows it: no topic is read, and nobody else is asked.

Tasks report figures of their partitions every two seconds, less often with thousands of them. What they say is as
old as that; ages and lags in seconds are those of the moment of the answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from klamm.connect.model import State, TaskId
from klamm.mirror.shapes import (
    ConnectorStatus,
    FlowState,
    FlowStatus,
    PartitionStatus,
    TaskStatus,
    UpkeepStatus,
)
from klamm_mirror.copy.lag_tables import STATUS_COLUMNS, STATUS_PREFIX
from klamm_mirror.settings.mm2_config import CHECKPOINT, HEARTBEAT, SOURCE, Flow, connectors_of

if TYPE_CHECKING:
    from klamm.connect.service.connectors import ConnectService

STATUS_PATH: Final = "/status"
UPKEEP: Final = ("schemas", "quotas", "users")
STALE_MS: Final = 15_000
"""Figures so old are those of a task that hangs or pauses: nothing is known of the time since."""
PATIENCE_MS: Final = 5_000
"""A flow that has not reached its target after this time waits for it."""
CLUSTERS: Final = frozenset({"source", "target", "broker"})
"""The things that a task may wait for and that are the matter of an operator."""


class FlowTold:
    """Makes the status of the flow that this process runs."""

    def __init__(self, flow: Flow, service: ConnectService) -> None:
        self._flow = flow
        self._service = service
        self._began_ms = time.time_ns() // 1_000_000
        self.stranger: str | None = None
        """A sentence while another program holds the flow's group."""
        self.held: str | None = None
        """A sentence while a move of applications holds the flow."""

    def page(self) -> bytes:
        """Returns the status of now as JSON."""
        return orjson.dumps(self.status(time.time_ns() // 1_000_000))

    def status(self, now_ms: int) -> FlowStatus:
        """Returns the status at a time, ms."""
        connectors = [self._connector(name) for name in sorted(connectors_of(self._flow))]
        rows, total = self._reported()
        partitions = sorted((_partition(row, now_ms) for row in rows), key=_badness)
        stopped = [p for p in partitions if p["state"] == State.STOPPED]
        upkeep = self._upkeep(now_ms)
        state, why = self._state(connectors, stopped, upkeep)
        known = [p for p in partitions if p["lag"] is not None]
        lag = sum(p["lag"] or 0 for p in known) if known else None
        return {
            "flow": self._flow.name,
            "source": self._flow.source,
            "target": self._flow.target,
            "enabled": self._flow.enabled,
            "state": state,
            "why": why,
            "pid": os.getpid(),
            "started_ms": self._began_ms,
            "partitions_total": total,
            "partitions_unknown": total - len(known),
            "partitions_stopped": len(stopped),
            "lag": lag,
            "lag_seconds": max((p["lag_seconds"] or 0.0 for p in known), default=None),
            "record_rate": round(sum(p["record_rate"] for p in partitions), 1),
            "byte_rate": round(sum(p["byte_rate"] for p in partitions), 1),
            "catch_up_seconds": _catch_up(lag, sum(row["closing_rate"] for row in rows)),
            "caught_up": _caught_up(lag, sum(row["lag_peak"] for row in rows)),
            "gap_records": sum(p["gap_records"] for p in partitions),
            "checkpoint_age_seconds": self._age(CHECKPOINT, "checkpoints_ms", now_ms),
            "group_offset_age_seconds": self._age(CHECKPOINT, "group_offsets_ms", now_ms),
            "heartbeat_age_seconds": self._age(HEARTBEAT, "last_heartbeat_ms", now_ms),
            "upkeep": upkeep,
            "groups_left_out": self._groups_left_out(),
            "connectors": connectors,
            "partitions": partitions,
        }

    # ---- connectors and tasks

    def _state(
        self,
        connectors: Sequence[ConnectorStatus],
        stopped: Sequence[PartitionStatus],
        upkeep: Mapping[str, UpkeepStatus],
    ) -> tuple[FlowState, str | None]:
        """Returns the flow's state, and the reason when it is not RUNNING."""
        if self._service.cluster_id is None:
            long = time.time_ns() // 1_000_000 - self._began_ms > PATIENCE_MS
            said = f"waits for cluster {self._flow.target}"
            return FlowState.WAITING if long else FlowState.STARTING, said
        if not self._service.ready:
            return (FlowState.WAITING if self.stranger else FlowState.STARTING), self.stranger
        parts = [(c["name"], c["state"], c["why"]) for c in connectors]
        parts += [(f"{c['name']}-{t['id']}", t["state"], t["why"]) for c in connectors for t in c["tasks"]]
        for name, state, why in parts:
            if state == State.FAILED:
                return FlowState.FAILED, f"{name}: {why or 'failed'}"
        if stopped:
            worst = stopped[0]
            return FlowState.DEGRADED, f"{worst['topic']}-{worst['partition']}: {worst['why']}"
        for name, part in upkeep.items():
            for what, reason in part["conflicts"].items():
                return FlowState.DEGRADED, f"{name}: {what}: {reason}"
        waits = [t for c in connectors for t in c["tasks"] if t["waiting_for"] in CLUSTERS]
        if told := [task for task in waits if task["why"]]:
            named = [task for task in told if task["waiting_for"] != "broker"]
            return FlowState.WAITING, self._waiting((named or told)[0])
        if waits:  # it asks, and nothing has failed yet
            return FlowState.STARTING, None
        for wanted in (FlowState.STARTING, FlowState.STOPPED, FlowState.PAUSED):
            for name, state, why in parts:
                if state == wanted:
                    held = self.held if wanted == FlowState.STOPPED else None
                    return wanted, held or (f"{name}: {why}" if why else None)
        return FlowState.RUNNING, None

    def _waiting(self, task: TaskStatus) -> str:
        of = {"source": self._flow.source, "target": self._flow.target}.get(task["waiting_for"] or "")
        said = f"waits for cluster {of}" if of else "waits for a broker"
        return f"{said}: {task['why']}" if task["why"] else said

    def _connector(self, name: str) -> ConnectorStatus:
        state, why = self._known(name)
        tasks = [self._task(task) for task in self._tasks(name)]
        return {"name": name, "state": state, "why": why, "tasks": tasks}

    def _task(self, task: TaskId) -> TaskStatus:
        state, why = self._known(task)
        progress = self._service.runtime.children.progress(task)
        said = progress.details.get("why") if progress is not None else None
        return {
            "id": task.task,
            "state": state,
            "waiting_for": progress.waiting_for if progress is not None else None,
            "why": why or (str(said) if said else None),
        }

    def _known(self, key: str | TaskId) -> tuple[str, str | None]:
        """Returns the state of a connector or task, and why it failed."""
        runtime = self._service.runtime
        status = runtime.statuses.get(key)
        # Until a child runs, the status is the one that a former process left in the topic.
        if status is None or (status.state is State.RUNNING and runtime.children.pid(key) is None):
            return FlowState.STARTING, None
        return str(status.state), _reason(status.trace or "")

    def _tasks(self, connector: str) -> list[TaskId]:
        configs = self._service.runtime.configs
        count = len(configs.tasks(connector)) if connector in configs else 0
        return [TaskId(connector, i) for i in range(count)]

    def _age(self, connector: str, key: str, now_ms: int) -> float | None:
        """Returns the age of what a connector's tasks did last, s: the oldest of them."""
        found = [self._service.runtime.children.progress(task) for task in self._tasks(connector)]
        times = [p.details[key] for p in found if p is not None and isinstance(p.details.get(key), int)]
        return round(max(now_ms - min(times), 0) / 1000, 1) if times else None

    def _groups_left_out(self) -> dict[str, str]:
        """Returns the groups whose offsets are not followed or not set, and why."""
        found = [self._service.runtime.children.progress(task) for task in self._tasks(CHECKPOINT)]
        return {
            group: why
            for progress in found if progress is not None
            for group, why in progress.details.get("groups_left_out", {}).items()
        }  # fmt: skip

    def _upkeep(self, now_ms: int) -> dict[str, UpkeepStatus]:
        """Returns what the flow's first task does beside its records."""
        progress = self._service.runtime.children.progress(TaskId(SOURCE, 0))
        details = progress.details if progress is not None else {}
        return {name: _upkeep_status(details[name], now_ms) for name in UPKEEP if name in details}

    def _reported(self) -> tuple[list[dict[str, Any]], int]:
        """Returns the figures of each partition that tasks report, see `klamm_mirror.copy.lag_tables`, and the number of all
        partitions.
        """
        names = ("topic", "partition", *STATUS_COLUMNS)
        tasks = self._tasks(SOURCE)
        tables = [t for task in tasks for t in self._service.runtime.children.metrics(task)]
        tables = [table for table in tables if table.prefix == STATUS_PREFIX]
        rows = [
            dict(zip(names, row, strict=True), at_ms=int(table.labels["at_ms"]))
            for table in tables
            for row in table.rows
        ]
        return rows, sum(int(table.labels["partitions"]) for table in tables)


def _upkeep_status(told: Mapping[str, Any], now_ms: int) -> UpkeepStatus:
    synced_ms = told["synced_ms"]
    return {
        "age_seconds": None if synced_ms is None else round(max(now_ms - synced_ms, 0) / 1000, 1),
        "figures": {
            key: value for key, value in told.items() if isinstance(value, int) and key != "synced_ms"
        },
        "conflicts": dict(told.get("conflicting", {})),
        "examples": list(told.get("examples", [])),
        "why": told.get("why"),
    }


def _reason(trace: str) -> str | None:
    """Returns what a trace says without its frames: the error, and the one that began it."""
    lines = trace.strip().splitlines()
    causes = [line for line in lines[1:] if line.startswith("Caused by: ")]
    return " ".join([*lines[:1], *causes[-1:]]) or None


def _partition(row: dict[str, Any], now_ms: int) -> PartitionStatus:
    lag, since = row["lag"], row["missing_since_ms"]
    if since is None and lag == 0 and now_ms - row["at_ms"] > STALE_MS:
        since = row["at_ms"]
    even = 0.0 if lag == 0 else None
    state = State.STOPPED if row["stop"] else FlowState.WAITING if row["waiting"] else State.RUNNING
    if state == State.RUNNING and row["held_by"]:
        state = FlowState.THROTTLED
    if row["promoted"]:
        state = FlowState.PROMOTED
    stopped = f"{row['stop']}: {row['why']}" if row["stop"] else None
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "remote_topic": row["remote_topic"],
        "state": str(state),
        "offset": row["offset"],
        "lag": lag,
        "lag_seconds": even if since is None else round(max(now_ms - since, 0) / 1000, 1),
        "record_rate": round(row["record_rate"], 1),
        "byte_rate": round(row["byte_rate"], 1),
        "catch_up_seconds": None if row["stop"] else _catch_up(lag, row["closing_rate"]),
        "caught_up": _caught_up(lag, row["lag_peak"]),
        "gap_records": row["gap_records"],
        "why": stopped or row["waiting"] or (row["held_by"] and f"held back by {row['held_by']}"),
    }


def _badness(partition: PartitionStatus) -> tuple[Any, ...]:
    """Returns a key that sorts the worst partition first: stopped, unknown, behind by time, by records, with gaps."""
    return (
        partition["state"] != State.STOPPED,
        partition["state"] in {State.RUNNING, FlowState.PROMOTED},
        partition["lag"] is not None,
        -(partition["lag_seconds"] or 0),
        -(partition["lag"] or 0),
        -partition["gap_records"],
        partition["topic"],
        partition["partition"],
    )


def _catch_up(lag: float | None, closing_rate: float) -> float | None:
    """Returns the seconds until there is no lag, at the present rate; None: unknown, or never at this rate."""
    if not lag:
        return None if lag is None else 0.0
    return round(lag / closing_rate, 1) if closing_rate > 0 else None


def _caught_up(lag: float | None, peak: float) -> float | None:
    """Returns the share of the largest lag that is copied by now."""
    if lag is None:
        return None
    return round(1 - lag / peak, 3) if peak > 0 and lag <= peak else float(not lag)
