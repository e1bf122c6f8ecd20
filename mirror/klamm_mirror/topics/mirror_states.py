"""Asks a cluster which of its topics are mirror topics, and which were promoted. Raises ClientError."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from klamm_kafka.client import Cluster
from klamm_mirror.origins import Origin
from klamm_mirror.settings.keep_offsets import EPOCH, OWN_KEYS, SOURCE, STATE
from klamm_mirror.topics import topic_admin


@dataclass(frozen=True, slots=True)
class Foreign:
    """The part of a mirror topic's records that came from another cluster: those of leader epochs below `before` (None: all).

    `origin` None: the topic does not say from where.
    """

    origin: Origin | None
    before: int | None

    def covers(self, leader_epoch: int) -> bool:
        """Returns True for a batch of this leader epoch."""
        return self.before is None or leader_epoch < self.before


async def states_of(cluster: Cluster, topics: Sequence[str]) -> dict[str, str | None]:
    """Returns the mirror states of topics; None for ordinary ones. Leaves out those that are not there."""
    return {topic: configs.get(STATE) for topic, configs in (await mirror_configs(cluster, topics)).items()}


async def mirror_configs(cluster: Cluster, topics: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """Returns what topics say of themselves as mirror topics. Leaves out those that are not there."""
    return await topic_admin.own_configs(cluster, topics, OWN_KEYS.__contains__, OWN_KEYS)


async def foreign_parts(cluster: Cluster, topics: Collection[str]) -> dict[str, Foreign]:
    """Returns which records of topics came from other clusters. Leaves out ordinary topics."""
    found = await mirror_configs(cluster, sorted(topics))
    return {
        topic: Foreign(_origin(configs.get(SOURCE)), None if (e := configs.get(EPOCH)) is None else int(e))
        for topic, configs in found.items()
        if configs.get(STATE)
    }


def source_text(origin: Origin) -> str:
    """Returns the setting that names the cluster of a copy."""
    return f"{origin.cluster} {origin.alias}"


def _origin(text: str | None) -> Origin | None:
    cluster, _, alias = (text or "").partition(" ")
    return Origin(cluster, alias) if cluster else None
