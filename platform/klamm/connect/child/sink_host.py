"""Puts a sink task together in its child: class, converters, consumer, then the main loop, then `stop`."""

from __future__ import annotations

from klamm.connect.channel import Message
from klamm.connect.child import clients
from klamm.connect.child.control import Control
from klamm.connect.child.plugins import connector_class, converters, refuse_unsupported
from klamm.connect.child.setup import seconds, secret_values, stop_plugin
from klamm.connect.child.sink_task import SinkRunner, subscription
from klamm.connect.model import TaskSpec
from klamm_plugins.connector import SinkConnector
from klamm_plugins.discovery import PluginManager
from klamm_plugins.errors import ConfigError


def run_sink(control: Control, order: Message, secrets: list[str]) -> None:
    """The whole life of a sink task's process."""
    spec = TaskSpec.from_json(order["spec"])
    control.paused = spec.paused
    secrets += secret_values(None, spec.connector_config, spec.task_config, spec.worker)
    plugins = PluginManager.load()
    cls = connector_class(plugins, spec.connector_config)
    if not issubclass(cls, SinkConnector):
        raise ConfigError(f"{spec.connector_config['connector.class']} is not a sink connector")
    secrets += secret_values(cls, spec.connector_config, spec.task_config)
    refuse_unsupported(spec.connector_config)
    task = cls.task_class()()
    consumer_config = clients.consumer_config(spec)
    runner = SinkRunner(
        control=control,
        spec=spec,
        task=task,
        converters=converters(plugins, spec.connector_config, spec.worker),
        consumer=clients.make_consumer(consumer_config),
        topics=subscription(spec.connector_config),
        commit_interval_s=seconds(spec.worker, "offset.flush.interval.ms"),
        cooperative=clients.is_cooperative(consumer_config),
    )
    task.initialize(runner.context)
    try:
        control.vitals.enter("target")
        task.start(spec.task_config)
        control.notify("version", version=cls.version())
        if not control.paused:
            control.notify("state", state="RUNNING")
        runner.run()
    finally:
        stop_plugin(task.stop)
