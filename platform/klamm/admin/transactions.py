"""Transactions: their producers, states and partitions, and ending a transaction that nobody else will end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from klamm.admin.client import TRANSACTION, Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition, by_topic
from klamm.admin.topics import list_topics
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm_kafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_kafka.wire.messages.list_transactions import ListTransactionsRequest

BATCH = 500  # partitions of one DescribeProducers request


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A transactional id and where its coordinator is."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id as its coordinator knows it. `started_ms` is None while no transaction is open."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """A producer as a partition's leader knows it. `txn_start` is None while it has no transaction there."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    txn_start: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that a partition waits for."""

    partition: TopicPartition
    producer: ProducerState


async def list_transactions(
    admin: Admin,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    duration_ms: int | None = None,
    pattern: str | None = None,
) -> list[Listing]:
    """Return transactional ids of all coordinators, by broker and id.

    Raises AdminError, UnsupportedApi for an old broker's filter.
    """
    request = ListTransactionsRequest(
        state_filters=sorted(states),
        producer_id_filters=sorted(producer_ids),
        duration_filter=-1 if duration_ms is None else duration_ms,
        transactional_id_pattern=pattern,
    )
    floor = 2 if pattern is not None else 1 if duration_ms is not None else 0
    result: list[Listing] = []
    for node_id in await admin.brokers():

        async def attempt(node_id: int = node_id) -> Any:
            answer = await admin.ask_broker(node_id, request, floor=floor)
            if answer.error_code:
                raise AdminError(answer.error_code, f"cannot list the transactions of broker {node_id}")
            return answer

        answer = await admin.patiently(attempt)
        rows = [
            Listing(
                transactional_id=t.transactional_id,
                coordinator=node_id,
                producer_id=t.producer_id,
                state=t.transaction_state,
            )
            for t in answer.transaction_states
        ]
        result += sorted(rows, key=lambda r: r.transactional_id)
    return result


async def describe_transaction(admin: Admin, transactional_id: str) -> Transaction:
    """Raises AdminError with TRANSACTIONAL_ID_NOT_FOUND for one that is not there."""

    async def attempt() -> Transaction:
        coordinator = await admin.coordinator(transactional_id, TRANSACTION)
        answer = await admin.ask_coordinator(
            transactional_id,
            DescribeTransactionsRequest(transactional_ids=[transactional_id]),
            key_type=TRANSACTION,
        )
        found = answer.transaction_states[0]
        what = f"cannot describe transactional id {transactional_id!r}"
        admin.refused(transactional_id, found.error_code, what, key_type=TRANSACTION)
        return Transaction(
            transactional_id=transactional_id,
            coordinator=coordinator.id,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            state=found.transaction_state,
            timeout_ms=found.transaction_timeout_ms,
            started_ms=None if found.transaction_start_time_ms < 0 else found.transaction_start_time_ms,
            partitions=tuple(TopicPartition(t.topic, p) for t in found.topics for p in t.partitions),
        )

    return await admin.patiently(attempt)


async def describe_producers(
    admin: Admin, partitions: Collection[TopicPartition], *, broker_id: int | None = None
) -> dict[TopicPartition, list[ProducerState] | AdminError]:
    """Return active producers by partition, as its leader (or `broker_id`, a replica of it) knows them."""

    async def call(
        node_id: int, mine: list[TopicPartition]
    ) -> Mapping[TopicPartition, list[ProducerState] | AdminError]:
        topics = [TopicRequest(name=t, partition_indexes=ids) for t, ids in by_topic(mine).items()]
        answer = await admin.ask_broker(node_id, DescribeProducersRequest(topics=topics))
        return {
            tp: AdminError(p.error_code, str(tp), p.error_message)
            if p.error_code
            else [_producer(s) for s in p.active_producers]
            for t in answer.topics
            for p in t.partitions
            for tp in [TopicPartition(t.name, p.partition_index)]
        }

    result: dict[TopicPartition, list[ProducerState] | AdminError] = {}
    ordered = sorted(partitions)
    for start in range(0, len(ordered), BATCH):
        some = ordered[start : start + BATCH]
        if broker_id is None:
            result |= await admin.by_leader(some, call)
        else:
            result |= await call(broker_id, some)
    return result


def _producer(s: Any) -> ProducerState:
    return ProducerState(
        producer_id=s.producer_id,
        producer_epoch=s.producer_epoch,
        coordinator_epoch=s.coordinator_epoch,
        last_sequence=s.last_sequence,
        last_timestamp=s.last_timestamp,
        txn_start=None if s.current_txn_start_offset < 0 else s.current_txn_start_offset,
    )


async def find_hanging(
    admin: Admin,
    partitions: Collection[TopicPartition],
    *,
    older_than_ms: int,
    now_ms: int,
    broker_id: int | None = None,
) -> list[OpenTransaction]:
    """Return transactions without a coordinator that would end them. Raises AdminError."""
    found = await describe_producers(admin, partitions, broker_id=broker_id)
    candidates = []
    for tp, producers in found.items():
        if isinstance(producers, AdminError):
            raise producers
        candidates += [
            OpenTransaction(partition=tp, producer=p)
            for p in producers
            if p.txn_start is not None and now_ms - p.last_timestamp > older_than_ms
        ]
    if not candidates:
        return []
    ids = {c.producer.producer_id for c in candidates}
    names = {
        row.producer_id: row.transactional_id for row in await list_transactions(admin, producer_ids=ids)
    }
    known: dict[int, Transaction] = {}
    for producer_id, name in names.items():
        try:
            known[producer_id] = await describe_transaction(admin, name)
        except AdminError as e:
            if e.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return hanging(candidates, known)


def hanging(candidates: Sequence[OpenTransaction], known: Mapping[int, Transaction]) -> list[OpenTransaction]:
    """Return the open transactions whose coordinator does not (or no longer) list the partition."""
    return [
        c
        for c in candidates
        if c.producer.producer_id not in known or c.partition not in known[c.producer.producer_id].partitions
    ]


async def abort(
    admin: Admin, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Write an abort marker past the coordinator (27). Raises AdminError."""
    from klamm_kafka.wire.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    async def call(node_id: int, mine: list[TopicPartition]) -> Mapping[TopicPartition, Any]:
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[
                WritableTxnMarkerTopic(name=t, partition_indexes=ids) for t, ids in by_topic(mine).items()
            ],
            coordinator_epoch=coordinator_epoch,
        )
        answer = await admin.ask_broker(node_id, WriteTxnMarkersRequest(markers=[marker]))
        return {
            tp: AdminError(p.error_code, f"cannot abort the transaction on {tp}") if p.error_code else None
            for m in answer.markers
            for t in m.topics
            for p in t.partitions
            for tp in [TopicPartition(t.name, p.partition_index)]
        }

    outcome = (await admin.by_leader([partition], call))[partition]
    if isinstance(outcome, AdminError):
        raise outcome


async def find_open(admin: Admin, partition: TopicPartition, start_offset: int) -> ProducerState | None:
    """Return the producer whose open transaction starts at this offset."""
    found = (await describe_producers(admin, [partition]))[partition]
    if isinstance(found, AdminError):
        raise found
    return next((p for p in found if p.txn_start == start_offset), None)


async def terminate(admin: Admin, transactional_id: str) -> None:
    """Abort what is under way by taking the transactional id over, which fences its producer. Raises AdminError."""

    async def attempt() -> None:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=admin.timeout_ms
        )
        answer = await admin.ask_coordinator(transactional_id, request, key_type=TRANSACTION)
        what = f"cannot terminate the transaction of {transactional_id!r}"
        admin.refused(transactional_id, answer.error_code, what, key_type=TRANSACTION)

    await admin.patiently(attempt)


async def partitions_to_search(
    admin: Admin, topic: str | None, partition: int | None, broker_id: int | None
) -> list[TopicPartition]:
    """Return one partition, a topic's, or all partitions; of one broker if it is given.

    Raises AdminError for an unknown topic.
    """
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    topics = await list_topics(admin)
    if topic is not None and topic not in {t.name for t in topics}:
        raise AdminError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r}")
    return [
        TopicPartition(t.name, p.number)
        for t in topics
        if topic in (None, t.name)
        for p in t.partitions
        if broker_id is None or broker_id in p.replicas
    ]
