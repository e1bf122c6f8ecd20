"""ShareGroupHeartbeat, key 76: version 1 (KIP-932).

Behaviour: a member joins with epoch 0, reports with its epoch, and leaves with -1. Answers at once, or once its changes are
in `__consumer_offsets`. Partitions are assigned once the share coordinator holds their state, so the first answer has none.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from klamm_broker.coordinator.share.model import ShareHeartbeatResult
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.SHARE_GROUP_HEARTBEAT,
    versions=(1, 1),
    needs=[
        Need(AclOperation.READ, ResourceType.GROUP),
        Need(AclOperation.DESCRIBE, ResourceType.TOPIC, "the topics of the subscription"),
    ],
)
def share_group_heartbeat(
    broker: BrokerState, ctx: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Future[ShareGroupHeartbeatResponse]:
    if not broker.serves_share_groups:
        error = ErrorCode.UNSUPPORTED_VERSION
        return ShareGroupHeartbeatResponse(error_code=error, error_message=error.message)
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = dict.fromkeys(request.subscribed_topic_names or ())
    if not all(ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    from klamm_broker.coordinator.share.model import ShareHeartbeat

    heartbeat = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=request.subscribed_topic_names,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.host}",  # Java's form of an address, which all tools that list members show
    )
    shell = broker.groups
    response: Any = shell.ask(
        lambda token, now: shell.coordinator.share.heartbeat(heartbeat, token, now), _response
    )
    return response  # type: ignore[no-any-return]


def _response(result: ShareHeartbeatResult) -> ShareGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in result.assignment.items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.error_message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )
