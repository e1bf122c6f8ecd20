"""SyncGroup, key 14: versions 0 to 5.

Behaviour: parks until the leader's assignment is in `__consumer_offsets`.
Versions: 3 brings static membership; from 5 on protocol type and name are required and must be the group's.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any, Final

from klamm_broker.api.registry import ASSIGNMENT_MAX, Need, RequestContext, handles
from klamm_broker.coordinator.model import SyncRequest, SyncResult
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

PROTOCOL_FROM: Final = 5


@handles(
    ApiKey.SYNC_GROUP,
    versions=(0, 5),
    request_max=ASSIGNMENT_MAX,
    needs=[
        Need(AclOperation.READ, ResourceType.GROUP),
    ],
)
def sync_group(
    broker: BrokerState, ctx: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Future[SyncGroupResponse]:
    nameless = request.protocol_type is None or request.protocol_name is None
    if ctx.api_version >= PROTOCOL_FROM and nameless:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    sync = SyncRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={a.member_id: a.assignment for a in request.assignments},
    )
    shell = broker.groups
    response: Any = shell.ask(lambda token, now: shell.coordinator.sync(sync, token, now), _response)
    return response  # type: ignore[no-any-return]


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
