"""DeleteTopics, key 20: versions 1 to 6.

Behaviour: by name, from version 6 also by id. Records and committed offsets of the topic go with it.
`delete.topic.enable=false` refuses. The deletion is on the disk when it is answered.
Not supported: authorization.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klamm_base.errors import KlammError
from klamm_broker.api.registry import RequestContext, handles
from klamm_broker.wire.api_keys import ApiKey
from klamm_broker.wire.errors import ErrorCode
from klamm_broker.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from klamm_broker.server.broker import Broker

log = logging.getLogger(__name__)

_NO_ID = bytes(16)


@handles(ApiKey.DELETE_TOPICS, versions=(1, 6))
def delete_topics(broker: Broker, ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = request.topics
    if ctx.api_version < 6:
        asked = [DeleteTopicState(name=name, topic_id=_NO_ID) for name in request.topic_names]
    return DeleteTopicsResponse(responses=[_one(broker, ctx, item) for item in asked])


def _one(broker: Broker, ctx: RequestContext, asked: DeleteTopicState) -> DeletableTopicResult:
    if not broker.config["delete.topic.enable"]:
        # Clients older than version 3 do not know the code that says it.
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
    if topic is None:
        return _result(asked, missing, "This server does not host this topic.")
    try:
        broker.delete_topic(topic)
    except (KlammError, OSError) as e:
        log.exception("topic %s could not be deleted", topic.name)
        return _result(asked, ErrorCode.KAFKA_STORAGE_ERROR, str(e))
    return DeletableTopicResult(name=topic.name, topic_id=topic.id, error_code=ErrorCode.NONE)


def _result(asked: DeleteTopicState, code: ErrorCode, why: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=asked.name, topic_id=asked.topic_id, error_code=code, error_message=why)
