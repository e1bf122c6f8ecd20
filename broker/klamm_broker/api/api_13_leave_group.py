"""LeaveGroup, key 13: versions 0 to 5.

Behaviour: tells the others to join again. In a consumer group members of either protocol can be removed; the answer then
comes once the removal is durable.
Versions: up to 2 one member leaves, and its error is that of the whole; from 3 on several, static ones by their
instance id alone.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any, Final

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.coordinator.model import LeaveResult, LeavingMember
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

BATCHED_FROM: Final = 3


@handles(
    ApiKey.LEAVE_GROUP,
    versions=(0, 5),
    needs=[
        Need(AclOperation.READ, ResourceType.GROUP),
    ],
)
def leave_group(
    broker: BrokerState, ctx: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Future[LeaveGroupResponse]:
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    batched = ctx.api_version >= BATCHED_FROM
    if batched:
        leaving = [LeavingMember(m.member_id, m.group_instance_id, m.reason) for m in request.members]
    else:
        leaving = [LeavingMember(request.member_id)]
    shell = broker.groups
    response: Any = shell.ask(
        lambda token, now: shell.coordinator.leave(request.group_id, leaving, token, now),
        lambda result: _batched(result) if batched else LeaveGroupResponse(error_code=_single(result)),
    )
    return response  # type: ignore[no-any-return]


def _batched(result: LeaveResult) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        error_code=result.error,
        members=[
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error
            )
            for member, error in result.members
        ],
    )


def _single(result: LeaveResult) -> ErrorCode:
    return result.members[0][1] if result.members else result.error
