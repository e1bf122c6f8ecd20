"""Reads `__consumer_offsets` into the group coordinator when the broker starts.

Until a partition is through, its groups answer COORDINATOR_LOAD_IN_PROGRESS. Only a key's last value is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.producer_ids import NO_PRODUCER_ID
from klamm_broker.server.topic_loading import read_partitions
from klamm_kafka.wire.batch import BatchHeader, Record, read_end_txn_marker

if TYPE_CHECKING:
    from klamm_broker.server.groups import GroupShell
    from klamm_broker.server.topics import Partition

log = logging.getLogger(__name__)


def load(
    shell: GroupShell, partitions: Sequence[Partition], loop: asyncio.AbstractEventLoop
) -> asyncio.Task[None] | None:
    """Load these partitions; None when all are empty, and then it is done already."""
    coordinator = shell.coordinator
    full = [p for p in partitions if p.log.offline or p.log.log_end_offset > p.log.log_start_offset]
    for partition in full:
        coordinator.start_loading(partition.index)
    coordinator.start(shell.now())
    return loop.create_task(_load_all(shell, full)) if full else None


async def _load_all(shell: GroupShell, partitions: Sequence[Partition]) -> None:
    started = time.monotonic()
    coordinator = shell.coordinator

    def take(partition: int, header: BatchHeader, batch: Sequence[Record]) -> None:
        if not header.is_control:
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            values = [KeyValue(r.key, r.value) for r in batch if r.key is not None]
            coordinator.replay(partition, values, producer_id=producer_id)
        elif batch and (marker := read_end_txn_marker(batch[0])) is not None:
            coordinator.replay_marker(partition, header.producer_id, committed=marker.committed)

    def loaded(partition: Partition) -> None:
        try:
            shell.run(coordinator.finish_loading(partition.index, shell.now()))
        except Exception:  # a defect must not keep the groups of all other partitions away
            log.exception("%s: what is in it stays unavailable", partition)

    records = await read_partitions(partitions, take, loaded)
    topic_ids = {topic.name: topic.id for topic in shell.broker.topics}
    shell.run(coordinator.forget_deleted_topics(topic_ids, shell.now()))
    took_ms = (time.monotonic() - started) * 1000
    log.info("loaded %d groups from %d records in %d ms", len(coordinator.groups), records, took_ms)
