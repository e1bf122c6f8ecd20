"""AlterShareGroupOffsets, key 91: version 0 (KIP-932).

Behaviour: sets the start offsets of a share group without members, which is made if necessary. What was in flight or done
behind them is forgotten. Answers once that is in `__consumer_offsets` and `__share_group_state`.
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
from klamm_kafka.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from klamm_broker.coordinator.share.model import AlteredOffsets
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    versions=(0, 0),
    needs=[
        Need(AclOperation.READ, ResourceType.GROUP),
        Need(AclOperation.READ, ResourceType.TOPIC),
    ],
)
def alter_share_group_offsets(
    broker: BrokerState, ctx: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse | Future[AlterShareGroupOffsetsResponse]:
    if not broker.serves_share_groups:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _refused(ErrorCode.INVALID_GROUP_ID)
    offsets: dict[str, dict[int, int]] = {}
    denied: dict[str, dict[int, ErrorCode]] = {}
    for topic in request.topics:
        if ctx.may(AclOperation.READ, ResourceType.TOPIC, topic.topic_name):
            offsets[topic.topic_name] = {p.partition_index: p.start_offset for p in topic.partitions}
        else:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            denied[topic.topic_name] = {p.partition_index: code for p in topic.partitions}

    def response(altered: AlteredOffsets) -> AlterShareGroupOffsetsResponse:
        if altered.error is not ErrorCode.NONE:
            return _refused(altered.error, altered.error_message)
        made = {
            name: {index: offsets[name][index] for index, error in errors.items() if error is ErrorCode.NONE}
            for name, errors in altered.topics.items()
        }
        made = {name: starts for name, starts in made.items() if starts}
        if made:
            audit.changed(ctx, "offsets", group=request.group_id, set=made)
        return AlterShareGroupOffsetsResponse(
            responses=[_topic(broker, name, errors) for name, errors in {**altered.topics, **denied}.items()]
        )

    shell = broker.groups
    answer: Any = shell.ask(
        lambda token, now: shell.coordinator.share.alter_offsets(request.group_id, offsets, token, now),
        response,
    )
    return answer  # type: ignore[no-any-return]


def _refused(error: ErrorCode, message: str | None = None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=message or error.message)


def _topic(broker: BrokerState, name: str, errors: Any) -> AlterShareGroupOffsetsResponseTopic:
    topic = broker.topics.by_name.get(name)
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=UUID_ZERO if topic is None else topic.id,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=index,
                error_code=error,
                error_message=None if error is ErrorCode.NONE else error.message,
            )
            for index, error in errors.items()
        ],
    )
