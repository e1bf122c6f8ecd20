"""Puts a source task together in its child: class, converters, producer, then the main loop, then `stop`."""

from __future__ import annotations

from klamm.connect.channel import Message
from klamm.connect.child import clients
from klamm.connect.child.control import Control
from klamm.connect.child.plugins import connector_class, converters, refuse_unsupported
from klamm.connect.child.setup import seconds, secret_values, stop_plugin
from klamm.connect.child.source_task import SourceContext, SourceRunner
from klamm.connect.model import TaskSpec
from klamm_plugins.connector import SourceConnector
from klamm_plugins.discovery import PluginManager
from klamm_plugins.errors import ConfigError


def run_source(control: Control, order: Message, secrets: list[str]) -> None:
    """The whole life of a source task's process."""
    spec = TaskSpec.from_json(order["spec"])
    control.paused = spec.paused
    secrets += secret_values(None, spec.connector_config, spec.task_config, spec.worker)
    plugins = PluginManager.load()
    cls = connector_class(plugins, spec.connector_config)
    if not issubclass(cls, SourceConnector):
        raise ConfigError(f"{spec.connector_config['connector.class']} is not a source connector")
    secrets += secret_values(cls, spec.connector_config, spec.task_config)
    refuse_unsupported(spec.connector_config)
    task = cls.task_class()()
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
    try:
        control.vitals.enter("input")
        task.start(spec.task_config)
        control.notify("version", version=cls.version())
        if not control.paused:
            control.notify("state", state="RUNNING")
        runner.run()
    finally:
        stop_plugin(task.stop)
