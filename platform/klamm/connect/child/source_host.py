"""Puts a source task together in its child: converters, producers, context, main loop.

An exactly-once task is prepared in Kafka's order: it fences its predecessors, takes its transactional id, has
the worker confirm that it is still wanted, and only then reads its offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from klamm.connect.child import clients
from klamm.connect.child.control import Control
from klamm.connect.child.dead_letters import open_dead_letters
from klamm.connect.child.exactly_once import ExactlyOnceRunner
from klamm.connect.child.offset_writer import OffsetCopy
from klamm.connect.child.plugins import converters
from klamm.connect.child.setup import seconds
from klamm.connect.child.source_loop import ReadOffsets, SourceContext, SourceLoop
from klamm.connect.child.source_offsets import Place, alive, open_topic, place_of, read_by_worker, read_own
from klamm.connect.child.source_task import SourceRunner
from klamm.connect.child.topic_creator import ensure_topics
from klamm.connect.child.transactions import Boundaries, ConnectorBoundaries, Transactions, boundaries
from klamm.connect.child.transform_chain import make_chain
from klamm.connect.child.worker_offsets import offset_producer
from klamm.connect.model import STANDALONE, TaskSpec
from klamm_plugins.connector import SourceTask
from klamm_plugins.discovery import PluginManager

# librdkafka's default of transaction.timeout.ms
_TRANSACTION_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offsets:
    """A task's offsets: their topic, their reader, and the writer of the copy in the workers' topic."""

    place: Place
    read: ReadOffsets
    copy: OffsetCopy | None


def prepare(
    control: Control,
    spec: TaskSpec,
    task: SourceTask,
    plugins: PluginManager,
    secrets: Iterable[str] = (),
) -> Callable[[], None]:
    """Initializes `task`. Returns the function that runs it, once it is started, until it must stop."""
    alone = spec.worker.get(STANDALONE) == "true"  # as with Kafka: neither transactions nor offsets topics
    exactly_once = spec.worker.get("exactly.once.source.support") == "enabled" and not alone
    common: dict[str, Any] = {
        "control": control,
        "spec": spec,
        "task": task,
        "converters": converters(plugins, spec.connector_config, spec.worker),
        "chain": make_chain(plugins, spec.connector_config),
        "dead_letters": open_dead_letters(control, spec, secrets),
        "ensure_topics": partial(ensure_topics, spec),
        "commit_interval_s": seconds(spec.worker, "offset.flush.interval.ms"),
        "commit_timeout_s": seconds(spec.worker, "offset.flush.timeout.ms"),
    }
    runner: SourceLoop
    found: Boundaries | None = None
    if exactly_once:
        runner, offsets, found = _exactly_once(control, spec, common)
    else:
        runner, offsets = _at_least_once(control, spec, common)
    context = found.context if isinstance(found, ConnectorBoundaries) else None
    task.initialize(SourceContext(control, spec.task_config, offsets.read, context))
    return runner.run


def _at_least_once(control: Control, spec: TaskSpec, common: dict[str, Any]) -> tuple[SourceLoop, _Offsets]:
    config = clients.source_producer_config(spec)
    producer = clients.make_producer(config)
    offsets = _offsets(control, spec, place_of(spec, exactly_once=False))
    # An offsets topic of the connector's own is written by the producer of its records.
    apart = None if offsets.place.own else offset_producer(control, spec)
    runner = SourceRunner(
        producer=producer,
        offset_producer=producer if apart is None else apart,
        offsets_topic=offsets.place.topic,
        copy=offsets.copy,
        **_of_producer(config),
        **common,
    )
    return runner, offsets


def _exactly_once(
    control: Control, spec: TaskSpec, common: dict[str, Any]
) -> tuple[SourceLoop, _Offsets, Boundaries]:
    connector, number = spec.id
    control.vitals.enter("broker")
    control.call("fence_zombies", {"connector": connector})
    config = clients.transactional_config(spec)
    producer = clients.make_producer(config)
    timeout_s = int(config.get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)) / 1000
    transactions = Transactions(producer, control, id=config["transactional.id"], timeout_s=timeout_s)
    transactions.init()
    control.call("verify_task", {"connector": connector, "task": number, "generation": spec.generation})
    offsets = _offsets(control, spec, place_of(spec, exactly_once=True))
    ends = boundaries(
        spec.connector_config,
        flush_interval_s=common["commit_interval_s"],
        timeout_s=timeout_s,
    )
    runner = ExactlyOnceRunner(
        producer=producer,
        transactions=transactions,
        boundaries=ends,
        offsets_topic=offsets.place.topic,
        copy=offsets.copy,
        **_of_producer(config),
        **common,
    )
    return runner, offsets, ends


def _offsets(control: Control, spec: TaskSpec, place: Place) -> _Offsets:
    by_worker = read_by_worker(control, spec.id.connector)
    if not place.own:
        return _Offsets(place=place, read=by_worker, copy=None)
    topic = open_topic(spec, place.topic, alive(control))
    topic.ensure()
    copier = clients.make_producer(clients.workers_producer_config(spec))
    return _Offsets(
        place=place,
        read=read_own(topic, spec.id.connector, by_worker),
        copy=OffsetCopy(copier, spec.worker["offset.storage.topic"]),
    )


def _of_producer(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the producer settings that the sender must know."""
    largest = config.get("message.max.bytes")
    return {
        "sticky": config.get("partitioner") == "murmur2_random",
        "message_max": None if largest is None else int(largest),
    }
