"""ShareGroupDescribe, key 77: version 1 (KIP-932).

Behaviour: tells epochs, and members with their assignment. A group that does not exist or is of another kind is
GROUP_ID_NOT_FOUND; the message says which of both.
A group with a topic that the sender may not describe is not told (TOPIC_AUTHORIZATION_FAILED).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.group_descriptions import described
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from klamm_broker.coordinator.share.model import ShareGroupDescription, ShareMemberDescription
    from klamm_broker.server.state import BrokerState

_ASSIGNOR = "simple"


@handles(
    ApiKey.SHARE_GROUP_DESCRIBE,
    versions=(1, 1),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.GROUP),
        Need(AclOperation.DESCRIBE, ResourceType.TOPIC, "all topics of the assignments"),
    ],
)
def share_group_describe(
    broker: BrokerState, ctx: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    if not broker.serves_share_groups:
        error = ErrorCode.UNSUPPORTED_VERSION
        return ShareGroupDescribeResponse(
            groups=[DescribedGroup(group_id=g, error_code=error) for g in request.group_ids]
        )
    describe = broker.groups.coordinator.share.describe
    groups = described(
        ctx,
        request.group_ids,
        make=DescribedGroup,
        describe=lambda group_id: _described(describe(group_id)),
        topics=lambda group: (p.topic_name for m in group.members for p in m.assignment.topic_partitions),
        hidden="The group has described topic(s) that the client is not authorized to describe.",
        with_operations=request.include_authorized_operations,
    )
    return ShareGroupDescribeResponse(groups=groups)


def _described(group: ShareGroupDescription) -> DescribedGroup:
    found = group.error is ErrorCode.NONE
    return DescribedGroup(
        error_code=group.error,
        error_message=group.error_message,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=_ASSIGNOR if found else "",
        members=[_member(m) for m in group.members],
    )


def _member(member: ShareMemberDescription) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=p.topic_id, topic_name=p.topic, partitions=list(p.partitions))
                for p in member.assignment
            ]
        ),
    )
