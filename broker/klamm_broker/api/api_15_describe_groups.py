"""DescribeGroups, key 15: versions 0 to 6.

Behaviour: shows subscriptions and assignments of members while the group is Stable. A group that does not exist is
Dead; from version 6 on with GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_broker.api import authorized
from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.coordinator.model import GroupDescription
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

REPORTS_MISSING_FROM: Final = 6


@handles(
    ApiKey.DESCRIBE_GROUPS,
    versions=(0, 6),
    needs=[
        Need(AclOperation.DESCRIBE, ResourceType.GROUP),
    ],
)
def describe_groups(
    broker: BrokerState, ctx: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    describe = broker.groups.coordinator.describe
    groups = []
    for group_id in dict.fromkeys(request.groups):
        if ctx.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            groups.append(_described(ctx.api_version, describe(group_id)))
        else:
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            groups.append(
                DescribedGroup(
                    group_id=group_id,
                    error_code=code,
                    error_message=code.message if ctx.api_version >= REPORTS_MISSING_FROM else None,
                )
            )
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                operations = authorized.operations(ctx, ResourceType.GROUP, group.group_id)
                group.authorized_operations = operations
    return DescribeGroupsResponse(groups=groups)


def _described(version: int, group: GroupDescription) -> DescribedGroup:
    missing = group.error is ErrorCode.GROUP_ID_NOT_FOUND and version < REPORTS_MISSING_FROM
    return DescribedGroup(
        error_code=ErrorCode.NONE if missing else group.error,
        error_message=group.error_message if version >= REPORTS_MISSING_FROM else None,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_data,
        members=[
            DescribedGroupMember(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=m.metadata,
                member_assignment=m.assignment,
            )
            for m in group.members
        ],
    )
