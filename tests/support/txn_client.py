"""A producer of either transaction version against a broker in the test's own process, one request at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from support.raw import batch, produce_request

from klamm_kafka.client import Connection
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm_kafka.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from klamm_kafka.wire.messages.end_txn import EndTxnRequest
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_kafka.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NAME, TOPIC, GROUP, OFFSET = "txn", "t", "group", 7
QUICK = {"transaction_state_log_num_partitions": "1"}


@dataclass
class Known:
    """The answers that clients have got when a crash comes."""

    newest: tuple[int, int] = (-1, -1)
    written: set[int] = field(default_factory=set)
    """Partitions with an acknowledged record."""
    committed: bool | None = None
    """The end of the transaction, once it is answered."""


class Client:
    """A producer of either transaction version, which tells `known` what it is told."""

    def __init__(self, connection: Connection, known: Known, version: int) -> None:
        self._connection, self._known, self._version = connection, known, version

    @property
    def _me(self) -> dict[str, Any]:
        return {"transactional_id": NAME, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
        while (answer := await self._connection.request(request, 5)).error_code:
            assert answer.error_code in (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS)
            await asyncio.sleep(0.01)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        assert (self.producer_id, self.epoch) > self._known.newest, "an epoch was given twice, or went back"
        self._known.newest = self.producer_id, self.epoch

    async def produce(self, partition: int) -> None:
        if self._version < 2:
            topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])]
            add = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=NAME,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics,
            )
            (answer,) = (await self._connection.request(add, 3)).results_by_topic_v3_and_below
            assert answer.results_by_partition[0].partition_error_code == E.NONE
        records = batch(
            b"x", producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=0, is_transactional=True
        )  # fmt: skip
        request = produce_request(TOPIC, records, partition=partition, acks=-1, transactional_id=NAME)
        answer = await self._connection.request(request, 12 if self._version >= 2 else 11)
        assert answer.responses[0].partition_responses[0].error_code == E.NONE
        self._known.written.add(partition)

    async def commit_offset(self) -> None:
        if self._version < 2:
            added = await self._connection.request(AddOffsetsToTxnRequest(**self._me, group_id=GROUP), 3)
            assert added.error_code == E.NONE
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=OFFSET)
        topics = [TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])]
        request = TxnOffsetCommitRequest(**self._me, group_id=GROUP, topics=topics)
        answer = await self._connection.request(request, 5 if self._version >= 2 else 3)
        assert answer.topics[0].partitions[0].error_code == E.NONE

    async def end(self, *, committed: bool) -> None:
        request = EndTxnRequest(**self._me, committed=committed)
        answer = await self._connection.request(request, 5 if self._version >= 2 else 3)
        assert answer.error_code == E.NONE
        self._known.committed = committed
        if self._version >= 2:
            self._known.newest = answer.producer_id, answer.producer_epoch


async def transaction(connection: Connection, known: Known, version: int) -> Client:
    client = Client(connection, known, version)
    await client.init()
    await client.produce(0)
    await client.produce(1)
    await client.commit_offset()
    return client
