"""A worker's metrics as Prometheus families, under the names that dashboards of Kafka Connect use.

Names follow jmx_exporter's lower-case rules (Strimzi's boards); Klamm's own metrics are `klamm_connect_*`.
All values are read from the objects at each request. Like Kafka's workers, a worker reports only what it runs
itself. Tasks report their figures with their progress, under Kafka's names.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm.connect.model import State, TaskId
from klamm.connect.rest.task_tables import table_families
from klamm.web.process_metrics import process_families, usage
from klamm_base.metrics_text import Family, Number, Sample

if TYPE_CHECKING:
    from klamm.connect.runtime import Runtime
    from klamm.connect.service.connectors import ConnectService

STARTED_S: Final = time.time()

_NAME: Final = re.compile(r"klamm_[a-z0-9_]{1,100}")
_LABEL: Final = re.compile(r"(?!connector$|task$)[a-z_]{1,40}")
_STATES: Final = (
    State.RUNNING, State.FAILED, State.PAUSED, State.UNASSIGNED, State.RESTARTING, State.STOPPED,
)  # fmt: skip
_STATE_COUNTS: Final = ("running", "failed", "paused", "unassigned", "restarting", "destroyed", "total")
_COUNTERS_OF_ERRORS: Final = ("deadletterqueue-produce-failures", "deadletterqueue-produce-requests")


def families(service: ConnectService) -> Iterator[Family]:
    """Yields all families, in order of kind."""
    runtime = service.runtime
    yield from process_families(STARTED_S)
    local = _local(runtime)
    yield from _worker(runtime, local)
    yield from _group(runtime)
    yield from _connectors(runtime, local)
    yield from _tasks(runtime, local)
    yield from _progress(runtime, local)
    yield from table_families(
        (task, table) for task in local.tasks for table in runtime.children.metrics(task)
    )
    yield from _events(runtime)
    yield from service.requests.families("klamm_connect_rest")


def gauge(name: str, help: str, value: Number, **labels: str | int) -> Family:
    return Family(name, "gauge", help, [Sample(labels, value)])


def counter(name: str, help: str, value: Number, **labels: str | int) -> Family:
    return Family(name, "counter", help, [Sample(labels, value)])


class _Local:
    """The connectors and tasks of this worker, with their states."""

    def __init__(self) -> None:
        self.connectors: dict[str, str] = {}
        self.tasks: dict[TaskId, str] = {}


def _local(runtime: Runtime) -> _Local:
    found = _Local()
    statuses = runtime.statuses
    for name in sorted(runtime.configs.connectors):
        status = statuses.get(name)
        if status is not None and status.worker_id == runtime.worker_id:
            found.connectors[name] = status.state.value
        for task in statuses.tasks(name):
            state = statuses.get(task)
            if state is not None and state.worker_id == runtime.worker_id:
                found.tasks[task] = state.state.value
    return found


def _worker(runtime: Runtime, local: _Local) -> Iterator[Family]:
    running = [n for n, state in local.connectors.items() if state != State.UNASSIGNED]
    tasks = [t for t, state in local.tasks.items() if state != State.UNASSIGNED]
    yield gauge("kafka_connect_worker_connector_count", "Connectors that this worker runs.", len(running))
    yield gauge("kafka_connect_worker_task_count", "Tasks that this worker runs.", len(tasks))
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for task, state in local.tasks.items():
        counts[task.connector][state.lower()] += 1
        counts[task.connector]["total"] += 1
    for kind in _STATE_COUNTS:
        yield Family(
            f"kafka_connect_worker_connector_{kind}_task_count",
            "gauge",
            f"Tasks of a connector on this worker: {kind}.",
            [Sample({"connector": name}, counts[name][kind]) for name in sorted(counts)],
        )


def _group(runtime: Runtime) -> Iterator[Family]:
    """Yields the worker's place in its group; a standalone worker has none."""
    from klamm.connect.group.membership import GroupMembership

    group = runtime.cluster.group
    if not isinstance(group, GroupMembership):
        return
    prefix = "kafka_connect_coordinator_assigned"
    yield gauge(f"{prefix}_connectors", "Connectors assigned to this worker.", group.assigned_connectors)
    yield gauge(f"{prefix}_tasks", "Tasks assigned to this worker.", group.assigned_tasks)
    prefix = "kafka_connect_worker_rebalance"
    yield gauge(f"{prefix}_rebalancing", "1 while the worker rebalances.", int(group.rebalancing))
    yield counter(f"{prefix}_completed_rebalances_total", "Rebalances since the start.", group.rebalances)
    yield gauge(f"{prefix}_epoch", "Generation of the group.", group.generation)
    yield gauge(f"{prefix}_rebalance_max_time_ms", "The longest rebalance, ms.", group.rebalance_ms_max)
    mean = group.rebalance_ms_total / group.rebalances if group.rebalances else 0
    yield gauge(f"{prefix}_rebalance_avg_time_ms", "A rebalance on average, ms.", mean)
    if group.last_rebalance_at_ms is not None:
        since = time.monotonic() * 1000 - group.last_rebalance_at_ms
        yield gauge(f"{prefix}_time_since_last_rebalance_ms", "Since the last rebalance, ms.", since)
    leader = {"leader_name": group.leader_url or "unknown"}
    yield Family(f"{prefix}_leader_name", "gauge", "The leader, as a label.", [Sample(leader, 1)])
    failed = "Attempts to rebalance that failed."
    yield counter("klamm_connect_failed_rebalances_total", failed, group.failed_rebalances)
    yield counter("klamm_connect_heartbeats_total", "Heartbeats that were answered.", group.heartbeats)


def _connectors(runtime: Runtime, local: _Local) -> Iterator[Family]:
    infos: dict[str, list[Sample]] = {
        "connector_class": [], "connector_type": [], "connector_version": [], "status": [],
    }  # fmt: skip
    for name, state in local.connectors.items():
        config = runtime.configs.config(name) or {}
        plugin = runtime.plugins.connector(config.get("connector.class", ""))
        status = runtime.statuses.get(name)
        values = {
            "connector_class": config.get("connector.class", ""),
            "connector_type": plugin.type if plugin else "unknown",
            "connector_version": (status.version if status else None) or "unknown",
            "status": state.lower(),
        }
        for key, value in values.items():
            infos[key].append(Sample({"connector": name, key: value}, 1))
    for key, samples in infos.items():
        about = key.replace("_", " ")
        yield Family(
            f"kafka_connect_connector_{key}", "gauge", f"The connector's {about}, as a label.", samples
        )


def _tasks(runtime: Runtime, local: _Local) -> Iterator[Family]:
    yield Family(
        "kafka_connect_connector_task_status",
        "gauge",
        "The task's state, as a label.",
        [Sample({**_task(task), "status": state.lower()}, 1) for task, state in local.tasks.items()],
    )
    cpu, memory = [], []
    for task in local.tasks:
        pid = runtime.children.pid(task)
        figures = usage(pid) if pid is not None else None
        if figures is not None:
            cpu.append(Sample(_task(task), figures[0]))
            memory.append(Sample(_task(task), figures[1]))
    yield Family("klamm_connect_task_cpu_seconds_total", "counter", "CPU time of the task's process, s.", cpu)
    yield Family("klamm_connect_task_resident_bytes", "gauge", "Resident memory of its process.", memory)


def _progress(runtime: Runtime, local: _Local) -> Iterator[Family]:
    """Yields the tasks' own figures: Klamm's from Progress, Kafka's under the names that the tasks report."""
    found: defaultdict[tuple[str, str, str], list[Sample]] = defaultdict(list)

    def add(name: str, kind: str, help: str, task: TaskId, value: Any) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[name, kind, help].append(Sample(_task(task), value))

    for task in local.tasks:
        progress = runtime.children.progress(task)
        if progress is None:
            continue
        ours = "klamm_connect_task"
        add(
            f"{ours}_records_total",
            "counter",
            "Records acknowledged since it started.",
            task,
            progress.records,
        )
        add(f"{ours}_lag", "gauge", "Records or bytes behind.", task, progress.lag)
        if progress.last_ack_ms is not None:
            seconds = progress.last_ack_ms / 1000
            add(f"{ours}_last_ack_timestamp_seconds", "gauge", "Last acknowledgement.", task, seconds)
        details = progress.details
        add(
            f"{ours}_bytes_total",
            "counter",
            "Bytes acknowledged since it started.",
            task,
            details.get("bytes"),
        )
        for key, value in _mapping(details.get("errors")).items():
            name = "kafka_connect_task_error_" + key.replace("-", "_")
            counts = key.startswith("total-") or key in _COUNTERS_OF_ERRORS
            add(name, "counter" if counts else "gauge", f"Kafka's task-error metric {key}.", task, value)
        prefix = f"kafka_connect_{_kind(runtime, task)}_task_"
        for key, value in _mapping(details.get("figures")).items():
            kind = "counter" if key.endswith("-total") else "gauge"
            add(prefix + key.replace("-", "_"), kind, f"Kafka's task metric {key}.", task, value)
        for name, labels, value in _of_their_own(details.get("metrics")):
            kind = "counter" if name.endswith("_total") else "gauge"
            found[name, kind, "A metric of the task's own; see the connector's page."].append(
                Sample({**_task(task), **labels}, value)
            )
    for (name, kind, about), samples in sorted(found.items(), key=lambda item: item[0]):
        yield Family(name, "counter" if kind == "counter" else "gauge", about, samples)


def _of_their_own(entries: Any) -> Iterator[tuple[str, dict[str, str], int | float]]:
    """Yields a driver task's metrics beside Kafka's: `[name, {label: value}, value]`, with Klamm's own names."""
    for entry in entries if isinstance(entries, list) else ():
        match entry:
            case [str(name), dict(labels), int() | float() as value] if _NAME.fullmatch(name):
                yield name, {str(k): str(v) for k, v in labels.items() if _LABEL.fullmatch(str(k))}, value


def _kind(runtime: Runtime, task: TaskId) -> str:
    config = runtime.configs.config(task.connector) or {}
    plugin = runtime.plugins.connector(config.get("connector.class", ""))
    return plugin.type if plugin else "source"


def _events(runtime: Runtime) -> Iterator[Family]:
    bus = runtime.events
    yield Family(
        "klamm_connect_events_total",
        "counter",
        "Events of GET /events since the start, by kind.",
        [Sample({"kind": kind}, count) for kind, count in sorted(bus.published.items())],
    )
    yield gauge("klamm_connect_event_listeners", "Clients of GET /events.", bus.listeners)


def _task(task: TaskId) -> dict[str, str | int]:
    return {"connector": task.connector, "task": task.task}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
