"""Puts a source task together in its child: converters, producers, context, main loop."""

from __future__ import annotations

from collections.abc import Callable

from klamm.connect.child import clients
from klamm.connect.child.control import Control
from klamm.connect.child.plugins import converters
from klamm.connect.child.setup import seconds
from klamm.connect.child.source_task import SourceContext, SourceRunner
from klamm.connect.model import TaskSpec
from klamm_plugins.connector import SourceTask
from klamm_plugins.discovery import PluginManager


def prepare(control: Control, spec: TaskSpec, task: SourceTask, plugins: PluginManager) -> Callable[[], None]:
    """Initialize `task`; what comes back runs it, once it is started, until it is to stop."""
    producer = clients.make_producer(clients.producer_config(spec))
    offset_config = clients.offset_producer_config(spec)
    runner = SourceRunner(
        control=control,
        spec=spec,
        task=task,
        converters=converters(plugins, spec.connector_config, spec.worker),
        producer=producer,
        offset_producer=producer if offset_config is None else clients.make_producer(offset_config),
        commit_interval_s=seconds(spec.worker, "offset.flush.interval.ms"),
        commit_timeout_s=seconds(spec.worker, "offset.flush.timeout.ms"),
    )
    task.initialize(SourceContext(control, spec.id.connector, spec.task_config))
    return runner.run
