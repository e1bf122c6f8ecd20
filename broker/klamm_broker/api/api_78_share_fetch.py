"""ShareFetch, key 78: versions 1 and 2 (KIP-932).

Behaviour: acknowledges what the request brings, then acquires records and locks them for the member
(`server/share_fetching.py`). Waits for `min_bytes` as Fetch does. Records leave the segment file by sendfile. A session
remembers the partitions; epoch 0 opens it, -1 closes it and gives back the member's records.
Versions: 2 brings the record limit (KIP-1206) and renewed locks (KIP-1222).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm_broker.api.registry import LARGE_ELEMENTS_MAX, LARGE_REQUEST_MAX, Need, handles
from klamm_broker.api.share_acks import RENEW_FROM, TopicRights, read_acks, refused
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.share_fetch import ShareFetchRequest
from klamm_kafka.wire.share_fetch import encode_share_fetch_response

if TYPE_CHECKING:
    from klamm_broker.coordinator.share.sessions import At, ShareSession
    from klamm_broker.server.connection import Connection
    from klamm_broker.server.metering import Charge
    from klamm_broker.server.outgoing import Reply
    from klamm_broker.server.share_fetching import ShareFetch
    from klamm_broker.server.share_groups import Outcome


@handles(
    ApiKey.SHARE_FETCH,
    versions=(1, 2),
    raw=True,
    request_max=LARGE_REQUEST_MAX,
    needs=[
        Need(AclOperation.READ, ResourceType.GROUP),
        Need(AclOperation.READ, ResourceType.TOPIC),
    ],
)
def share_fetch(conn: Connection, body: memoryview, version: int, correlation_id: int) -> Reply | None:
    request, _ = ShareFetchRequest.decode(bytes(body), version, 0, LARGE_ELEMENTS_MAX)
    broker = conn.broker
    error, why = refused(broker, request, conn.access)
    is_renew = version >= RENEW_FROM and request.is_renew_ack
    if error is ErrorCode.NONE and is_renew:
        error, why = _renew_refused(request)
    if error is not ErrorCode.NONE:
        return _refusal(correlation_id, error, why)
    session = _session(conn, request)
    if isinstance(session, ErrorCode):
        if session is not ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return _refusal(correlation_id, session, session.message)
        slot = conn.park()  # a reader that may not read yet should not spin
        refusal = _refusal(correlation_id, session, session.message)
        broker.loop.call_later(max(request.max_wait_ms, 0) / 1000, lambda: slot.resolve(refusal))
        return None
    acks, outcomes = read_acks(broker, _with_acks(request), conn.access, version=version, is_renew=is_renew)
    owner = (request.group_id or "", request.member_id or "")
    written = broker.shares.acknowledge(owner, acks)
    if isinstance(written, asyncio.Future):
        slot = conn.park()

        def go_on(done: asyncio.Future[dict[At, Outcome]]) -> None:
            if not slot.closed:
                work = _work(
                    conn, request, correlation_id, session, {**outcomes, **done.result()}, charge=slot.charge
                )
                reply = work.attempt(final=request.max_wait_ms <= 0)
                if reply is None:
                    work.park(slot, request.max_wait_ms / 1000)
                else:
                    slot.resolve(reply)

        written.add_done_callback(go_on)
        return None
    work = _work(conn, request, correlation_id, session, {**outcomes, **written}, charge=conn.charge)
    reply = work.attempt(final=request.max_wait_ms <= 0)
    if reply is None:
        work.park(conn.park(), request.max_wait_ms / 1000)
    return reply


def _refusal(correlation_id: int, error: ErrorCode, why: str | None) -> Reply:
    return encode_share_fetch_response(correlation_id, [], error_code=error, error_message=why)


def _renew_refused(request: ShareFetchRequest) -> tuple[ErrorCode, str | None]:
    """Returns INVALID_REQUEST for a fetch that renews locks and wants records as well."""
    wishes = {
        "maxBytes": request.max_bytes,
        "minBytes": request.min_bytes,
        "maxRecords": request.max_records,
        "maxWaitMs": request.max_wait_ms,
    }
    wrong = [name for name, value in wishes.items() if value]
    if not wrong:
        return ErrorCode.NONE, None
    text = "".join(f"{name} must be set to 0, " for name in wrong)
    return ErrorCode.INVALID_REQUEST, f"{text}if isRenewAck is true."


def _with_acks(request: ShareFetchRequest) -> list:  # type: ignore[type-arg]
    """Returns the topics, if any of them brings acknowledgements."""
    present = any(p.acknowledgement_batches for topic in request.topics for p in topic.partitions)
    return request.topics if present else []


def _session(conn: Connection, request: ShareFetchRequest) -> ShareSession | ErrorCode | None:
    """Returns the session, opened or continued; None for a request that closes it."""
    from klamm_broker.coordinator.share.sessions import CLOSE_EPOCH, OPEN_EPOCH

    shares, epoch = conn.broker.shares, request.share_session_epoch
    owner = (request.group_id or "", request.member_id or "")
    asked = [(topic.topic_id, p.partition_index) for topic in request.topics for p in topic.partitions]
    if epoch == CLOSE_EPOCH:
        return None if shares.sessions.get(owner) is not None else ErrorCode.SHARE_SESSION_NOT_FOUND
    if epoch == OPEN_EPOCH:
        if _with_acks(request):
            return ErrorCode.INVALID_REQUEST
        limit = conn.broker.config["group.share.max.share.sessions"]
        return shares.sessions.open(owner, asked, conn, limit)
    gone = [(topic.topic_id, p) for topic in request.forgotten_topics_data for p in topic.partitions]
    return shares.sessions.advance(owner, epoch, asked, gone)


def _work(
    conn: Connection,
    request: ShareFetchRequest,
    correlation_id: int,
    session: ShareSession | None,
    acknowledged: Mapping[At, Outcome],
    *,
    charge: Charge | None,
) -> ShareFetch:
    from klamm_broker.coordinator.share.sessions import OPEN_EPOCH, rotated
    from klamm_broker.server.share_fetching import ShareFetch

    broker = conn.broker
    partitions: list[At] = []
    if session is None:
        broker.shares.close_session((request.group_id or "", request.member_id or ""))
    elif not request.is_renew_ack:
        partitions = rotated(session.partitions, request.share_session_epoch)
    return ShareFetch(
        broker,
        request,
        correlation_id,
        rights=TopicRights(conn.access),
        session=session,
        partitions=partitions,
        acknowledged=acknowledged,
        first=request.share_session_epoch == OPEN_EPOCH,
        charge=charge,
    )
