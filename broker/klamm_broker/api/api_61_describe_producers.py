"""DescribeProducers, key 61: version 0.

Behaviour: lists the producers that partitions know: epoch, last sequence and timestamp, coordinator epoch and the first
offset of an open transaction. Tools find hanging transactions with it. A partition that is named twice is listed once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import STEP, Need, RequestContext, handles
from klamm_broker.log.steps import Steps
from klamm_broker.server.topics import why_invalid
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from klamm_broker.log.producer_state import ProducerEntry
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.DESCRIBE_PRODUCERS,
    versions=(0, 0),
    needs=[
        Need(AclOperation.READ, ResourceType.TOPIC),
    ],
)
def describe_producers(
    broker: BrokerState, ctx: RequestContext, request: DescribeProducersRequest
) -> Steps[DescribeProducersResponse]:
    topics = []
    told: set[tuple[str, int]] = set()
    for topic in request.topics:
        may = _may_read(ctx, topic.name)
        partitions = []
        for index in topic.partition_indexes:
            if (topic.name, index) in told:
                continue  # each has all its producers in the answer
            told.add((topic.name, index))
            partitions.append((yield from _partition(broker, topic.name, index, may=may)))
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
        yield None
    return DescribeProducersResponse(topics=topics)


def _may_read(ctx: RequestContext, topic: str) -> bool:
    return why_invalid(topic) is None and ctx.may(AclOperation.READ, ResourceType.TOPIC, topic)


def _partition(broker: BrokerState, topic: str, index: int, *, may: bool) -> Steps[PartitionResponse]:
    if (why := why_invalid(topic)) is not None:
        return PartitionResponse(
            partition_index=index, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message=why
        )
    if not may:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return PartitionResponse(partition_index=index, error_code=code, error_message=code.message)
    partition = broker.partition(topic, index)
    if topic not in broker.topics.by_name:
        return PartitionResponse(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="This server does not host this topic-partition.",
        )
    if partition is None:
        return PartitionResponse(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.log.offline:
        return PartitionResponse(partition_index=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    producers = []
    for number, entry in enumerate(list(partition.log.producers.entries.values()), 1):
        producers.append(_producer(entry))
        if not number % STEP:
            yield None
    yield None
    return PartitionResponse(partition_index=index, active_producers=producers)


def _producer(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=-1
        if entry.current_txn_first_offset is None
        else entry.current_txn_first_offset,
    )
