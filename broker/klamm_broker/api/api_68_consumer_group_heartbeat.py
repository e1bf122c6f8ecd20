"""ConsumerGroupHeartbeat, key 68: versions 0 and 1 (KIP-848).

Behaviour: a member joins with epoch 0, reports with its epoch, and leaves with -1 (a static member for a while with
-2). Answers at once, or once its changes are in `__consumer_offsets`. The answer has the assignment if it is new or the
member asked for everything.
Versions: 1 brings regular expressions, and member ids that members make up themselves.
"""

from __future__ import annotations

from asyncio import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from klamm_broker.api.registry import LARGE_REQUEST_MAX, Need, RequestContext, handles
from klamm_broker.coordinator.consumer.model import HeartbeatRequest, HeartbeatResult
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    versions=(0, 1),
    request_max=LARGE_REQUEST_MAX,
    needs=[
        Need(AclOperation.READ, ResourceType.GROUP),
        Need(
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            "the topics of the subscription; a regular expression matches no others",
        ),
    ],
)
def consumer_group_heartbeat(
    broker: BrokerState, ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Future[ConsumerGroupHeartbeatResponse]:
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = dict.fromkeys(request.subscribed_topic_names or ())
    if not all(ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    owned = request.topic_partitions
    heartbeat = HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=request.subscribed_topic_names,
        regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if owned is None else {t.topic_id: frozenset(t.partitions) for t in owned},
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.host}",  # Java's form of an address, which all tools that list members show
        brings_member_id=ctx.api_version >= 1,
        sees=None if ctx.access is None else partial(_may_describe, ctx),
    )
    shell = broker.groups
    response: Any = shell.ask(
        lambda token, now: shell.coordinator.consumer_heartbeat(heartbeat, token, now), _response
    )
    return response  # type: ignore[no-any-return]


def _may_describe(ctx: RequestContext, topic: str) -> bool:
    return ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic, tell=False)


def _response(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in result.assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.error_message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )
