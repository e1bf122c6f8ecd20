"""Tells topics that a mirror has made from those of users: by the ledgers of all flows that end at a cluster."""

from __future__ import annotations

from klamm_kafka.client import Cluster
from klamm_mirror.gaps.ledger import Ledger
from klamm_mirror.settings.policy import ReplicationPolicy


async def was_made_by_mirror(cluster: Cluster, policy: ReplicationPolicy, topic_id: bytes) -> bool:
    """Returns True if a flow to `cluster` has made the topic with this id there, as a copy. Raises ClientError."""
    before, _, behind = policy.gaps_topic("\0").partition("\0")
    for topic in (await cluster.refresh(None)).topics:
        name = topic.name or ""
        if name.startswith(before) and name.endswith(behind) and not topic.error_code:
            ledger = Ledger(cluster, name, 1)
            await ledger.catch_up()
            if any(known.made == topic_id for known in ledger.table.topics.values()):
                return True
    return False
