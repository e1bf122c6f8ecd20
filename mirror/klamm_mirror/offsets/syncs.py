"""Decides when an offset sync is due, as MirrorMaker 2 does, and writes offset syncs.

A sync is due for a partition's first record, after a gap upstream, after a truncation of the target, and
when `offset.lag.max` records have passed since the last sync. MirrorMaker looks at each record; we look at
a few places of a batch: at its first and last record, and in between only when it has no holes. All syncs
are written (MirrorMaker keeps the latest of those that wait), because groups behind the end need them. A
partition that comes to rest gets a sync for its last record.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from klamm_kafka.client import Cluster
from klamm_mirror.raw import Batch
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.formats import OffsetSync
from klamm_mirror.topics.writer import TopicWriter

BATCH_RECORDS: Final = 1000
PLACES_MAX: Final = 16
"""The approximate number of places at which a batch is looked at."""
PENDING_MAX: Final = 20_000
"""The most syncs that wait for a broker that is away. Then every second sync is dropped, which only costs
precision.
"""


@dataclass(slots=True)
class SyncState:
    """The state of one partition: upstream and downstream offsets of the last record seen, the downstream offset
    of the last sync; -1: none.
    """

    upstream: int = -1
    downstream: int = -1
    synced: int = -1

    def update(self, upstream: int, downstream: int, lag_max: int) -> bool:
        """Notes a written record. Returns True when a sync for it is due."""
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


class SyncWriter(TopicWriter):
    """Collects syncs and writes them in batches."""

    WRITES = "offset syncs"
    PAUSE_S = 0.1

    def __init__(self, cluster: Cluster, topic: str, lag_max: int) -> None:
        super().__init__()
        self.written = 0
        self._cluster = cluster
        self._topic = topic
        self._lag_max = lag_max
        self._states: dict[tuple[str, int], SyncState] = {}
        self._pending: list[OffsetSync] = []
        self._moving: set[tuple[str, int]] = set()
        self._moved: set[tuple[str, int]] = set()

    def acked(self, topic: str, partition: int, batch: Batch, base: int) -> None:
        """Notes a written batch. `base` is the downstream offset of its first record."""
        first, last, count = batch.first, batch.last, batch.count
        state = self._states.setdefault((topic, partition), SyncState())
        whole = last - first + 1 == count
        step = max(self._lag_max, count // PLACES_MAX, 1) if whole else count
        for at in dict.fromkeys((*range(0, count, step), count - 1)):
            upstream = first + at if whole or at == 0 else last
            if whole and at > 0:  # each record follows the one before
                state.upstream, state.downstream = upstream - 1, base + at - 1
            if state.update(upstream, base + at, self._lag_max):
                self._pending.append(OffsetSync(topic, partition, upstream, base + at))
        self._moved.add((topic, partition))
        if len(self._pending) > PENDING_MAX:
            del self._pending[::2]

    async def flush(self) -> None:
        self._look_for_rest()
        while self._pending:
            syncs, self._pending = self._pending[:BATCH_RECORDS], self._pending[BATCH_RECORDS:]
            records = internal_topics.as_records(syncs, time.time_ns() // 1_000_000)
            try:
                await internal_topics.produce(self._cluster, self._topic, records)
            except BaseException:
                self._pending[:0] = syncs
                raise
            self.written += len(syncs)

    def _look_for_rest(self) -> None:
        """Adds a sync for the last record of each partition that came to rest: nothing new since the last look."""
        for topic, partition in self._moving - self._moved:
            state = self._states[topic, partition]
            if state.synced != state.downstream:
                state.synced = state.downstream
                self._pending.append(OffsetSync(topic, partition, state.upstream, state.downstream))
        self._moving, self._moved = self._moved, set()
