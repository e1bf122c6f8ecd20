"""OffsetForLeaderEpoch, key 23: versions 2 to 4.

Behaviour: answers the last epoch at or below the requested one, and the offset at which it ended. A consumer whose
position lies beyond that offset learns that the log was cut.
Not supported: replicas as callers get the same answer as consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import STEP, Need, RequestContext, handles
from klamm_broker.log.steps import Steps
from klamm_broker.server.fetching import epoch_error
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    versions=(2, 4),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.TOPIC, "not for a sender with CLUSTER_ACTION"),
        Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "instead of DESCRIBE of topics"),
    ],
)
def offset_for_leader_epoch(
    broker: BrokerState, ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> Steps[OffsetForLeaderEpochResponse]:
    is_broker = ctx.may_cluster(AclOperation.CLUSTER_ACTION, tell=False)
    topics = []
    for topic in request.topics:
        may = is_broker or ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        partitions = []
        for number, asked in enumerate(topic.partitions, 1):
            if not number % STEP:
                yield None
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            partitions.append(
                _answer(broker, topic.topic, asked)
                if may
                else EpochEndOffset(error_code=denied, partition=asked.partition)
            )
        yield None
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(broker: BrokerState, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = broker.partition(topic, asked.partition)
    if partition is None:
        return EpochEndOffset(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partition=asked.partition)
    if partition.log.offline:
        return EpochEndOffset(error_code=ErrorCode.KAFKA_STORAGE_ERROR, partition=asked.partition)
    error = epoch_error(asked.current_leader_epoch, partition.log.leader_epoch)
    if error is not None:
        return EpochEndOffset(error_code=error, partition=asked.partition)
    epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(
        error_code=ErrorCode.NONE, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
    )
