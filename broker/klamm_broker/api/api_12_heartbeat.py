"""Heartbeat, key 12: versions 0 to 4.

Behaviour: restarts the member's session; REBALANCE_IN_PROGRESS tells it to join again.
Versions: 3 brings static membership.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.HEARTBEAT,
    versions=(0, 4),
    needs=[
        Need(AclOperation.READ, ResourceType.GROUP),
    ],
)
def heartbeat(broker: BrokerState, ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    error = broker.groups.coordinator.heartbeat(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        broker.groups.now(),
    )
    return HeartbeatResponse(error_code=error)
