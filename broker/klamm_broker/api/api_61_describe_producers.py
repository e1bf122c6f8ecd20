"""DescribeProducers, key 61: version 0.

Behaviour: lists the producers that partitions know: epoch, last sequence and timestamp, coordinator epoch and the first
offset of an open transaction. Tools find hanging transactions with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.server.topics import Partition, why_invalid
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
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _partition(broker, topic.name, index, may=_may_read(ctx, topic.name))
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _may_read(ctx: RequestContext, topic: str) -> bool:
    return why_invalid(topic) is None and ctx.may(AclOperation.READ, ResourceType.TOPIC, topic)


def _partition(broker: BrokerState, topic: str, index: int, *, may: bool) -> PartitionResponse:
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
    return PartitionResponse(partition_index=index, active_producers=_producers(partition))


def _producers(partition: Partition) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=-1
            if entry.current_txn_first_offset is None
            else entry.current_txn_first_offset,
        )
        for entry in partition.log.producers.entries.values()
    ]
