"""Writes the offset segments of a source task's partitions; their records are in `klamm_mirror.offsets.segment_topic`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from klamm_kafka.client import ClientError, Cluster
from klamm_mirror.copy.changes import Changes
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.offsets.segment_topic import BATCH_RECORDS, SegmentRecord
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.writer import TopicWriter

log = logging.getLogger(__name__)


def changed_records(partitions: Sequence[MirrorPartition]) -> list[SegmentRecord]:
    """Takes the blocks that changed, as records to write."""
    return [
        SegmentRecord((p.topic, p.partition), block.downstream, block)
        for p in partitions
        for block in p.segments.take()
    ]


class SegmentWriter(TopicWriter):
    """Writes the blocks of a task's partitions that changed.

    A topic that may not be written is given up, with a warning: the offset syncs still serve.
    """

    WRITES = "offset segments"
    PAUSE_S = 0.5

    def __init__(self, cluster: Cluster, topic: str, partitions: Sequence[MirrorPartition]) -> None:
        super().__init__()
        self.given_up = False
        self._cluster = cluster
        self._topic = topic
        self._changes = Changes(partitions)
        self._pending: list[SegmentRecord] = []
        self._lock = asyncio.Lock()

    async def flush(self) -> None:
        """Writes what changed. After a ClientError, which can only be temporary, it is still pending."""
        async with self._lock:
            self._collect()
            while self._pending:
                await self._write(self._pending[:BATCH_RECORDS])
            self.why = None

    def _collect(self) -> None:
        """Takes what changed. A waiting form of a block is replaced by its newer form."""
        waiting = {(r.partition, r.downstream): r for r in self._pending}
        for record in changed_records(self._changes.take()):
            waiting.pop((record.partition, record.downstream), None)
            waiting[record.partition, record.downstream] = record
        self._pending = list(waiting.values())

    async def _write(self, records: list[SegmentRecord]) -> None:
        try:
            if not self.given_up:
                found = internal_topics.as_records(records, time.time_ns() // 1_000_000)
                await internal_topics.produce(self._cluster, self._topic, found)
        except ClientError as e:
            if e.retriable:
                raise
            self.given_up = True
            log.warning("offset segments are not written, groups are translated by offset syncs: %s", e)
        del self._pending[: len(records)]
