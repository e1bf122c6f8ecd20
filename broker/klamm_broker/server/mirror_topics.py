"""Promotes mirror topics: from then on they are ordinary topics of this cluster.

The registry has the new state first, in one write, and with it the leader epoch from which on the logs are ours. What
follows, a crash may cut off: the next start completes it (`PartitionLog.end_promotion`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm_broker.server.storage import Storage
    from klamm_broker.server.topics import Topic


def promote(storage: Storage, topic: Topic, configs: Mapping[str, str]) -> None:
    """Make an ordinary topic of a mirror topic, with these properties. Raises LogError, OSError; it is a mirror topic still then.

    Transactions whose end was not copied are aborted, so that readers of committed records go on.
    """
    storage.logs.promote(topic.name, configs)
    now_ms = storage.now_ms()
    for partition in topic.partitions:
        append = partial(storage.append, partition, now_ms=now_ms, origin="coordinator")
        partition.log.end_promotion(append, now_ms)
