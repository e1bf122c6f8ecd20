"""Share sessions: every partition has its turn, a refused session leaves the last one, records come back when one ends."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from support.inprocess import connect, produce, serving

from klamm_broker.coordinator.share.sessions import ShareSessions
from klamm_broker.coordinator.share.share_partition import SharePartition
from klamm_broker.server import heavy, share_groups, slices
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from klamm_kafka.wire.messages.share_fetch import AcknowledgementBatch as FetchBatch
from klamm_kafka.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from klamm_kafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

QUICK = {
    "group_share_assignment_interval_ms": "0",
    "share_coordinator_state_topic_num_partitions": "1",
}


class Member:
    """A member of a share group that reads all partitions of the topic that has the group's name."""

    def __init__(self, server, connection, group, name):
        self.connection, self.group, self.name = connection, group, name
        topic = server.broker.topics.by_name[group]
        self.topic_id, self.all = topic.id, range(len(topic.partitions))
        self.epoch = 0

    async def join(self):
        epoch, answer = 0, None
        while answer is None or not answer.assignment or not answer.assignment.topic_partitions:
            ask = ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.name,
                member_epoch=epoch,
                subscribed_topic_names=[self.group],
            )
            answer = await self.connection.request(ask, 1)
            epoch = answer.member_epoch
        return self

    async def fetch(self, acks=(), *, most=1, limit=True, epoch=None, wait_ms=1_000):
        """Returns the acquired records, as (partition, offset, deliveries). Acks are (partition, offset)."""
        self.epoch = self.epoch if epoch is None else epoch
        parts = [FetchPartition(partition_index=n) for n in self.all] if self.epoch == 0 else []
        parts += [
            FetchPartition(
                partition_index=n,
                acknowledgement_batches=[FetchBatch(first_offset=o, last_offset=o, acknowledge_types=[1])],
            )
            for n, o in acks
        ]
        ask = ShareFetchRequest(
            group_id=self.group, member_id=self.name, share_session_epoch=self.epoch, max_wait_ms=wait_ms, min_bytes=1,
            max_bytes=1 << 20, max_records=most, batch_size=500, share_acquire_mode=int(limit),
            topics=[FetchTopic(topic_id=self.topic_id, partitions=parts)] if parts else [],
        )  # fmt: skip
        answer = await self.connection.request(ask, 2)
        assert answer.error_code == E.NONE, answer.error_message
        self.epoch += 1
        found = [p for topic in answer.responses for p in topic.partitions]
        assert {p.error_code for p in found} <= {0}
        return [
            (p.partition_index, offset, a.delivery_count)
            for p in found
            for a in p.acquired_records
            for offset in range(a.first_offset, a.last_offset + 1)
        ]

    async def acknowledge(self, acks, *, epoch=None):
        parts = [
            AcknowledgePartition(
                partition_index=n,
                acknowledgement_batches=[
                    AcknowledgementBatch(first_offset=o, last_offset=o, acknowledge_types=[1])
                ],
            )
            for n, o in acks
        ]
        ask = ShareAcknowledgeRequest(
            group_id=self.group, member_id=self.name, share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=parts)] if parts else [],
        )  # fmt: skip
        answer = await self.connection.request(ask, 2)
        assert answer.error_code == E.NONE, answer.error_message
        self.epoch += 1


async def prepare(connection, name, partitions, records):
    """Makes a topic with so many records in each partition, read by the group of its name from the earliest on."""
    new = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    await connection.request(CreateTopicsRequest(topics=[new], timeout_ms=60_000), 6)
    change = AlterableConfig(name="share.auto.offset.reset", value="earliest")
    group = AlterConfigsResource(resource_type=32, resource_name=name, configs=[change])
    await connection.request(IncrementalAlterConfigsRequest(resources=[group]), 1)
    for n in range(partitions):
        assert (await produce(connection, name, *[b"x"] * records, partition=n)).error_code == 0


@pytest.mark.parametrize("separate", [True, False], ids=["acknowledged apart", "acknowledged by fetches"])
async def test_each_partition_has_its_turn(tmp_path, separate):
    """A rotation by the session's epoch rests on the same partition if acknowledgements take every other epoch."""
    rounds, served = 4, {}
    async with serving(tmp_path, **QUICK) as server, await connect(server) as connection:
        for partitions in range(2, 11):
            name = f"t{partitions}"
            await prepare(connection, name, partitions, rounds + 2)
            member = await Member(server, connection, name, "m").join()
            found, acks = Counter(), []
            for _ in range(rounds * partitions):
                got = [(n, offset) for n, offset, _ in await member.fetch(() if separate else acks)]
                assert len(got) == 1
                found.update(n for n, _ in got)
                acks = got
                if separate:
                    await member.acknowledge(got)
            served[partitions] = found
    assert served == {n: dict.fromkeys(range(n), rounds) for n in served}


def test_a_session_that_is_refused_leaves_the_last_one():
    sessions = ShareSessions()
    first = sessions.open(("g", "a"), 0, "one", 20)
    assert not isinstance(sessions.open(("g", "b"), 0, "two", 20), E)
    assert not isinstance(sessions.open(("g", "c"), 0, "two", 20), E)
    assert sessions.open(("g", "a"), 0, "two", 20) is E.SHARE_SESSION_LIMIT_REACHED, "its connection has two"
    assert sessions.get(("g", "a")) is first, "its records are still known, and come back when it ends"
    assert sessions.advance(("g", "a"), 1) is first


LARGE = 100


@pytest.fixture
async def locked(tmp_path, monkeypatch):
    """Yields a server and a member that has one of two records of each of very many partitions; slices are of one step."""
    monkeypatch.setattr(slices, "SLICE_S", 0)
    async with serving(tmp_path, **QUICK) as server, await connect(server) as connection:
        await prepare(connection, "t", LARGE, 2)
        member = await Member(server, connection, "t", "m").join()
        got = set()
        while len(got) < LARGE:
            got |= {n for n, _, _ in await member.fetch(most=LARGE)}
        yield server, member


@pytest.mark.parametrize("how", ["fetch", "acknowledgement", "disconnect"])
async def test_the_end_of_a_large_session_is_in_slices(locked, how, monkeypatch):
    """Each partition's release is written; the loop is free between them, and none of the group is dropped before."""
    server, member = locked
    released, dropped = [], []
    release, drop = SharePartition.release, server.broker.shares.drop
    turns = Counter()
    turn = slices.Lane._turn

    def noted(lane):
        before = len(released)
        turn(lane)
        turns[len(released) - before] += 1

    monkeypatch.setattr(
        SharePartition, "release", lambda core, name: released.append(1) or release(core, name)
    )
    monkeypatch.setattr(slices.Lane, "_turn", noted)
    monkeypatch.setattr(server.broker.shares, "drop", lambda key: dropped.append(len(released)) or drop(key))
    async with await connect(server) as other:
        if how == "fetch":
            await member.fetch(epoch=-1, most=0)
        elif how == "acknowledgement":
            await member.acknowledge([], epoch=-1)
        else:
            await member.connection.close()
        while len(released) < LARGE or (how == "disconnect" and len(dropped) < LARGE):
            await asyncio.sleep(0.01)
        assert sum(turns.values()) > 3
        assert max(turns) < LARGE / 2
        assert set(dropped) <= {LARGE}, "what is dropped gives nothing back"
        again = await Member(server, other, "t", "n").join()
        found = set()
        while len(found) < LARGE:
            found |= {(n, count) for n, offset, count in await again.fetch(most=LARGE) if offset == 0}
        assert {count for _, count in found} == {2}


async def test_a_member_that_comes_back_at_once_keeps_what_it_gets(locked, monkeypatch):
    """Its last session's records are given back in slices meanwhile: those of a partition before it gets new ones."""
    server, member = locked
    later = []
    monkeypatch.setattr(share_groups, "drive", lambda _, steps: later.append(steps))
    await member.fetch(epoch=-1, most=0)
    got = await member.fetch(epoch=0, most=2 * LARGE, limit=False)
    assert {count for _, offset, count in got if offset == 0} == {2}
    for steps in later:
        heavy.finished(steps)
    async with await connect(server) as connection:
        other = await Member(server, connection, "t", "n").join()
        found = await other.fetch(most=2 * LARGE, wait_ms=0)
    assert {n for n, _, _ in got}.isdisjoint(n for n, _, _ in found)
    assert server.broker.shares.leaving == {}


async def test_locks_that_end_together_are_given_back_in_slices(locked, monkeypatch):
    """Their timers are due in the same turn of the loop, and each release is written."""
    server, _ = locked
    shares, expired = server.broker.shares, []
    expire, now_ms = SharePartition.expire, shares.now_ms
    monkeypatch.setattr(share_groups, "LONG_SLICE_S", 0)
    monkeypatch.setattr(SharePartition, "expire", lambda core, now: expired.append(1) or expire(core, now))
    monkeypatch.setattr(shares, "now_ms", lambda: now_ms() + 60_000)
    for served in shares.served():
        served.timer._tick()
    assert expired == []
    counts = set()
    while len(expired) < LARGE:
        counts.add(len(expired))
        await asyncio.sleep(0)
    assert len(counts) > LARGE / 2
    async with await connect(server) as connection:
        other = await Member(server, connection, "t", "n").join()
        found = set()
        while len(found) < LARGE:
            found |= {(n, count) for n, offset, count in await other.fetch(most=LARGE) if offset == 0}
    assert {count for _, count in found} == {2}
