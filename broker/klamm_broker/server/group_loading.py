"""Reads `__consumer_offsets` into the group coordinator when the broker starts.

While a partition is loading, its groups answer COORDINATOR_LOAD_IN_PROGRESS. Only a key's last value is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm_base.internal_topics import OFFSETS_TOPIC
from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.producer_ids import NO_PRODUCER_ID
from klamm_broker.server.topic_loading import partitions_to_load, read_partitions
from klamm_kafka.wire.batch import BatchHeader, Record, read_end_txn_marker

if TYPE_CHECKING:
    from klamm_broker.coordinator.groups import GroupCoordinator
    from klamm_broker.server.effects import EffectRunner
    from klamm_broker.server.topics import Partition, TopicTable

log = logging.getLogger(__name__)


def load(
    coordinator: GroupCoordinator,
    runner: EffectRunner,
    topics: TopicTable,
    loop: asyncio.AbstractEventLoop,
) -> asyncio.Task[None] | None:
    """Load the topic's partitions. Returns None if all are empty: then the loading is over already."""
    topic = topics.by_name.get(OFFSETS_TOPIC)
    full = [] if topic is None else partitions_to_load(topic)
    for partition in full:
        coordinator.start_loading(partition.index)
    coordinator.start(runner.now())
    return loop.create_task(_load_all(coordinator, runner, topics, full)) if full else None


async def _load_all(
    coordinator: GroupCoordinator, runner: EffectRunner, topics: TopicTable, partitions: Sequence[Partition]
) -> None:
    started = time.monotonic()

    def take(partition: int, header: BatchHeader, batch: Sequence[Record]) -> None:
        if not header.is_control:
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            values = [KeyValue(r.key, r.value) for r in batch if r.key is not None]
            coordinator.replay(partition, values, producer_id=producer_id)
        elif batch and (marker := read_end_txn_marker(batch[0])) is not None:
            coordinator.replay_marker(partition, header.producer_id, committed=marker.committed)

    def loaded(partition: Partition) -> None:
        try:
            runner.run(coordinator.finish_loading(partition.index, runner.now()))
        except Exception:  # a defect must not keep the groups of all other partitions away
            log.exception("%s: what is in it stays unavailable", partition)

    records = await read_partitions(partitions, take, loaded)
    topic_ids = {topic.name: topic.id for topic in topics}
    runner.run(coordinator.forget_deleted_topics(topic_ids, runner.now()))
    share = coordinator.share_groups.made
    if share is not None:
        gone = share.known_topics() - frozenset(topic_ids.values())
        runner.run(share.on_topics_deleted(gone, runner.now()))
    took_ms = (time.monotonic() - started) * 1000
    log.info("loaded %d groups from %d records in %d ms", len(coordinator.groups), records, took_ms)
