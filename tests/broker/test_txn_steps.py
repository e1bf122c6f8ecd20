"""Writes in several steps for a transaction or a group: the end of either may come between two of them."""

from __future__ import annotations

import asyncio

import pytest
from support.inprocess import connect, serving
from support.raw import batch

from klamm_broker.api.commits import BATCH, committing
from klamm_broker.api.transactional_produce import Verification
from klamm_broker.coordinator.model import CommitRequest, OffsetToCommit, TopicPartition
from klamm_broker.coordinator.transactions.model import AddRequest, EndRequest
from klamm_broker.server import heavy
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm_kafka.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TOPIC, PARTITIONS = "t", 200


class World:
    """A broker, a connection, and a producer with a transactional id."""

    def __init__(self, server, connection):
        self.broker, self.connection = server.broker, connection

    async def open(self, partitions=PARTITIONS):
        new = CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1)
        await self.connection.request(CreateTopicsRequest(topics=[new], timeout_ms=60_000), 6)
        ask = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        given = await self.connection.request(ask, 4)
        assert given.error_code == E.NONE
        self.producer = given.producer_id, given.producer_epoch
        return self

    async def add_all(self):
        await self.connection.request(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=self.producer[0],
                v3_and_below_producer_epoch=self.producer[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(range(PARTITIONS)))],
            ),
            3,
        )

    async def produce(self, version, sequence=0):
        """Returns the error of each partition."""
        records = batch(
            b"x",
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        data = [PartitionProduceData(index=n, records=records) for n in range(PARTITIONS)]
        ask = ProduceRequest(
            transactional_id="x", acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
        )  # fmt: skip
        answer = await self.connection.request(ask, version)
        return [p.error_code for p in answer.responses[0].partition_responses]

    def end(self, client_version):
        """Ends the transaction at once, as an EndTxn of another connection may."""
        transactions, (producer_id, epoch) = self.broker.transactions, self.producer
        request = EndRequest(
            transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True, client_version=client_version
        )  # fmt: skip
        told = transactions.ask(
            lambda token, now: transactions.coordinator.end(request, token, now), lambda result: result
        )
        assert told.error is E.NONE

    def logs(self):
        return [p.log for p in self.broker.topics.by_name[TOPIC].partitions]


@pytest.fixture
async def world(tmp_path):
    async with serving(tmp_path) as server, await connect(server) as connection:
        yield World(server, connection)


@pytest.mark.parametrize("version", [9, 12])
async def test_a_large_produce_within_a_transaction_is_in_slices(world, version, monkeypatch):
    await world.open()
    if version < 12:
        await world.add_all()
    monkeypatch.setattr(heavy, "LONG_SLICE_S", 0)
    slices, work = [], heavy.one_slice
    monkeypatch.setattr(heavy, "one_slice", lambda steps: slices.append(1) or work(steps))
    assert set(await world.produce(version)) == {0}
    assert len(slices) > 2 * PARTITIONS / 32, "its batches are looked at, then written"
    assert {log.log_end_offset for log in world.logs()} == {1}
    world.end(2 if version >= 12 else 0)
    assert {log.last_stable_offset for log in world.logs()} == {2}


@pytest.mark.parametrize("begins_anew", [False, True])
@pytest.mark.parametrize("version", [9, 12])
async def test_nothing_is_written_behind_the_end_of_a_transaction(world, version, begins_anew, monkeypatch):
    """It would stay open for ever, or belong to the next transaction."""
    await world.open()
    if version < 12:
        await world.add_all()
    looks, is_over = [], Verification.is_over

    def ended_between(verification):
        looks.append(1)
        if len(looks) == 3:
            world.end(2 if version >= 12 else 0)
            if begins_anew and version < 12:
                begin_anew(world)
        return is_over(verification)

    monkeypatch.setattr(Verification, "is_over", ended_between)
    errors = await world.produce(version)
    written = errors.count(0)
    assert 0 < written < PARTITIONS
    assert set(errors[written:]) == {E.INVALID_TXN_STATE}
    ends = [log.log_end_offset for log in world.logs()]
    assert ends == [2] * written + [1] * (PARTITIONS - written), "a record and a marker, or the marker"
    assert [log.last_stable_offset for log in world.logs()] == ends


def begin_anew(world):
    """Adds the partitions to the producer's next transaction, which has the same epoch before KIP-890."""
    transactions = world.broker.transactions
    request = AddRequest(
        transactional_id="x",
        producer_id=world.producer[0],
        producer_epoch=world.producer[1],
        partitions=frozenset(TopicPartition(TOPIC, n) for n in range(PARTITIONS)),
        client_version=0,
    )
    told = transactions.ask(
        lambda token, now: transactions.coordinator.add_partitions(request, token, now), lambda error: error
    )
    assert told is E.NONE


async def test_offsets_are_not_stored_behind_the_end_of_their_transaction(world, monkeypatch):
    """Adding the group's partition may wait for the disk. It is told a turn of the loop later, and an EndTxn may come first.

    Its marker has the next epoch (KIP-890): the log refuses what comes behind it.
    """
    await world.open(1)
    broker = world.broker
    broker.groups.ensure_topic()
    verify = broker.transactions.verify

    def verified(*args):
        assert verify(*args) == {}
        answer = broker.loop.create_future()
        answer.set_result({})
        world.end(2)
        return answer

    monkeypatch.setattr(broker.transactions, "verify", verified)
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    answer = await world.connection.request(
        TxnOffsetCommitRequest(
            transactional_id="x", producer_id=world.producer[0], producer_epoch=world.producer[1],
            group_id="g", topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
        ), 5,
    )  # fmt: skip
    assert answer.topics[0].partitions[0].error_code == E.INVALID_PRODUCER_EPOCH
    log = broker.topics.by_name["__consumer_offsets"].partitions[0].log
    assert (log.log_end_offset, log.last_stable_offset) == (1, 1), "the marker alone"


@pytest.mark.parametrize("reports_missing_group", [True, False])
async def test_a_group_that_is_deleted_within_a_commit_stays_deleted(world, reports_missing_group):
    await world.open(1)
    broker = world.broker
    broker.groups.ensure_topic()
    await asyncio.sleep(0.1)
    count = 2 * BATCH + 10
    commit = CommitRequest(
        group_id="g",
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        reports_missing_group=reports_missing_group,
        offsets={TopicPartition(TOPIC, n): OffsetToCommit(1, -1, None, bytes(16)) for n in range(count)},
    )
    steps = committing(broker, commit)
    next(steps)
    [told] = await broker.groups.ask_all(
        [lambda token, now: broker.groups.coordinator.delete_group("g", token, now)]
    )
    assert told is E.NONE
    result = heavy.finished(steps)
    assert result.error is E.NONE
    errors = list(result.partitions.values())
    refused = E.GROUP_ID_NOT_FOUND if reports_missing_group else E.ILLEGAL_GENERATION
    assert errors == [E.NONE] * BATCH + [refused] * (count - BATCH)
    assert "g" not in broker.groups.coordinator.groups
