"""A task's life in its child: finds its class, puts the task together by its kind, starts, runs and stops it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Final

from klamm.connect.child import driver_host, sink_host, source_host
from klamm.connect.child.control import Control
from klamm.connect.child.plugins import check_keys, connector_class
from klamm.connect.child.setup import keep_secret, limit_memory, secret_values, stop_plugin
from klamm.connect.child.warm import plugins_of
from klamm.connect.children.channel import Message
from klamm.connect.model import Kind, TaskSpec
from klamm.connect.settings.limits import Limits
from klamm_plugins.connector import DriverTask, SinkConnector, SinkTask, SourceConnector, SourceTask
from klamm_plugins.discovery import PluginManager, python_name
from klamm_plugins.errors import ConfigError

# A batch is some ten thousand objects that live for a moment, which the collector need not look into each
# time. It still finds the reference circles that plugins leave, somewhat later.
_GC_OBJECTS: Final = 50_000
_CONNECTORS: Final[dict[Kind, type[Any]]] = {Kind.SOURCE: SourceConnector, Kind.SINK: SinkConnector}


def run_task(control: Control, order: Message, secrets: list[str]) -> None:
    """Runs a task's process from its order to its end."""
    spec = TaskSpec.from_json(order["spec"])
    gc.set_threshold(_GC_OBJECTS, 20, 20)
    limits = Limits.of(spec.worker, spec.connector_config)
    limit_memory(limits.memory_bytes)
    control.expect_silence(limits.heartbeat_ms)
    secrets += secret_values(None, spec.connector_config, spec.task_config, spec.worker)
    plugins = plugins_of(order["entry_points"])
    cls = connector_class(plugins, spec.connector_config)
    if not issubclass(cls, _CONNECTORS[spec.kind]):
        raise ConfigError(f"{spec.connector_config['connector.class']} is not a {spec.kind} connector")
    secrets += secret_values(cls, spec.connector_config, spec.task_config)
    keep_secret(control, secrets)
    check_keys(cls, spec.connector_config)
    task = cls.task_class()()
    run = _prepared(control, spec, task, plugins, secrets)
    try:
        control.vitals.enter("input" if spec.kind is Kind.SOURCE else "target")
        task.start(spec.task_config)
        control.notify("version", version=cls.version())
        if not control.paused:
            control.notify("state", state="RUNNING")
        run()
    finally:
        stop_plugin(task.stop)


def _prepared(
    control: Control,
    spec: TaskSpec,
    task: SourceTask | SinkTask | DriverTask,
    plugins: PluginManager,
    secrets: list[str],
) -> Callable[[], None]:
    """Gives the task its context; returns its main loop."""
    match task:
        case DriverTask():
            return driver_host.prepare(control, spec, task, plugins, secrets)
        case SourceTask() if spec.kind is Kind.SOURCE:
            return source_host.prepare(control, spec, task, plugins, secrets)
        case SinkTask() if spec.kind is Kind.SINK:
            return sink_host.prepare(control, spec, task, plugins, secrets)
    raise ConfigError(
        f"A {spec.kind} connector cannot have tasks of the class {python_name(type(task))}: "
        f"they must be {spec.kind.title()}Task or DriverTask"
    )
