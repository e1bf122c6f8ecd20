"""DeleteShareGroupOffsets, key 92: version 0 (KIP-932).

Behaviour: forgets the start offsets of whole topics in a share group without members: it begins them anew by
`share.auto.offset.reset`. Answers once the tombstones are written.
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any

from klamm_broker.api.registry import Need, RequestContext, handles
from klamm_broker.server import audit
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.fields import UUID_ZERO
from klamm_kafka.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from klamm_broker.coordinator.share.model import DeletedOffsets
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    versions=(0, 0),
    needs=[
        Need(AclOperation.DELETE, ResourceType.GROUP),
        Need(AclOperation.READ, ResourceType.TOPIC),
    ],
)
def delete_share_group_offsets(
    broker: BrokerState, ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse | Future[DeleteShareGroupOffsetsResponse]:
    if not broker.serves_share_groups:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if not ctx.may(AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _refused(ErrorCode.INVALID_GROUP_ID)
    asked = [topic.topic_name for topic in request.topics]
    names = [name for name in asked if ctx.may(AclOperation.READ, ResourceType.TOPIC, name)]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    denied = {name: (code, code.message) for name in asked if name not in names}

    def response(deleted: DeletedOffsets) -> DeleteShareGroupOffsetsResponse:
        if deleted.error is not ErrorCode.NONE:
            return _refused(deleted.error, deleted.error_message)
        gone = [name for name, (error, _) in deleted.topics.items() if error is ErrorCode.NONE]
        if gone:
            audit.changed(ctx, "offsets", group=request.group_id, deleted=gone)
        outcomes = {**denied, **deleted.topics}
        good_first = sorted(outcomes.items(), key=lambda item: item[1][0] is not ErrorCode.NONE)
        return DeleteShareGroupOffsetsResponse(
            responses=[_topic(broker, name, *outcome) for name, outcome in good_first]
        )

    shell = broker.groups
    answer: Any = shell.ask(
        lambda token, now: shell.coordinator.share.delete_offsets(request.group_id, names, token, now),
        response,
    )
    return answer  # type: ignore[no-any-return]


def _refused(error: ErrorCode, message: str | None = None) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error, error_message=message or error.message)


def _topic(
    broker: BrokerState, name: str, error: ErrorCode, message: str | None
) -> DeleteShareGroupOffsetsResponseTopic:
    topic = broker.topics.by_name.get(name)
    known = topic is not None and error is ErrorCode.NONE
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic.id if known and topic is not None else UUID_ZERO,
        error_code=error,
        error_message=message,
    )
