"""The topic of offset segments at a flow's target: its records and their reader.

| record | key | value |
|---|---|---|
| `SegmentRecord` | topic (upstream), partition, downstream offset | version 0, covered, upstream offset, packed segments |

Strings are UTF-8 behind an int16 length, partitions int32, offsets int64, versions int16, all big-endian; see
`segments.Block` for the packed part. The topic is compacted, with one partition. A block that grows is written again
under its key. A tombstone follows when the target's log start has passed all records of a block, when later copies have
replaced it, or when readers had to drop it to make room.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final, Self

from klamm_kafka.client import BrokerError, Cluster
from klamm_kafka.wire.batch import Record
from klamm_mirror.offsets.segment_store import BYTES_MAX, SegmentStore
from klamm_mirror.offsets.segments import Block
from klamm_mirror.offsets.translation import Partition
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.fields import (
    VERSION,
    FieldReader,
    MalformedRecord,
    int16_field,
    int32_field,
    int64_field,
    string_field,
)
from klamm_mirror.topics.follower import TopicFollower

log = logging.getLogger(__name__)

BATCH_RECORDS: Final = 1000


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A block of a partition; without a block, its tombstone."""

    partition: Partition
    downstream: int
    block: Block | None

    def encode(self) -> tuple[bytes, bytes | None]:
        """Returns key and value."""
        topic, partition = self.partition
        key = string_field("topic", topic) + int32_field("partition", partition)
        key += int64_field("offset", self.downstream)
        block = self.block
        if block is None:
            return key, None
        value = int16_field("version", VERSION) + int64_field("covered", block.covered)
        return key, value + int64_field("upstreamOffset", block.upstream) + block.packed

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Decodes key and value. Raises MalformedRecord."""
        keys = FieldReader("offset segments key", key)
        partition = keys.string("topic"), keys.int32("partition")
        downstream = keys.int64("offset")
        if value is None:
            return cls(partition, downstream, None)
        values = FieldReader("offset segments value", value)
        values.version()
        covered, upstream = values.int64("covered"), values.int64("upstreamOffset")
        try:
            block = Block.unpack(covered, upstream, downstream, values.rest())
        except ValueError as e:
            raise MalformedRecord(f"offset segments value: {e}") from None
        return cls(partition, downstream, block)


class SegmentReader(TopicFollower):
    """Reads the topic into a store, each time up to its end, without records of open or aborted transactions."""

    committed = True

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(cluster, topic)
        self.store = SegmentStore()
        self._refused = self._shed = False

    async def catch_up(self) -> bool:
        """Reads to the end. Returns False while the topic does not exist or may not be read."""
        try:
            there = await super().catch_up()
        except BrokerError as e:
            if e.retriable:
                raise
            if not self._refused:
                log.warning("offset segments are not read, groups are translated by offset syncs: %s", e)
            self._refused = True
            return False
        if self.store.shed and not self._shed:
            log.warning(
                "%s has more than fits into %d MB: the oldest offsets of its largest partitions are translated by offset syncs",
                self.topic, BYTES_MAX >> 20,
            )  # fmt: skip
        self._shed = self.store.shed > 0
        return there

    def reset(self) -> None:
        self.store = SegmentStore()

    def take(self, record: Record) -> None:
        found = SegmentRecord.decode(record.key, record.value)
        if found.block is None:
            self.store.drop(found.partition, found.downstream)
        else:
            self.store.apply(found.partition, found.block)

    async def trim(self, log_starts: dict[Partition, int], *, write: bool) -> None:
        """Drops blocks whose records are gone from the target; `write`: from the topic, too, with all that is not kept."""
        gone = [
            SegmentRecord(partition, downstream, None)
            for partition, start in log_starts.items()
            for downstream in self.store.trim(partition, start)
        ]
        for i in range(0, len(gone) if write else 0, BATCH_RECORDS):
            found = internal_topics.as_records(gone[i : i + BATCH_RECORDS], time.time_ns() // 1_000_000)
            try:
                await internal_topics.produce(self._cluster, self.topic, found)
            except BrokerError as e:
                if e.retriable:
                    raise
                log.warning("%s keeps segments that nobody needs: %s", self.topic, e)
                return
