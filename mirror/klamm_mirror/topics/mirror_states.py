"""Asks the target which of its topics are mirror topics, and which were promoted. Raises ClientError."""

from __future__ import annotations

from collections.abc import Sequence

from klamm_kafka.client import Cluster
from klamm_mirror.settings.keep_offsets import STATE
from klamm_mirror.topics import topic_admin


async def states_of(target: Cluster, topics: Sequence[str]) -> dict[str, str | None]:
    """Returns the mirror states of topics at the target; None for ordinary ones. Leaves out those that are not there."""
    found = await topic_admin.own_configs(target, topics, lambda name: name == STATE)
    return {topic: configs.get(STATE) for topic, configs in found.items()}
