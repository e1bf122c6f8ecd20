"""Fetch, key 1: versions 4 to 18.

Behaviour: records leave the segment file by sendfile. A fetch that finds fewer than `min_bytes` is parked until they
come or `max_wait_ms` is over (`server/fetching.py`). The first batch is sent whole even when it is larger than the
limits, so that a reader always makes progress. `read_committed` reads up to the last stable offset and lists aborted
transactions. From version 7 there are sessions (KIP-227, `server/fetch_sessions.py`), from version 13 topics come as ids.
Not supported: divergence by `last_fetched_epoch`, preferred read replicas and replica state: only followers use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_broker.api.registry import LARGE_ELEMENTS_MAX, LARGE_REQUEST_MAX, Need, handles
from klamm_broker.server import heavy
from klamm_broker.server.fetch_sessions import FULL_EPOCHS, INITIAL_EPOCH
from klamm_broker.server.fetching import IDS_FROM, FullFetch, IncrementalFetch
from klamm_kafka.wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.hot import FetchResult, encode_fetch_response
from klamm_kafka.wire.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from klamm_broker.server.connection import Connection
    from klamm_broker.server.metering import Charge
    from klamm_broker.server.outgoing import Reply


@handles(
    ApiKey.FETCH,
    versions=(4, 18),
    raw=True,
    request_max=LARGE_REQUEST_MAX,
    needs=[
        Need(AclOperation.READ, ResourceType.TOPIC),
        Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "instead of READ, for followers"),
    ],
)
def fetch(conn: Connection, body: memoryview, version: int, correlation_id: int) -> Reply | None:
    if len(body) >= heavy.LARGE_BYTES:
        _fetch_later(conn, bytes(body), version, correlation_id)
        return None
    request, _ = FetchRequest.decode(bytes(body), version, 0, LARGE_ELEMENTS_MAX)
    work = _begin(conn, request, version, correlation_id, conn.charge)
    if not isinstance(work, (FullFetch, IncrementalFetch)):
        return work
    reply = work.attempt(final=request.max_wait_ms <= 0)
    if reply is not None:
        return reply
    work.park(conn.park(), request.max_wait_ms / 1000)
    return None


def _begin(
    conn: Connection, request: FetchRequest, version: int, correlation_id: int, charge: Charge | None
) -> FullFetch | IncrementalFetch | Reply:
    """Returns the work that a request asks for, or its answer if it is refused."""
    broker, epoch = conn.broker, request.session_epoch
    access = conn.access
    if access is not None and (request.replica_id >= 0 or request.replica_state.replica_id >= 0):
        if not access.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, ApiKey.FETCH.name):
            return _denied(request, version, correlation_id)
        access = None  # a broker copies whatever there is
    if epoch in FULL_EPOCHS:
        if request.session_id:  # a full fetch ends the session that it names
            broker.fetch_sessions.remove(request.session_id)
        new = epoch == INITIAL_EPOCH
        return FullFetch(broker, request, version, correlation_id, access, session=new, charge=charge)
    now_ms = int(broker.loop.time() * 1000)
    session = broker.fetch_sessions.advance(request, uses_ids=version >= IDS_FROM, now_ms=now_ms)
    if isinstance(session, ErrorCode):
        return encode_fetch_response(correlation_id, version, [], error_code=session)
    if session is None:  # no partition is left in it, so the fetch asks for nothing
        return FullFetch(broker, FetchRequest(), version, correlation_id, session=False, charge=charge)
    return IncrementalFetch(broker, request, version, correlation_id, access, session=session, charge=charge)


def _fetch_later(conn: Connection, body: bytes, version: int, correlation_id: int) -> None:
    """Handle a large request in slices. Later requests of the connection wait until it is decoded and looked up."""
    slot = conn.park()
    conn.hold()

    def decoded(found: tuple[FetchRequest, int]) -> None:
        request, timeout_s = found[0], found[0].max_wait_ms / 1000
        try:
            work = _begin(conn, request, version, correlation_id, slot.charge)
            if isinstance(work, FullFetch):
                work.answer_later(slot, timeout_s)
            elif not isinstance(work, IncrementalFetch):
                slot.resolve(work)
            elif (reply := work.attempt(final=timeout_s <= 0)) is not None:
                slot.resolve(reply)
            else:
                work.park(slot, timeout_s)
        finally:
            conn.go_on()

    steps = FetchRequest.decode_steps(body, version, 0, LARGE_ELEMENTS_MAX)
    heavy.run(slot, f"FETCH version {version} ({len(body)} bytes)", steps, decoded)


def _denied(request: FetchRequest, version: int, correlation_id: int) -> Reply:
    """Returns the answer to one who is no broker and says so."""
    code, by_id = ErrorCode.TOPIC_AUTHORIZATION_FAILED, version >= IDS_FROM
    answer = [
        (topic.topic_id if by_id else topic.topic, [FetchResult(p.partition, code) for p in topic.partitions])
        for topic in request.topics
    ]
    return encode_fetch_response(correlation_id, version, answer)
