"""DeleteTopics, key 20: versions 1 to 6.

Behaviour: deletes topics by name, from version 6 also by id, with their records and committed offsets.
`delete.topic.enable=false` refuses. The deletion is on the disk when it is answered; deletions that come together are
written together (`server/topic_changes.py`). A topic that is getting partitions is deleted once it has them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from klamm_broker.api.registry import OVER_QUOTA, Need, RequestContext, handles
from klamm_broker.log.errors import LogError
from klamm_broker.server import audit
from klamm_broker.server.topics import Topic
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

_NO_ID = bytes(16)
_MISSING = "This server does not host this topic."


@handles(
    ApiKey.DELETE_TOPICS,
    versions=(1, 6),
    needs=[
        Need(AclOperation.DELETE, ResourceType.TOPIC, "or DELETE of the cluster"),
        Need(
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            "without it the name of a topic that is named by its id is not told",
        ),
        Need(AclOperation.DELETE, ResourceType.CLUSTER, "instead of the rights for topics"),
    ],
)
def delete_topics(
    broker: BrokerState, ctx: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse | asyncio.Future[DeleteTopicsResponse]:
    asked = request.topics
    if ctx.api_version < 6:
        asked = [DeleteTopicState(name=name, topic_id=_NO_ID) for name in request.topic_names]
    named = Counter((item.name, item.topic_id) for item in asked)
    found = [
        _find(broker, ctx, item) if named[item.name, item.topic_id] == 1 else _twice(item)
        for item in {(item.name, item.topic_id): item for item in asked}.values()
    ]
    found = [_unless_over_quota(ctx, item) for item in _refuse_named_twice(found)]
    going = {topic.id: broker.topic_changes.delete(topic) for topic in found if isinstance(topic, Topic)}
    if not going:
        return DeleteTopicsResponse(responses=[item for item in found if not isinstance(item, Topic)])
    answer: asyncio.Future[DeleteTopicsResponse] = broker.loop.create_future()

    def settle(done: asyncio.Future[list[BaseException | None]]) -> None:
        errors = dict(zip(going, done.result(), strict=True))
        gone = [item.name for item in found if isinstance(item, Topic) and errors[item.id] is None]
        if gone:
            audit.changed(ctx, "topics", deleted=gone)
        if any(isinstance(error, asyncio.CancelledError) for error in errors.values()):
            answer.cancel()  # the broker stops
        elif not answer.cancelled():
            ids = {item.topic_id for item in asked}
            answer.set_result(DeleteTopicsResponse(responses=[_answer(item, errors, ids) for item in found]))

    asyncio.gather(*going.values(), return_exceptions=True).add_done_callback(settle)
    return answer


def _unless_over_quota(
    ctx: RequestContext, found: Topic | DeletableTopicResult
) -> Topic | DeletableTopicResult:
    if not isinstance(found, Topic) or ctx.may_mutate(len(found.partitions), strict_since=5):
        return found
    asked = DeleteTopicState(name=found.name, topic_id=found.id)
    return _result(asked, ErrorCode.THROTTLING_QUOTA_EXCEEDED, OVER_QUOTA)


def _twice(asked: DeleteTopicState) -> DeletableTopicResult:
    what = "name" if asked.topic_id == _NO_ID else "id"
    return _result(asked, ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")


def _refuse_named_twice(found: Sequence[Topic | DeletableTopicResult]) -> list[Topic | DeletableTopicResult]:
    """Refuse topics that are named both by name and by id; each is answered once."""
    times = Counter(item.id for item in found if isinstance(item, Topic))
    result: dict[bytes | int, Topic | DeletableTopicResult] = {}
    for position, item in enumerate(found):
        if isinstance(item, Topic) and times[item.id] > 1:
            why = "The provided topic name maps to an ID that was already supplied."
            asked = DeleteTopicState(name=item.name, topic_id=item.id)
            result[item.id] = _result(asked, ErrorCode.INVALID_REQUEST, why)
        else:
            result[position] = item
    return list(result.values())


def _find(broker: BrokerState, ctx: RequestContext, asked: DeleteTopicState) -> Topic | DeletableTopicResult:
    """Returns the topic to delete, or the error."""
    if not broker.config["delete.topic.enable"]:
        # Clients older than version 3 do not know TOPIC_DELETION_DISABLED.
        code = ErrorCode.TOPIC_DELETION_DISABLED if ctx.api_version >= 3 else ErrorCode.INVALID_REQUEST
        return _result(asked, code, "delete.topic.enable is false")
    by_id = asked.topic_id != _NO_ID
    if by_id == (asked.name is not None):
        why = (
            "You may not specify both topic name and topic id."
            if by_id
            else "Neither topic name nor id was specified."
        )
        return _result(asked, ErrorCode.INVALID_REQUEST, why)
    if by_id:
        topic = broker.topics.by_id.get(asked.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = broker.topics.by_name.get(asked.name or "")
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    denied = _denied(ctx, asked, topic)
    if denied is not None:
        return denied
    return _result(asked, missing, _MISSING) if topic is None else topic


def _denied(ctx: RequestContext, asked: DeleteTopicState, topic: Topic | None) -> DeletableTopicResult | None:
    """Returns the refusal where the sender may not delete a topic. Nobody learns by it whether there is one of this name."""
    name = asked.name if topic is None else topic.name
    if name is None or ctx.may_cluster(AclOperation.DELETE, tell=False):
        return None
    seen = ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    if (seen and topic is None) or (seen and ctx.may(AclOperation.DELETE, ResourceType.TOPIC, name)):
        return None
    told = name if seen or asked.name is not None else None
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _result(DeleteTopicState(name=told, topic_id=asked.topic_id), code, code.message)


def _answer(
    found: Topic | DeletableTopicResult, errors: Mapping[bytes, BaseException | None], ids: Collection[bytes]
) -> DeletableTopicResult:
    """Returns the outcome of one line of the request, which names its topic by the id if that is among `ids`."""
    if not isinstance(found, Topic):
        return found
    if isinstance(errors[found.id], KeyError):  # another request was first
        if found.id in ids:
            return _result(
                DeleteTopicState(name=None, topic_id=found.id), ErrorCode.UNKNOWN_TOPIC_ID, _MISSING
            )
        asked = DeleteTopicState(name=found.name, topic_id=_NO_ID)
        return _result(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _MISSING)
    result = DeletableTopicResult(name=found.name, topic_id=found.id, error_code=ErrorCode.NONE)
    error = errors[found.id]
    if error is not None:
        result.error_code = error.code if isinstance(error, LogError) else ErrorCode.KAFKA_STORAGE_ERROR
        result.error_message = str(error)
    return result


def _result(asked: DeleteTopicState, code: ErrorCode, why: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=asked.name, topic_id=asked.topic_id, error_code=code, error_message=why)
