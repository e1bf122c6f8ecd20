"""ShareAcknowledge, key 79: versions 1 and 2 (KIP-932).

Behaviour: reports on records that the member has locked; answers once that is in `__share_group_state`. Session epoch -1
closes the session afterwards and gives back the rest of the member's records.
Versions: 2 brings renewed locks (KIP-1222).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm_broker.api.registry import LARGE_REQUEST_MAX, Need, RequestContext, handles
from klamm_broker.api.share_acks import reading_acks, refused
from klamm_broker.log.steps import Steps
from klamm_broker.server.slices import when_done
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from klamm_broker.coordinator.share.sessions import At
    from klamm_broker.server.share_groups import Outcome
    from klamm_broker.server.state import BrokerState


@handles(
    ApiKey.SHARE_ACKNOWLEDGE,
    versions=(1, 2),
    request_max=LARGE_REQUEST_MAX,
    needs=[
        Need(AclOperation.READ, ResourceType.GROUP),
        Need(AclOperation.READ, ResourceType.TOPIC),
    ],
)
def share_acknowledge(
    broker: BrokerState, ctx: RequestContext, request: ShareAcknowledgeRequest
) -> Steps[ShareAcknowledgeResponse | Future[ShareAcknowledgeResponse]]:
    from klamm_broker.coordinator.share.sessions import CLOSE_EPOCH

    error, why = refused(broker, request, ctx.access)
    owner = (request.group_id or "", request.member_id or "")
    if error is ErrorCode.NONE:
        error = _continued(broker, owner, request.share_session_epoch)
        why = error.message
    if error is not ErrorCode.NONE:
        return ShareAcknowledgeResponse(error_code=error, error_message=why)
    acks, outcomes = yield from reading_acks(
        broker, request.topics, ctx.access, version=ctx.api_version, is_renew=request.is_renew_ack
    )

    def answer(written: Mapping[At, Outcome]) -> ShareAcknowledgeResponse:
        if request.share_session_epoch == CLOSE_EPOCH:
            broker.shares.close_session(owner)
        lock_ms = broker.shares.delivery(owner[0]).lock_ms
        return _response({**outcomes, **written}, lock_ms)

    return when_done(broker.loop, (yield from broker.shares.acknowledging(owner, acks)), answer)


def _continued(broker: BrokerState, owner: tuple[str, str], epoch: int) -> ErrorCode:
    """Returns NONE if this is the session's next request."""
    from klamm_broker.coordinator.share.sessions import CLOSE_EPOCH, OPEN_EPOCH

    sessions = broker.shares.sessions
    if epoch == OPEN_EPOCH:
        return ErrorCode.INVALID_SHARE_SESSION_EPOCH
    if epoch == CLOSE_EPOCH:
        found = sessions.get(owner) is not None
        return ErrorCode.NONE if found else ErrorCode.SHARE_SESSION_NOT_FOUND
    session = sessions.advance(owner, epoch)
    return session if isinstance(session, ErrorCode) else ErrorCode.NONE


def _response(outcomes: Mapping[At, Outcome], lock_ms: int) -> ShareAcknowledgeResponse:
    topics: dict[bytes, list[PartitionData]] = {}
    for (topic_id, index), (error, message) in outcomes.items():
        told = PartitionData(partition_index=index, error_code=error, error_message=message)
        topics.setdefault(topic_id, []).append(told)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
    )
