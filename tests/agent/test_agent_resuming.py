"""The batches that an agent had sent when it was killed: leaders are asked about them, and the answers judged."""

from __future__ import annotations

import asyncio
import time

from hypothesis import given
from hypothesis import strategies as st

from klamm_agent.delivery.batches import Batch
from klamm_agent.delivery.encode import encode_batch
from klamm_agent.delivery.resuming import REMEMBERED_MS, SLOW_S, Known, Resuming, judge
from klamm_agent.delivery.wal.entries import Sent
from klamm_kafka.client import OneCluster
from klamm_kafka.client.outbox import SEQUENCES
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from klamm_kafka.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def batch(number: int, sequence: int, count: int, *, at_ms: int = 0, producer: int = 7) -> Batch:
    data = encode_batch([(None, [b"x"] * count)], at_ms, Compression.NONE)
    found = Batch("t", data, count, [])
    found.number, found.sequence, found.noted = number, sequence, Sent(0, producer, 0, sequence)
    return found


class Leader:
    """A partition's leader as Kafka's: it checks sequence numbers against the last batches that it remembers."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.cached: list[tuple[int, int]] = []

    @property
    def last(self) -> int | Known:
        return self.cached[-1][1] if self.cached else Known.ABSENT

    def append(self, one: Batch) -> None:
        ends = one.sequence, one.last_sequence
        if ends in self.cached:
            return
        assert not self.cached or one.sequence == (self.cached[-1][1] + 1) % SEQUENCES, "out of order"
        self.log.append(one.number)
        self.cached = [*self.cached, ends][-5:]

    def restarted(self) -> None:
        """Forgets all but the last batch, as after a snapshot."""
        self.cached = self.cached[-1:]


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=12),
    st.data(),
    st.sampled_from([0, SEQUENCES - 60]),
    st.booleans(),
)
def test_batches_of_a_killed_agent_are_in_the_topic_once(counts, data, first, restarted):
    batches, sequence = [], first
    for number, count in enumerate(counts):
        batches.append(batch(number, sequence, count))
        sequence = (sequence + count) % SEQUENCES
    leader = Leader()
    arrived = data.draw(st.integers(0 if first == 0 else 1, len(batches)))
    for one in batches[:arrived]:
        leader.append(one)
    # At most five are sent before the first is acknowledged; the agent may have noted fewer acknowledgements than came
    noted = data.draw(st.integers(max(0, arrived - 5), min(arrived, len(batches) - 1)))
    went = data.draw(st.integers(max(noted + 1, arrived), max(noted + 1, min(len(batches), noted + 5))))
    unknown = batches[noted:went]
    if restarted:
        leader.restarted()
    told = leader.last
    verdict = judge(unknown, told, 0)
    for one in batches[arrived : data.draw(st.integers(arrived, went))]:
        leader.append(one)  # a request of the dead agent comes after the leader was asked
    assert not verdict.doubtful
    assert verdict.proved + verdict.again == unknown
    for one in verdict.again:
        leader.append(one)
    assert leader.log == list(range(went))


class Leaders:
    """A cluster whose leaders have the first records. Those of `hanging` partitions do not answer."""

    def __init__(self, hanging: set[int] = frozenset()) -> None:
        self.hanging, self.asked = hanging, []

    async def broker(self, node):
        return self

    async def request(self, request, *, timeout_s):
        (partition,) = request.topics[0].partition_indexes
        self.asked.append(partition)
        if partition in self.hanging:
            await asyncio.Event().wait()
        told = PartitionResponse(
            active_producers=[ProducerState(producer_id=7, producer_epoch=0, last_sequence=4)]
        )
        return DescribeProducersResponse(topics=[TopicResponse(partitions=[told])])


def resuming(leaders: Leaders, partitions: int, count: int = 10) -> Resuming:
    """Returns batches of `count` records for so many partitions, whose leaders are known."""
    found = Resuming(leaders, OneCluster(), lambda: None)
    for partition in range(partitions):
        one = batch(partition, 0, count)
        one.noted = one.noted._replace(partition=partition)
        found.add(one)
    led = [MetadataResponsePartition(partition_index=p, leader_id=1) for p in range(partitions)]
    found.learned(MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=led)]))
    return found


async def test_a_leader_that_hangs_holds_its_partition_only():
    """A start with hundreds of partitions over a long line waits for one answer, and not for hundreds."""
    leaders = Leaders({7})
    waiting = resuming(leaders, 51)
    verdicts = waiting.verdicts("t", 50)
    assert {p: v.doubtful[0].number for p, v in verdicts.items()} == {50: 50}, "there are 50 partitions now"
    await asyncio.sleep(0.01)
    assert leaders.asked == list(range(50)), "all are asked before one has answered"
    verdicts = waiting.verdicts("t", 50)
    assert {p: [b.number for b in v.again] for p, v in verdicts.items()} == {
        p: [p] for p in range(50) if p != 7
    }
    assert set(waiting.held("t")) == {7}
    assert not waiting.slow(time.monotonic())
    assert waiting.slow(time.monotonic() + SLOW_S)[0][:2] == ("t", 7)
    await waiting.close()


async def test_another_leader_is_asked_at_once():
    leaders = Leaders({0})
    waiting = resuming(leaders, 1)
    assert not waiting.verdicts("t", 1)
    await asyncio.sleep(0.01)
    leaders.hanging = set()
    led = [MetadataResponsePartition(partition_index=0, leader_id=2)]
    waiting.learned(MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=led)]))
    while not (verdicts := waiting.verdicts("t", 1)):
        await asyncio.sleep(0.01)
    assert [b.number for b in verdicts[0].again] == [0]
    assert not waiting.topics
    await waiting.close()


def test_a_producer_that_the_broker_forgot_leaves_doubt():
    some = [batch(1, 10, 5), batch(2, 15, 5)]
    assert judge(some, Known.ABSENT, 0).doubtful == some
    first = [batch(1, 0, 5), batch(2, 5, 5)]
    assert judge(first, Known.ABSENT, 0).again == first, "they never came"
    assert judge(first, Known.ABSENT, REMEMBERED_MS + 1).doubtful == first, "it may have been forgotten since"
    assert judge(some, Known.UNTOLD, 0).again == some, "the broker compares the numbers"


def test_batches_of_another_producer_are_in_doubt():
    some = [batch(1, 0, 5, producer=8), batch(2, 40, 5)]
    verdict = judge(some, 4, 0)
    assert (verdict.again, verdict.doubtful) == ([some[0]], [some[1]])
