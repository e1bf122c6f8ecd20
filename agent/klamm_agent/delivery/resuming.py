"""Batches that an agent had sent when it was killed: the leaders of their partitions tell which of them they have.

A broker remembers the last sequence number of each producer, and its last batches. The batches go again under their old numbers, so a
broker that has them writes none of them twice, also when a request of the killed agent comes only now. DescribeProducers is asked
before, for what this does not cover: a broker that was restarted remembers fewer batches, and one that has forgotten the
producer would write all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from klamm_agent.delivery.batches import Batch
from klamm_base.backoff import Backoff
from klamm_kafka.client import BrokerError, ClientError, Cluster, broker_error
from klamm_kafka.client.outbox import SEQUENCES
from klamm_kafka.wire.batch import read_header
from klamm_kafka.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)

REMEMBERED_MS: Final = 3_600_000
"""Brokers keep an idle producer for a day unless told otherwise; one that is not known after an hour may have been."""
_ASK_S: Final = 10.0


class Known(Enum):
    """Answers of a leader about a producer, besides a last sequence number."""

    ABSENT = "absent"
    """It knows no such producer."""
    UNTOLD = "untold"
    """It does not say: no permission, or an old broker."""


class Verdict(NamedTuple):
    """The batches of one partition: those that are in the topic for sure, those that go again under their numbers, and those that go
    again as new ones, of which nobody knows whether they are in the topic.
    """

    proved: list[Batch]
    again: list[Batch]
    doubtful: list[Batch]


def judge(batches: Sequence[Batch], last: int | Known, now_ms: int) -> Verdict:
    """Judges one partition's batches, in their order, by the last sequence number that its leader has of their first producer. Pure."""
    first = batches[0].noted
    assert first is not None, "only batches that were sent come here"
    ours = [b for b in batches if b.noted is not None and b.noted[1:3] == first[1:3]]
    others = [b for b in batches if b not in ours]  # sent by another producer after a failure
    if last is Known.ABSENT:
        old = now_ms - read_header(ours[0].data).base_timestamp > REMEMBERED_MS
        if old or first.sequence:
            return Verdict([], [], list(batches))
    if isinstance(last, Known):
        return Verdict([], ours, others)
    proved = [b for b in ours if _distance(b.last_sequence, last) > 0]
    return Verdict(proved, [b for b in ours if b not in proved], others)


def _distance(first: int, second: int) -> int:
    """Returns how far `second` is behind `first` in the circle of sequence numbers; negative when it is before it."""
    found = (second - first) % SEQUENCES
    return found if found < SEQUENCES // 2 else found - SEQUENCES


class Resuming:
    """The batches that wait for what the leaders say. `by_topic` has them by partition, in their order."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.by_topic: dict[str, dict[int, list[Batch]]] = {}
        self._asking = Backoff()

    def add(self, batch: Batch) -> None:
        """Takes a batch that was sent; batches must come in their order."""
        assert batch.noted is not None, "it was sent"
        batch.sequence = batch.noted.sequence
        self.by_topic.setdefault(batch.topic, {}).setdefault(batch.noted.partition, []).append(batch)

    async def ask(self, topic: str, partitions: int) -> dict[int, Verdict] | None:
        """Asks the leaders of a topic, which has so many partitions now, about all at once; returns the verdicts by partition, None when
        it must be tried again.
        """
        if time.monotonic() < self._asking.until:
            return None
        now_ms, waiting = time.time_ns() // 1_000_000, self.by_topic[topic]
        # Somebody may have deleted the topic and made it again with fewer partitions
        found = {p: Verdict([], [], batches) for p, batches in waiting.items() if p >= partitions}
        there = {p: batches for p, batches in waiting.items() if p < partitions}
        try:
            told = await asyncio.gather(*(self._last(topic, p, batches[0]) for p, batches in there.items()))
        except ClientError as e:
            self._asking.failed(time.monotonic(), str(e))
            return None
        for (partition, batches), last in zip(there.items(), told, strict=True):
            found[partition] = judge(batches, last, now_ms)
        self._asking.succeeded()
        del self.by_topic[topic]
        return found

    async def _last(self, topic: str, partition: int, batch: Batch) -> int | Known:
        """Asks a leader for the last sequence number of the batch's producer. Raises ClientError when asking again may help."""
        assert batch.noted is not None, "it was sent"
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
        try:
            connection = await self._cluster.leader(topic, partition)
            answer: DescribeProducersResponse = await connection.request(request, timeout_s=_ASK_S)
            (told,) = answer.topics[0].partitions
            if told.error_code:
                raise broker_error(told.error_code, f"asking for the producers of {topic}-{partition}")
        except BrokerError as e:
            if e.retriable:
                raise
            return Known.UNTOLD
        except ClientError as e:
            if e.retriable:
                raise
            return Known.UNTOLD
        for state in told.active_producers:
            if state.producer_id == batch.noted.producer_id:
                if state.producer_epoch != batch.noted.epoch or state.last_sequence < 0:
                    return Known.ABSENT
                return state.last_sequence
        return Known.ABSENT
