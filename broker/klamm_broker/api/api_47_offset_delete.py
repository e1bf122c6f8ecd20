"""OffsetDelete, key 47: version 0.

Behaviour: deletes committed offsets of partitions to which nobody in the group is subscribed
(GROUP_SUBSCRIBED_TO_TOPIC otherwise); a group with members must be a consumer group (NON_EMPTY_GROUP otherwise).
Answers once the tombstones are written.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Container
from typing import TYPE_CHECKING, Any

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.coordinator.model import CommitResult, TopicPartition
from klamm_broker.server import audit
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.OFFSET_DELETE,
    versions=(0, 0),
    needs=[
        Need(AclOperation.DELETE, ResourceType.GROUP),
        Need(AclOperation.READ, ResourceType.TOPIC),
    ],
)
def offset_delete(
    broker: BrokerState, ctx: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Future[OffsetDeleteResponse]:
    if not ctx.may(AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    denied = {
        topic.name
        for topic in request.topics
        if not ctx.may(AclOperation.READ, ResourceType.TOPIC, topic.name)
    }
    existing = [
        TopicPartition(topic.name, p.partition_index)
        for topic in request.topics
        if topic.name not in denied
        for p in topic.partitions
        if broker.partition(topic.name, p.partition_index) is not None
    ]

    def answer(result: CommitResult) -> OffsetDeleteResponse:
        response = _response(request, result, denied)
        deleted: dict[str, list[int]] = {}
        for topic in response.topics:  # one may be there twice
            for p in topic.partitions:
                if not p.error_code:
                    deleted.setdefault(topic.name, []).append(p.partition_index)
        if deleted:
            audit.changed(ctx, "offsets", group=request.group_id, deleted=deleted)
        return response

    shell = broker.groups
    response: Any = shell.ask(
        lambda token, now: shell.coordinator.delete_offsets(request.group_id, existing, token, now),
        answer,
    )
    return response  # type: ignore[no-any-return]


def _response(
    request: OffsetDeleteRequest, result: CommitResult, denied: Container[str]
) -> OffsetDeleteResponse:
    if result.error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=result.error)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=p.partition_index,
                        error_code=result.partitions.get(
                            TopicPartition(topic.name, p.partition_index),
                            ErrorCode.TOPIC_AUTHORIZATION_FAILED
                            if topic.name in denied
                            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
