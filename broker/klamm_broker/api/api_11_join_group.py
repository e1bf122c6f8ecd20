"""JoinGroup, key 11: versions 0 to 9.

Behaviour: parks until the join phase ends.
Versions: 0 has no rebalance timeout (the session timeout counts); from 4 on a new dynamic member gets its id first
(MEMBER_ID_REQUIRED); 5 brings static membership; 9 can tell a static leader to keep its assignment.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any

from klamm_broker.api.registry import LARGE_REQUEST_MAX, Need, RequestContext, handles
from klamm_broker.coordinator.model import JoinRequest, JoinResult, Protocol
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.JOIN_GROUP,
    versions=(0, 9),
    request_max=LARGE_REQUEST_MAX,
    needs=[
        Need(AclOperation.READ, ResourceType.GROUP),
    ],
)
def join_group(
    broker: BrokerState, ctx: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Future[JoinGroupResponse]:
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    join = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.host}",  # Java's form of an address, which all tools that list members show
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if ctx.api_version else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(p.name, p.metadata) for p in request.protocols),
        reason=request.reason,
        requires_known_member_id=ctx.api_version >= 4,
        supports_skipping_assignment=ctx.api_version >= 9,
    )
    shell = broker.groups
    response: Any = shell.ask(
        lambda token, now: shell.coordinator.join(join, token, now),
        lambda result: _response(ctx.api_version, result),
    )
    return response  # type: ignore[no-any-return]


def _response(version: int, result: JoinResult) -> JoinGroupResponse:
    name = result.protocol_name
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name="" if name is None and version < 7 else name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=m.member_id, group_instance_id=m.group_instance_id, metadata=m.metadata
            )
            for m in result.members
        ],
    )
