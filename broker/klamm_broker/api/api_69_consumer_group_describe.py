"""ConsumerGroupDescribe, key 69: versions 0 and 1 (KIP-848).

Behaviour: tells epochs, and members with their present and their target assignment. A group that does not exist or is of
another kind is GROUP_ID_NOT_FOUND; the message says which of both.
Versions: 1 tells members of the classic protocol (0) from those of the consumer protocol (1).
A group with a topic that the sender may not describe is not told (TOPIC_AUTHORIZATION_FAILED).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from klamm_broker.api.group_descriptions import described
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.coordinator.consumer.model import (
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    NamedPartitions,
)
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    versions=(0, 1),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.GROUP),
        Need(AclOperation.DESCRIBE, ResourceType.TOPIC, "all topics of the assignments"),
    ],
)
def consumer_group_describe(
    broker: BrokerState, ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    describe = broker.groups.coordinator.describe_consumer
    groups = described(
        ctx,
        request.group_ids,
        make=DescribedGroup,
        describe=lambda group_id: _described(describe(group_id)),
        topics=_topics,
        hidden="The group has described topic(s) that the client is not authorized to describe.",
        with_operations=request.include_authorized_operations,
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def _topics(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            yield from (partitions.topic_name for partitions in assignment.topic_partitions)


def _described(group: ConsumerGroupDescription) -> DescribedGroup:
    return DescribedGroup(
        error_code=group.error,
        error_message=group.error_message,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(m) for m in group.members],
    )


def _member(member: ConsumerMemberDescription) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target_assignment),
        member_type=0 if member.is_classic else 1,
    )


def _assignment(partitions: Sequence[NamedPartitions]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=p.topic_id, topic_name=p.topic, partitions=list(p.partitions))
            for p in partitions
        ]
    )
