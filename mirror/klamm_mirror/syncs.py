"""When an offset sync is due, as in MirrorMaker 2, and the writer of them.

A sync is due for a partition's first record, after a gap upstream, when the target was truncated, and when
`offset.lag.max` records passed since the last. We see batches, so it is told of a batch's first record after a gap and
of its last record otherwise. Of several that wait to be written the latest is kept (as MirrorMaker does).
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Final

from klamm_broker.client import ClientError, Cluster
from klamm_broker.wire.batch import Record
from klamm_mirror import internal_topics
from klamm_mirror.formats import OffsetSync
from klamm_mirror.raw import Batch

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.1
BACKOFF_S: Final = 2.0
BATCH_RECORDS: Final = 1000


@dataclass(slots=True)
class SyncState:
    """Of one partition. Offsets of the last record seen, and the target's offset in the last sync; -1: none."""

    upstream: int = -1
    downstream: int = -1
    synced: int = -1

    def update(self, upstream: int, downstream: int, lag_max: int) -> bool:
        """A record was written: whether to write a sync for it."""
        due = (
            self.synced < 0
            or downstream - (self.synced + 1) >= lag_max
            or upstream - self.upstream != 1
            or downstream < self.downstream
        )
        self.upstream, self.downstream = upstream, downstream
        if due:
            self.synced = downstream
        return due


class SyncWriter:
    """Collects syncs and writes them, a batch at a time, until it is cancelled; waits for a broker that is away."""

    def __init__(self, cluster: Cluster, topic: str, lag_max: int) -> None:
        self.written = 0
        self.why: str | None = None
        self._cluster = cluster
        self._topic = topic
        self._lag_max = lag_max
        self._states: dict[tuple[str, int], SyncState] = {}
        self._pending: dict[tuple[str, int], OffsetSync] = {}

    def acked(self, topic: str, partition: int, batch: Batch, base: int) -> None:
        """A batch is written: `base` is the downstream offset of its first record."""
        key = topic, partition
        first, last, count = batch.first, batch.last, batch.count
        state = self._states.setdefault(key, SyncState())
        if state.update(first, base, self._lag_max):
            self._pending[key] = OffsetSync(topic, partition, first, base)
        if count > 1:
            # in between each record follows the one before, unless the batch had holes
            if last - first + 1 == count:
                state.upstream, state.downstream = last - 1, base + count - 2
            if state.update(last, base + count - 1, self._lag_max):
                self._pending[key] = OffsetSync(topic, partition, last, base + count - 1)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_S)
            try:
                await self.flush()
            except ClientError as e:
                if self.why is None:
                    log.warning("offset syncs wait: %s", e)
                self.why = str(e)
                await asyncio.sleep(BACKOFF_S)
            else:
                self.why = None

    async def flush(self) -> None:
        """Write what is pending. Raises ClientError; then it is still pending."""
        while self._pending:
            syncs = [self._pending.pop(key) for key in list(self._pending)[:BATCH_RECORDS]]
            now_ms = time.time_ns() // 1_000_000
            pairs = [sync.encode() for sync in syncs]
            records = [Record(timestamp=now_ms, key=key, value=value) for key, value in pairs]
            try:
                await internal_topics.produce(self._cluster, self._topic, records)
            except BaseException:
                for sync in syncs:
                    self._pending.setdefault((sync.topic, sync.partition), sync)
                raise
            self.written += len(syncs)
