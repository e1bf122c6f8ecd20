"""Produce, key 0: versions 3 to 13 (advertised from 0, see ApiVersions).

Behaviour: acks 0, 1 and -1; one node is its own in-sync set, so -1 differs from 1 only in the check of
`min.insync.replicas`. Batches are appended straight from the receive buffer; an error is per partition. With
acks=0 there is no answer, so an error closes the connection: that tells the producer. From version 13 topics come as
ids. The log checks idempotent producers. For records within a transaction the handler asks the transaction coordinator
before the first records of each partition (KIP-890): below version 12 the client must have added the partition, from 12
on the broker adds it.
Of Klamm's own: acks=-2 (`KEEP`), announced as the feature `klamm.mirror.topics`. The batches are those of another
cluster's log and go into a mirror topic as they are (`log/mirror_topic.py`); other brokers refuse such a request.
Not supported: writes of clients to internal topics (as in Kafka).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm_broker.api.registry import Need, handles
from klamm_broker.api.transactional_produce import NOT_ADDED, STEP, Verification, may_use, may_write
from klamm_broker.log.errors import LogError, StorageError
from klamm_broker.log.steps import Steps
from klamm_broker.server import heavy
from klamm_broker.server.topics import Partition, Topic
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode, ProtocolError
from klamm_kafka.wire.hot import (
    PRODUCE_ELEMENTS_MAX,
    ManyElements,
    ProduceData,
    ProduceResult,
    TopicKey,
    encode_produce_response,
    encode_produced,
    parse_produce,
    parse_single,
)

if TYPE_CHECKING:
    from klamm_broker.security.authorizer import Access
    from klamm_broker.server.connection import Connection, Slot
    from klamm_broker.server.outgoing import Reply
    from klamm_broker.server.state import BrokerState

log = logging.getLogger(__name__)

LARGE_ELEMENTS: Final = 128
"""A request with more topics and partitions is done in slices: an append takes some 20 us, and wakes readers."""
KEEP: Final = -2
"""acks of a request with batches of another cluster's log. All that -1 asks for holds for it, too."""
_EXPECTED: Final = frozenset({
    ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.POLICY_VIOLATION,
})  # fmt: skip
"""Answers of a healthy broker to a faulty producer: they are not worth a line of the broker's log each time."""


@handles(
    ApiKey.PRODUCE,
    versions=(3, 13),
    advertised_min=0,
    raw=True,
    request_max=None,
    needs=[
        Need(AclOperation.WRITE, ResourceType.TOPIC),
        Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "within a transaction"),
    ],
)
def produce(conn: Connection, body: memoryview, version: int, correlation_id: int) -> Reply | None:
    access = conn.access
    straight = _straight(conn.broker, body, version, correlation_id, access)
    if straight is not None:
        return straight
    try:
        data = parse_produce(body, 0, version, most=LARGE_ELEMENTS)
    except ManyElements:
        _produce_later(conn, body, version, correlation_id)
        return None
    verification: Verification | None = None
    if data.transactional_id is not None:
        verification = Verification.of(conn.broker, data, version, access)
        if not verification.attempt():
            _append_verified(conn, verification, data, version, correlation_id)
            return None
    steps = appending(conn.broker, data, verification, access=access)
    done, appended, job = heavy.one_slice(steps)
    if not done:
        slot = conn.park()
        conn.hold()
        answer = _answering(conn, slot, version, correlation_id, data.acks)
        heavy.beside(slot, f"PRODUCE version {version}", steps, job, answer, to_the_end=True)
        return None
    if data.acks == 0:
        _close_if_failed(conn, appended.answer)
        return None
    if appended.uncommitted and _parked_until_committed(conn, version, correlation_id, appended):
        return None
    return (encode_produce_response(correlation_id, version, appended.answer),)


def _straight(
    broker: BrokerState, body: memoryview, version: int, correlation_id: int, access: Access | None
) -> Reply | None:
    """Handle the common request: one batch for one partition, which goes the log's straight way.

    Returns the answer, or None: nothing has changed, and the request needs more care.
    """
    single = parse_single(body, version)
    if single is None:
        return None
    acks, key, name, index, records = single
    topics = broker.topics
    topic = topics.by_name.get(key) if type(key) is str else topics.by_id.get(key)  # type: ignore[arg-type]
    if access is not None and (topic is None or topic.name not in access.writable):
        return None
    if topic is None or topic.internal or not 0 <= index < len(topic.partitions):
        return None
    partition = topic.partitions[index]
    log = partition.log
    if acks != 1 and (acks != -1 or log.config.min_insync_replicas > 1):
        return None
    offset = broker.append_one(partition, records, broker.now_ms())
    if offset is None:
        return None
    topic.metrics.produces += 1
    start = log.log_start_offset
    return (encode_produced(correlation_id, name, index, base_offset=offset, log_start_offset=start),)


def _produce_later(conn: Connection, body: memoryview, version: int, correlation_id: int) -> None:
    """Read a request of very many partitions when it is its turn among the large ones, then handle it as `produce` does."""
    slot = conn.park()
    conn.hold()

    def read() -> Steps[tuple[ProduceData, Verification | None]]:
        yield None
        data = parse_produce(body, 0, version)
        if data.transactional_id is None:
            return data, None
        yield None
        return data, (yield from Verification.making(conn.broker, data, version, conn.access))

    def handle(found: tuple[ProduceData, Verification | None]) -> None:
        data, verification = found
        if verification is not None and not verification.attempt():
            _append_verified(conn, verification, data, version, correlation_id, held=slot)
        else:
            _append_held(
                conn, slot, data, version=version, correlation_id=correlation_id, verification=verification
            )

    heavy.run(slot, f"PRODUCE version {version} ({len(body)} bytes)", read(), handle, to_the_end=True)


def _append_verified(
    conn: Connection,
    verification: Verification,
    data: ProduceData,
    version: int,
    correlation_id: int,
    *,
    held: Slot | None = None,
) -> None:
    """Append once the transaction coordinator has written, or has ended the last transaction.

    `held` is the request's place if it has one; then its connection is held already.
    """
    if held is None:
        conn.hold()
    slot = held or conn.park()

    def verified() -> None:
        _append_held(
            conn, slot, data, version=version, correlation_id=correlation_id, verification=verification
        )

    verification.when_done(verified)


def _append_held(
    conn: Connection,
    slot: Slot,
    data: ProduceData,
    *,
    version: int,
    correlation_id: int,
    verification: Verification | None = None,
) -> None:
    """Finish a request that was held up, even if the connection is gone. One of very many partitions is done in slices."""
    what = f"PRODUCE version {version}"
    try:
        answer = _answering(conn, slot, version, correlation_id, data.acks)
        steps = appending(conn.broker, data, verification, access=conn.access)
        if _is_large(data) and (verification is None or verification.allows_steps):
            heavy.run(slot, what, steps, answer, to_the_end=True)
            return
        done, appended, job = heavy.one_slice(steps)
        if done:
            answer(appended)
        else:
            heavy.beside(slot, what, steps, job, answer, to_the_end=True)
    except Exception as e:  # a defect of ours: the peer must not wait for an answer that will not come
        log.exception("a request of %s failed", conn)
        slot.fail(f"failed here: {e!r}")
        conn.go_on()


def _answering(
    conn: Connection, slot: Slot, version: int, correlation_id: int, acks: int
) -> Callable[[Appended], None]:
    """Returns what answers a request that was held up, and lets those behind it go on."""

    def answer(appended: Appended) -> None:
        try:
            if acks == 0:
                _close_if_failed(conn, appended.answer)
                slot.resolve(())
            elif not _parked_until_committed(conn, version, correlation_id, appended, slot):
                slot.resolve((encode_produce_response(correlation_id, version, appended.answer),))
        finally:
            conn.go_on()

    return answer


def _is_large(data: ProduceData) -> bool:
    """Decides whether a request has so many partitions that others must be served between them."""
    return len(data.topics) + sum(len(partitions) for _, partitions in data.topics) > LARGE_ELEMENTS


Answer = list[tuple[TopicKey, list[ProduceResult]]]
Uncommitted = tuple[list[ProduceResult], int, Partition, int]
"""A result that waits for the disk: its place in the answer, where its records are, and their end."""


class Appended(NamedTuple):
    """The outcome of a request, and what of it is not committed yet (durability=fsync)."""

    answer: Answer
    uncommitted: list[Uncommitted]


def appending(
    broker: BrokerState,
    data: ProduceData,
    verification: Verification | None = None,
    *,
    access: Access | None = None,
) -> Steps[Appended]:
    """Append every partition's records, in steps, unless rights, the request, the topic or the transaction forbid it.

    When a transaction ends between two of them, nothing more is written: it would stay open for ever. Few partitions whose records need no
    look are one step.
    """
    may_pause = verification is None or verification.allows_steps
    left = step = STEP if may_pause and _is_large(data) else PRODUCE_ELEMENTS_MAX
    over = verification is not None and verification.is_over()
    denied = None
    if data.transactional_id is not None and not may_use(access, data.transactional_id):
        denied = _refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = _refused(data)
    now_ms = broker.now_ms()
    answer: Answer = []
    uncommitted: list[Uncommitted] = []
    for key, partitions in data.topics:
        topic = broker.topics.by_name.get(key) if type(key) is str else broker.topics.by_id.get(key)  # type: ignore[arg-type]
        refusal = denied
        if denied is None and not may_write(access, topic, key):
            refusal = _refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        refusal = refusal or refused or _refused_topic(topic, key, data.acks)
        results: list[ProduceResult] = []
        for index, records in partitions:
            left -= 1
            if not left:
                left = step
                if may_pause:
                    yield None
                now_ms = broker.now_ms()
                over = verification is not None and verification.is_over()
            if refusal is not None or topic is None:
                result = ProduceResult(index, *(refusal or ()))
            elif verification is not None and (error := verification.error(topic.name, index)) is not None:
                result = _not_verified(topic, index, error)
            elif over:
                result = _not_verified(topic, index, NOT_ADDED)
            else:
                straight = verification is None and data.acks != KEEP
                found = append_straight(broker, topic, index, records, now_ms, may=straight)
                if found is None:
                    assert records is not None, "it has been looked at"
                    append = Append(broker, topic, index, records, now_ms, data.acks == KEEP, verification)
                    found, looked_inside = yield from _append(append)
                    if looked_inside:
                        left = 1
                result = found
            if topic is not None and not result.error_code:
                partition = topic.partitions[index]
                if partition.log.high_watermark < (end := partition.log.log_end_offset):
                    uncommitted.append((results, len(results), partition, end))
            results.append(result)
        answer.append((key, results))
    return Appended(answer, uncommitted)


def _close_if_failed(conn: Connection, answer: Answer) -> None:
    """Close the connection if a partition failed: with acks=0 nothing else tells the producer."""
    for _, results in answer:
        for failed in results:
            if failed.error_code:
                name = ErrorCode(failed.error_code).name
                why = failed.error_message or ""
                conn.close(f"acks=0 and partition {failed.partition} failed: {name} {why}")
                return


def _parked_until_committed(
    conn: Connection, version: int, correlation_id: int, appended: Appended, parked: Slot | None = None
) -> bool:
    """Keep the answer until everything in it is committed (durability=fsync). Returns False if it is committed already.

    `parked` is the request's place if it has one.
    """
    slot: Slot | None = None
    missing = 0

    def told(results: list[ProduceResult], number: int, error: ErrorCode) -> None:
        nonlocal missing
        missing -= 1
        if error is not ErrorCode.NONE:
            why = "the record may not be on the disk: it could not be forced to it"
            results[number] = ProduceResult(results[number].partition, error, error_message=why)
        if missing == 0 and slot is not None and not slot.closed:
            slot.resolve((encode_produce_response(correlation_id, version, appended.answer),))

    for results, number, partition, end_offset in appended.uncommitted:
        missing += 1
        conn.broker.when_committed(partition, end_offset, partial(told, results, number))
    if missing:
        slot = parked or conn.park()
    return slot is not None


def append_straight(
    broker: BrokerState, topic: Topic, index: int, records: memoryview | None, now_ms: int, *, may: bool
) -> ProduceResult | None:
    """Append a client's records to one partition if they are the common case, and it `may` be. Returns None, and nothing has changed, if they need more care."""
    if not 0 <= index < len(topic.partitions):
        return ProduceResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not records:
        return ProduceResult(
            index, ErrorCode.INVALID_RECORD, error_message="the request holds no batch for the partition"
        )
    partition = topic.partitions[index]
    if partition.deleted:  # since an earlier slice of the request
        return ProduceResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    topic.metrics.produces += 1
    if may:
        offset = broker.append_one(partition, records, now_ms)
        if offset is not None:
            return ProduceResult(index, 0, offset, -1, partition.log.log_start_offset)
    return None


class Append(NamedTuple):
    """Records for one partition. `mirror`: they are batches of another cluster's log. `verification`: they belong to a transaction."""

    broker: BrokerState
    topic: Topic
    partition_index: int
    records: memoryview
    now_ms: int
    mirror: bool
    verification: Verification | None


def _append(append: Append) -> Steps[tuple[ProduceResult, bool]]:
    """Append to one partition, in steps where much is unpacked. Returns also whether records were looked at, which takes time."""
    broker, topic, index, records, now_ms, mirror, verification = append
    partition = topic.partitions[index]
    version = None if verification is None else verification.transaction_version
    looked_inside = False
    try:
        if mirror:
            info = broker.append(partition, records, now_ms=now_ms, origin="mirror")
        else:
            looked_inside = True  # also if they are refused
            prepared = yield from partition.log.preparing(records, now_ms=now_ms)
            looked_inside = prepared.looked_inside
            if prepared.stopped:
                if partition.deleted:
                    return ProduceResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), True
                if verification is not None:
                    verification.paused()
                    if verification.is_over():
                        return _not_verified(topic, index, NOT_ADDED), True
                now_ms = broker.now_ms()
            info = broker.append(partition, prepared, now_ms=now_ms, transaction_version=version)
    except (LogError, ProtocolError) as e:
        topic.metrics.failed_produces += 1
        if isinstance(e, StorageError):
            partition.not_written(e, "append")
        elif e.code not in _EXPECTED:
            log.error("append to %s failed: %s", partition, e)  # noqa: TRY400 - the sentence says it
        blamed = e.records if isinstance(e, LogError) else ()
        return ProduceResult(index, e.code, error_message=str(e), record_errors=blamed), looked_inside
    return (
        ProduceResult(index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset),
        looked_inside,
    )


def _not_verified(topic: Topic, index: int, error: tuple[ErrorCode, str | None]) -> ProduceResult:
    topic.metrics.failed_produces += 1
    return ProduceResult(index, error[0], error_message=error[1])


_Refusal = tuple[int, int, int, int, str | None]


def _refusal(code: ErrorCode, why: str | None = None) -> _Refusal:
    return (code, -1, -1, -1, why)


def _refused(data: ProduceData) -> _Refusal | None:
    """Returns the error of the request as a whole, if there is one."""
    if data.acks == KEEP and data.transactional_id is not None:
        return _refusal(
            ErrorCode.INVALID_REQUEST, f"acks={KEEP} (a mirror's batches) with a transactional id"
        )
    if not -1 <= data.acks <= 1 and data.acks != KEEP:
        return _refusal(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={data.acks}, but -1, 0 or 1 are possible")
    return None


def _refused_topic(topic: Topic | None, key: TopicKey, acks: int) -> _Refusal | None:
    if topic is None:
        by_id = isinstance(key, bytes)
        return _refusal(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.internal:
        return _refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write to the internal topic {topic.name}"
        )
    needed = topic.config.min_insync_replicas
    if acks in {-1, KEEP} and needed > 1:
        return _refusal(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"min.insync.replicas={needed}, but one replica is in sync"
        )
    return None
