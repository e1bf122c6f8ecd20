"""Delivers the ranges of a task from one consumer, which has all their partitions assigned at once.

Assigned one after the other, each partition would wait for a fetch of its own, and for the fetch of the partition before it,
which the broker holds for `fetch.wait.max.ms` when there is nothing new. The consumer serves one task after the other; a
partition that continues where its last range ended is not assigned anew. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from klamm_spark.datasource.offsets import Partition, Range

BATCH_RECORDS: Final = 5_000
KEPT_MOST: Final = 2 * BATCH_RECORDS
"""The most messages that wait for their range. Beyond it only the partition that is being read stays assigned."""
KEPT_BYTES: Final = 32 << 20
"""The most bytes of messages that wait for another range than the one that is being read; beyond it, the same."""
POLL_S: Final = 0.02
Message = Any
"""confluent_kafka.Message. By its types the offset may be None, but a record from a broker always has one."""


class RangeConsumer:
    """A consumer with the partitions of a task's ranges assigned."""

    def __init__(self, config: dict[str, str]) -> None:
        self._consumer = Consumer(config)
        self._next: dict[Partition, int] = {}
        """The offset to deliver next, of each assigned partition."""
        self._fetched: dict[Partition, int] = {}
        """The offset behind the last message that came, of each assigned partition."""
        self._kept: dict[Partition, list[Message]] = {}
        self._ended_at: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}

    def begin(self, ranges: Iterable[Range]) -> None:
        """Prepares a task. This is free when each range begins where the last one of its partition ended."""
        wanted: dict[Partition, Range] = {}
        for r in ranges:
            wanted.setdefault((r.topic, r.partition), r)
        self._ends = {p: r.end for p, r in wanted.items()}
        there = all(self._next.get(p) == r.start for p, r in wanted.items())
        # A large task would fetch many records of the other partitions, too
        costly = len(self._next) > len(wanted) and sum(map(len, wanted.values())) > BATCH_RECORDS
        if costly or not there:
            self._assign({p: r.start for p, r in wanted.items()})

    def go_to(self, partition: Partition, offset: int) -> None:
        """Delivers a partition from `offset` on, and drops all others if it stands elsewhere."""
        if self._next.get(partition) != offset:
            self._assign({partition: offset})

    def take(self, partition: Partition, most: int) -> list[Message]:
        """Returns up to `most` messages and events of a partition; after a short wait, those that there are."""
        if not self._kept.get(partition):
            self._receive(partition)
        kept = self._kept.get(partition, [])
        self._kept[partition] = kept[most:]
        return kept[:most]

    def nothing_before(self, partition: Partition, offset: int) -> bool:
        """Returns True when no record is left before `offset`. A log's end is reported once, so a later range of holes
        must remember it.
        """
        return not self._kept.get(partition) and offset <= self._ended_at.get(partition, -1)

    def ended(self, partition: Partition, offset: int) -> None:
        """Notes the log's end: everything before it was delivered."""
        self._ended_at[partition] = offset

    def stands_at(self, partition: Partition, offset: int, unused: list[Message]) -> None:
        """Notes the position after a range. The next range returns messages that were taken too far."""
        self._next[partition] = offset
        self._ends.pop(partition, None)
        self._kept[partition] = unused + self._kept.get(partition, [])

    def lost_its_place(self) -> None:
        """Forgets all positions, after a failure."""
        self._next, self._kept = {}, {}

    def bounds(self, partition: Partition) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*partition), timeout=30)
        return int(low), int(high)

    def _assign(self, at: dict[Partition, int], kept: dict[Partition, list[Message]] | None = None) -> None:
        self._next, self._fetched = dict(at), dict(at)
        self._kept = kept or {}
        self._ended_at = {}
        self._consumer.assign([TopicPartition(*p, offset) for p, offset in at.items()])

    def _receive(self, reading: Partition) -> None:
        """Receives what the task misses, or what comes in a short wait. librdkafka waits as long as there is less."""
        missing = sum(max(0, end - self._fetched.get(p, end)) for p, end in self._ends.items())
        came: list[Message] = self._consumer.consume(max(1, min(BATCH_RECORDS, missing)), POLL_S)
        if len(self._next) == 1:
            self._kept[reading] = came
            last = next((m for m in reversed(came) if m.error() is None), None)
            if last is not None:
                self._fetched[reading] = last.offset() + 1
            return
        for message in came:
            topic = message.topic()
            partition = reading if topic is None else (topic, message.partition())  # of the client as a whole
            self._kept.setdefault(partition, []).append(message)
            if message.error() is None:
                self._fetched[partition] = message.offset() + 1
        if reading in self._fetched and self._keeps_too_much(reading):
            self._keep_only(reading)

    def _keeps_too_much(self, reading: Partition) -> bool:
        """Tells whether the messages of other partitions are too many, or too large."""
        if sum(map(len, self._kept.values())) > KEPT_MOST:
            return True
        others = (m for p, kept in self._kept.items() if p != reading for m in kept)
        return sum(map(len, others)) > KEPT_BYTES  # a message's length is that of its value

    def _keep_only(self, reading: Partition) -> None:
        at, kept = self._fetched[reading], self._kept.get(reading, [])
        before = self._next[reading]
        self._assign({reading: at}, {reading: kept})
        self._next[reading] = before
