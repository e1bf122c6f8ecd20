"""Puts a sink task together in its child: converters, consumer, context, main loop."""

from __future__ import annotations

from collections.abc import Callable

from klamm.connect.child import clients
from klamm.connect.child.control import Control
from klamm.connect.child.dead_letters import open_dead_letters
from klamm.connect.child.plugins import converters
from klamm.connect.child.setup import seconds
from klamm.connect.child.sink_task import BATCH_RECORDS_MAX, SinkRunner
from klamm.connect.child.sink_topics import wanted_topics
from klamm.connect.child.transform_chain import make_chain
from klamm.connect.model import TaskSpec
from klamm_plugins.connector import SinkTask
from klamm_plugins.discovery import PluginManager


def prepare(
    control: Control, spec: TaskSpec, task: SinkTask, plugins: PluginManager, secrets: list[str]
) -> Callable[[], None]:
    """Initializes `task`. Returns the function that runs it, once it is started, until it must stop."""
    consumer_config = clients.consumer_config(spec)
    excluded = clients.properties(spec, "consumer").get("exclude.internal.topics", "true")
    topics = wanted_topics(
        spec.connector_config, consumer=consumer_config, internal=excluded.strip().lower() == "false"
    )
    runner = SinkRunner(
        control=control,
        spec=spec,
        task=task,
        converters=converters(plugins, spec.connector_config, spec.worker),
        consumer=clients.make_consumer(consumer_config | {"enable.partition.eof": True}),  # tells `sink_lag`
        topics=topics,
        commit_interval_s=seconds(spec.worker, "offset.flush.interval.ms"),
        cooperative=clients.is_cooperative(consumer_config),
        dead_letters=open_dead_letters(control, spec, secrets),
        chain=make_chain(plugins, spec.connector_config),
        batch_max=clients.max_poll_records(spec, BATCH_RECORDS_MAX),
    )
    task.initialize(runner.context)
    return runner.run
