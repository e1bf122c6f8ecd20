"""DescribeShareGroupOffsets, key 90: versions 0 and 1 (KIP-932).

Behaviour: tells start offsets of a share group's partitions; all of them if the request names no topics. A partition that
the group has not begun has -1, as has a group that does not exist.
Versions: 1 tells the lag (KIP-1226): the records from the start offset on that are not done.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState
    from klamm_broker.server.topics import Topic

_UNKNOWN = -1


@handles(
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    versions=(0, 1),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.GROUP),
        Need(
            AclOperation.DESCRIBE, ResourceType.TOPIC, "topics without it are left out if all are asked for"
        ),
    ],
)
def describe_share_group_offsets(
    broker: BrokerState, ctx: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=[_group(broker, ctx, group) for group in request.groups])


def _group(
    broker: BrokerState, ctx: RequestContext, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    from klamm_broker.coordinator.share.model import NO_OFFSET

    group_id = asked.group_id
    error, begun = broker.groups.coordinator.share.partitions(group_id)
    if not broker.serves_share_groups:
        error = ErrorCode.UNSUPPORTED_VERSION
    elif not ctx.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if error is not ErrorCode.NONE:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group_id, error_code=error, error_message=error.message
        )
    topics, unknown = [], []
    if asked.topics is None:
        for topic_id, partitions in begun.items():
            topic = broker.topics.by_id.get(topic_id)
            if topic is not None and ctx.may(
                AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name, tell=False
            ):
                topics.append(_topic(broker, group_id, topic, sorted(partitions)))
    for wanted in asked.topics or ():
        topic = broker.topics.by_name.get(wanted.topic_name)
        denied = not ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, wanted.topic_name)
        if topic is not None and not denied:
            topics.append(_topic(broker, group_id, topic, wanted.partitions))
            continue
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if denied else ErrorCode.NONE
        nothing = [
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=p,
                start_offset=0 if denied else NO_OFFSET,
                error_code=code,
                error_message=code.message if denied else None,
            )
            for p in wanted.partitions
        ]
        unknown.append(
            DescribeShareGroupOffsetsResponseTopic(topic_name=wanted.topic_name, partitions=nothing)
        )
    return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=topics + unknown)


def _topic(
    broker: BrokerState, group_id: str, topic: Topic, partitions: Iterable[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.name,
        topic_id=topic.id,
        partitions=[_partition(broker, group_id, topic, index) for index in partitions],
    )


def _partition(
    broker: BrokerState, group_id: str, topic: Topic, index: int
) -> DescribeShareGroupOffsetsResponsePartition:
    from klamm_broker.coordinator.share.model import NO_OFFSET, ShareKey

    state = broker.share_states.states.get(ShareKey(group_id, topic.id, index))
    if state is None or not 0 <= index < len(topic.partitions):
        return DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=NO_OFFSET)
    lag = _UNKNOWN
    if state.start_offset != NO_OFFSET and state.complete_count != _UNKNOWN:
        lag = topic.partitions[index].log.high_watermark - state.start_offset - state.complete_count
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=state.start_offset, leader_epoch=state.leader_epoch, lag=lag
    )
