"""ShareFetch, key 78: versions 1 and 2 (KIP-932).

Behaviour: acknowledges what the request brings, then acquires records and locks them for the member
(`server/share_fetching.py`). Waits for `min_bytes` as Fetch does. Records leave the segment file by sendfile. A session
remembers the partitions; epoch 0 opens it, -1 closes it and gives back the member's records.
Versions: 2 brings the record limit (KIP-1206) and renewed locks (KIP-1222).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from klamm_broker.api.registry import LARGE_ELEMENTS_MAX, LARGE_REQUEST_MAX, Need, handles
from klamm_broker.api.share_acks import RENEW_FROM, TopicRights, reading_acks, refused
from klamm_broker.log.steps import Steps
from klamm_broker.server import heavy
from klamm_broker.server.outgoing import Reply
from klamm_broker.server.slices import when_done
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.share_fetch import ShareFetchRequest
from klamm_kafka.wire.share_fetch import encode_share_fetch_response

if TYPE_CHECKING:
    from klamm_broker.coordinator.share.sessions import At, ShareSession
    from klamm_broker.server.connection import Connection, Slot
    from klamm_broker.server.metering import Charge
    from klamm_broker.server.share_fetching import ShareFetch
    from klamm_broker.server.share_groups import Outcome

    _Begun: TypeAlias = "_Refusal | ShareFetch | asyncio.Future[ShareFetch]"


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
    if len(body) < heavy.LARGE_BYTES:
        begun = heavy.finished(_beginning(conn, bytes(body), version, correlation_id, conn.charge))
        if isinstance(begun, _Refusal) and not begun.after_s:
            return begun.reply
        tried = False
        if not isinstance(begun, (_Refusal, asyncio.Future)) and not begun.is_large:
            tried = True
            reply = begun.attempt(final=begun.timeout_s <= 0)
            if reply is not None:
                return reply
        _answer_later(conn.park(), begun, tried=tried)
        return None
    slot = conn.park()
    conn.hold()  # later requests wait until this one is looked through

    def go_on(begun: _Begun) -> None:
        try:
            _answer_later(slot, begun)
        finally:
            conn.go_on()

    steps = _beginning(conn, bytes(body), version, correlation_id, slot.charge)
    heavy.run(slot, f"SHARE_FETCH version {version} ({len(body)} bytes)", steps, go_on)
    return None


class _Refusal(NamedTuple):
    """The answer to a request that is refused; `after_s` is for a reader that may not read yet, and should not spin."""

    reply: Reply
    after_s: float = 0


def _answer_later(slot: Slot, begun: _Begun, *, tried: bool = False) -> None:
    """Let the answer go into `slot` when it is there."""
    if isinstance(begun, _Refusal):
        slot.connection.loop.call_later(begun.after_s, slot.resolve, begun.reply)
    elif isinstance(begun, asyncio.Future):
        begun.add_done_callback(lambda done: None if slot.closed else _answer_later(slot, done.result()))
    else:
        begun.answer_later(slot, tried=tried)


def _beginning(
    conn: Connection, body: bytes, version: int, correlation_id: int, charge: Charge | None
) -> Steps[_Begun]:
    """Returns the work that a request asks for, or a future of it, or its answer if it is refused; in steps."""
    if len(body) < heavy.LARGE_BYTES:
        request, _ = ShareFetchRequest.decode(body, version, 0, LARGE_ELEMENTS_MAX)
    else:
        request, _ = yield from ShareFetchRequest.decode_steps(body, version, 0, LARGE_ELEMENTS_MAX)
    broker = conn.broker
    error, why = refused(broker, request, conn.access)
    is_renew = version >= RENEW_FROM and request.is_renew_ack
    if error is ErrorCode.NONE and is_renew:
        error, why = _renew_refused(request)
    if error is not ErrorCode.NONE:
        return _Refusal(_refusal(correlation_id, error, why))
    session = yield from _session(conn, request)
    if isinstance(session, ErrorCode):
        after_ms = max(request.max_wait_ms, 0) if session is ErrorCode.SHARE_SESSION_LIMIT_REACHED else 0
        return _Refusal(_refusal(correlation_id, session, session.message), after_ms / 1000)
    acks, outcomes = yield from reading_acks(
        broker, _with_acks(request), conn.access, version=version, is_renew=is_renew
    )

    def made(told: Mapping[At, Outcome]) -> ShareFetch:
        return _work(conn, request, correlation_id, session, {**outcomes, **told}, charge=charge)

    owner = (request.group_id or "", request.member_id or "")
    written = yield from broker.shares.acknowledging(owner, acks)
    return when_done(broker.loop, written, made)


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


def _session(
    conn: Connection, request: ShareFetchRequest
) -> Generator[None, None, ShareSession | ErrorCode | None]:
    """Returns the session, opened or continued; None for a request that closes it."""
    from klamm_broker.coordinator.share.sessions import CLOSE_EPOCH, OPEN_EPOCH

    sessions, epoch = conn.broker.shares.sessions, request.share_session_epoch
    owner = (request.group_id or "", request.member_id or "")
    if epoch == CLOSE_EPOCH:
        return None if sessions.get(owner) is not None else ErrorCode.SHARE_SESSION_NOT_FOUND
    count = sum(len(topic.partitions) for topic in request.topics)
    opens = epoch == OPEN_EPOCH
    if opens and _with_acks(request):
        return ErrorCode.INVALID_REQUEST
    if opens:
        session = sessions.open(owner, count, conn, conn.broker.config["group.share.max.share.sessions"])
    else:
        session = sessions.advance(owner, epoch, count)
    if isinstance(session, ErrorCode):
        return session
    for topic in request.topics:
        yield
        for asked in topic.partitions:
            sessions.add(session, (topic.topic_id, asked.partition_index), told=opens)
    for gone in [] if opens else request.forgotten_topics_data:
        yield
        for index in gone.partitions:
            sessions.remove(session, (gone.topic_id, index))
    return session


def _work(
    conn: Connection,
    request: ShareFetchRequest,
    correlation_id: int,
    session: ShareSession | None,
    acknowledged: Mapping[At, Outcome],
    *,
    charge: Charge | None,
) -> ShareFetch:
    from klamm_broker.coordinator.share.sessions import OPEN_EPOCH
    from klamm_broker.server.share_fetching import ShareFetch

    broker = conn.broker
    partitions: list[At] = []
    if session is None:
        broker.shares.close_session((request.group_id or "", request.member_id or ""))
    elif not request.is_renew_ack:
        partitions = list(session.partitions)
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
