"""DescribeTopicPartitions, key 75: version 0.

Behaviour: describes topics in the order of their names, up to the partition limit of the request (at most
`max.request.partition.size.limit`); the cursor says where to go on. Without names it describes all topics.
Not supported: eligible leader replicas (always empty).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api import authorized
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.server.topics import Topic, why_invalid
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions=(0, 0),
    needs=[
        Need(
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            "topics that may not be described are left out where all are asked for",
        ),
    ],
)
def describe_topic_partitions(
    broker: BrokerState, ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    names = sorted({topic.name for topic in request.topics} or broker.topics.by_name)
    cursor = request.cursor
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    denied = {name for name in names if not _may_describe(ctx, name, tell=bool(request.topics))}
    refused = [_denied(name) for name in sorted(denied)] if request.topics else []
    names = [name for name in names if name not in denied]
    left = min(request.response_partition_limit, broker.config["max.request.partition.size.limit"])
    left = max(left, 1)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if left == 0:
            return _answer(topics + refused, name, first)
        topic = broker.topics.by_name.get(name)
        if topic is None:
            topics.append(_missing(ctx, name))
            continue
        stop = min(first + left, len(topic.partitions))
        topics.append(_topic(broker, ctx, topic, first, stop))
        left -= max(stop - first, 0)
        if stop < len(topic.partitions):
            return _answer(topics + refused, name, stop)
    return DescribeTopicPartitionsResponse(topics=topics + refused)


def _may_describe(ctx: RequestContext, name: str, *, tell: bool) -> bool:
    return ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, tell=tell)


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)


def _answer(
    topics: list[DescribeTopicPartitionsResponseTopic], name: str, index: int
) -> DescribeTopicPartitionsResponse:
    cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=index)
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def _missing(ctx: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    invalid = why_invalid(name) is not None
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_authorized_operations=authorized.operations(ctx, ResourceType.TOPIC, name),
    )


def _topic(
    broker: BrokerState, ctx: RequestContext, topic: Topic, first: int, stop: int
) -> DescribeTopicPartitionsResponseTopic:
    me = [broker.node_id]
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        topic_authorized_operations=authorized.operations(ctx, ResourceType.TOPIC, topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.log.offline else ErrorCode.NONE,
                partition_index=partition.index,
                leader_id=-1 if partition.log.offline else broker.node_id,
                offline_replicas=me if partition.log.offline else [],
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=me,
                isr_nodes=me,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for partition in topic.partitions[first:stop]
        ],
    )
