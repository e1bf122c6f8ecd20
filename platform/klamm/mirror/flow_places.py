"""Looks at what `klamm mirror offsets` shows: committed places of a flow, and the ends of its partitions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from klamm.admin.model import TopicPartition
from klamm.admin.reset import How, LogState, Reset
from klamm.mirror.flow_offsets import Partition, committed
from klamm_base.errors import ConfigError
from klamm_kafka.client import Cluster
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.copy.source_offsets import Position
from klamm_mirror.loop import ask_cluster
from klamm_mirror.settings.filters import patterns
from klamm_mirror.settings.mm2_config import Flow
from klamm_mirror.settings.plugins import FlowPlugins
from klamm_mirror.source.config import config_def
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.target import Topics


async def look(
    flow: Flow,
    props: Mapping[str, str],
    topics: Sequence[str],
    partitions: Sequence[int],
    wanted: Reset | None = None,
) -> tuple[dict[Partition, Position], LogState, dict[Partition, TopicPartition]]:
    """Returns committed places, the source's logs, and the chosen partitions. Raises ClientError, ConfigError.

    Chosen are partitions that the flow mirrors, and those that it has a place of, by patterns and numbers. `wanted`
    with a time asks for its offsets as well.
    """
    parsed = config_def().parse(props)
    names = patterns("--topic", list(topics)) if topics else re.compile(".*")
    async with ask_cluster(props, "source") as source, ask_cluster(props, "target") as target:
        places = await committed(target, flow)
        with FlowPlugins(props, parsed) as plugins:
            there = await Topics(parsed, plugins, source, target).find()
        known = {(t, p) for t, count in there.items() for p in range(count)}
        chosen = {
            (t, p): TopicPartition(t, p)
            for t, p in sorted(known | set(places))
            if names.fullmatch(t) and (not partitions or p in partitions)
        }
        state = await _logs(source, {k: tp for k, tp in chosen.items() if k in known}, places, wanted)
    return places, state, chosen


async def _logs(
    source: Cluster,
    chosen: Mapping[Partition, TopicPartition],
    places: Mapping[Partition, Position],
    wanted: Reset | None,
) -> LogState:
    async def ask(which: int) -> dict[TopicPartition, int]:
        return {
            tp: await internal_topics.offset_of(source, topic, which, partition=partition)
            for (topic, partition), tp in chosen.items()
        }

    at_time: dict[TopicPartition, int] = {}
    if wanted is not None and wanted.how is How.TIME:
        if wanted.value < 0:
            raise ConfigError("--to-datetime lies before 1970", key="--to-datetime")
        at_time = await ask(wanted.value)
    return LogState(
        starts=await ask(EARLIEST),
        ends=await ask(LATEST),
        committed={
            tp: last + 1
            for key, tp in chosen.items()
            if key in places and (last := places[key].offset) is not None
        },
        at_time=at_time,
    )
