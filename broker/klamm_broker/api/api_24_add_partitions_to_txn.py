"""AddPartitionsToTxn, key 24: versions 0 to 5.

Behaviour: adds partitions to the producer's transaction, which begins with the first of them. If one of them does not
exist, none is added: it gets UNKNOWN_TOPIC_OR_PARTITION, the others OPERATION_NOT_ATTEMPTED. So it is with partitions of a
mirror topic, which is read-only (POLICY_VIOLATION).
Versions: 2 knows PRODUCER_FENCED; 4 (of brokers among themselves) has several transactions, and may only verify that
partitions are in them.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm_base.internal_topics import INTERNAL_TOPICS
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.coordinator.model import TopicPartition
from klamm_broker.coordinator.transactions.model import AddRequest
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

FENCED_FROM: Final = 2
BATCHED_FROM: Final = 4
_VERSION_BATCHED: Final = 2
"""The transaction version of clients that use the batched versions."""

_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_Errors = Mapping[TopicPartition, ErrorCode]


@handles(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    versions=(0, 5),
    needs=[
        Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "below version 4"),
        Need(AclOperation.WRITE, ResourceType.TOPIC, "below version 4"),
        Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "from version 4 on, which is for brokers"),
    ],
)
def add_partitions_to_txn(
    broker: BrokerState, ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Future[AddPartitionsToTxnResponse]:
    if ctx.api_version >= BATCHED_FROM:
        if not ctx.may_cluster(AclOperation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return broker.loop.create_task(_batched(broker, request))
    asked = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )

    def response(errors: _Errors) -> AddPartitionsToTxnResponse:
        if ctx.api_version < FENCED_FROM:
            errors = {
                at: ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error
                for at, error in errors.items()
            }
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topics(errors))

    named = [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions]
    if not ctx.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id):
        return response(dict.fromkeys(named, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    denied = {at.topic for at in named if not _may_write(broker, ctx, at.topic)}
    return _add(broker, asked, 0, response, denied=denied)  # type: ignore[no-any-return]


async def _batched(broker: BrokerState, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    results = []
    for asked in request.transactions:
        answer = _add(broker, asked, _VERSION_BATCHED, lambda errors: errors)
        errors = await answer if isinstance(answer, Future) else answer
        results.append(
            AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=_topics(errors))
        )
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _may_write(broker: BrokerState, ctx: RequestContext, topic: str) -> bool:
    return topic not in INTERNAL_TOPICS and ctx.may(AclOperation.WRITE, ResourceType.TOPIC, topic)


def _add(
    broker: BrokerState,
    asked: AddPartitionsToTxnTransaction,
    client_version: int,
    convert: Any,
    *,
    denied: Collection[str] = (),
) -> Any:
    """Add partitions to a transaction, unless topics are `denied`. Returns `convert` of the error for each partition, or a Future of it."""
    partitions = [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions]
    refused = {
        at: error
        for at in partitions
        if (error := _DENIED if at.topic in denied else _refusal(broker, at)) is not None
    }
    if refused:
        return convert({at: refused.get(at, ErrorCode.OPERATION_NOT_ATTEMPTED) for at in partitions})
    shell = broker.transactions
    request = AddRequest(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        partitions=frozenset(partitions),
        client_version=client_version,
    )
    if asked.verify_only:
        return convert(shell.coordinator.verify_partitions(request, partitions))
    return shell.ask(
        lambda token, now: shell.coordinator.add_partitions(request, token, now),
        lambda error: convert(dict.fromkeys(partitions, error)),
    )


def _refusal(broker: BrokerState, at: TopicPartition) -> ErrorCode | None:
    """Returns why a partition can be in no transaction."""
    partition = broker.partition(*at)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.POLICY_VIOLATION if partition.log.config.mirrors else None


def _topics(errors: _Errors) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for at, error in errors.items():
        result = AddPartitionsToTxnPartitionResult(partition_index=at.partition, partition_error_code=error)
        topics.setdefault(at.topic, []).append(result)
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=results)
        for name, results in topics.items()
    ]
