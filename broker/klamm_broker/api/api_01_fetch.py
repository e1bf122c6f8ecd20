"""Fetch, key 1: versions 4 to 18.

Behaviour: records leave the segment file by sendfile. A fetch with fewer than `min_bytes` is parked until they come
or `max_wait_ms` is over; an error in any partition answers at once, also that a topic is deleted meanwhile. The first batch is sent whole even when it is
larger than the limits, so that a reader always gets on. `read_committed` reads up to the last stable offset and
lists aborted transactions. From version 13 topics come as ids.
Not supported: fetch sessions (always session id 0, which clients take as a full session cache and go on with full
requests); divergence by `last_fetched_epoch`, preferred read replicas and replica state: followers only.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from klamm_broker.api.registry import LARGE_REQUEST_MAX, handles
from klamm_broker.log.errors import LogError
from klamm_broker.server.topics import Partition
from klamm_broker.server.waiting import Waiter
from klamm_broker.wire.api_keys import ApiKey
from klamm_broker.wire.errors import ErrorCode
from klamm_broker.wire.hot import FetchResult, TopicKey, encode_fetch_response
from klamm_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from klamm_broker.server.broker import Broker
    from klamm_broker.server.connection import Connection, Slot
    from klamm_broker.server.outgoing import Reply

log = logging.getLogger(__name__)

READ_COMMITTED: Final = 1
IDS_FROM: Final = 13


@handles(ApiKey.FETCH, versions=(4, 18), raw=True, request_max=LARGE_REQUEST_MAX)
def fetch(conn: Connection, body: memoryview, version: int, correlation_id: int) -> Reply | None:
    request, _ = FetchRequest.decode(bytes(body), version)
    if request.session_epoch > 0:  # 0 opens a session (it stays without an id), -1 wants none
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return encode_fetch_response(correlation_id, version, [], error_code=code)
    work = Fetch(conn.broker, request, version, correlation_id)
    reply = work.attempt(final=request.max_wait_ms <= 0)
    if reply is not None:
        return reply
    work.park(conn.park(), request.max_wait_ms / 1000)
    return None


@dataclass(slots=True)
class Asked:
    """A topic of the request, with the partitions that exist."""

    key: TopicKey
    unknown: ErrorCode
    partitions: list[tuple[FetchPartition, Partition | None]]


class Fetch:
    """One fetch, from its first attempt to its answer."""

    __slots__ = (
        "_committed",
        "_correlation_id",
        "_deleted",
        "_max_bytes",
        "_min_bytes",
        "_topics",
        "_version",
        "missing",
    )

    def __init__(self, broker: Broker, request: FetchRequest, version: int, correlation_id: int) -> None:
        self._version = version
        self._correlation_id = correlation_id
        self._max_bytes = min(request.max_bytes, broker.config["fetch.max.bytes"])
        self._min_bytes = request.min_bytes
        self._committed = request.isolation_level == READ_COMMITTED
        by_id = version >= IDS_FROM
        self._deleted = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._topics = [_asked(broker, topic, by_id=by_id) for topic in request.topics]
        self.missing = 0

    def attempt(self, *, final: bool) -> Reply | None:
        """The answer; None when it is worth waiting for more and it is not `final`."""
        total, urgent = 0, final or not self._topics
        answer: list[tuple[TopicKey, list[FetchResult]]] = []
        for topic in self._topics:
            results = []
            for asked, partition in topic.partitions:
                if partition is None:
                    result = FetchResult(asked.partition, topic.unknown)
                elif partition.deleted:
                    result = FetchResult(asked.partition, self._deleted)
                else:
                    result = self._read(partition, asked, total)
                if result.error_code:
                    urgent = True
                if result.records is not None:
                    total += result.records.size  # type: ignore[union-attr]  # always a file range here
                results.append(result)
            answer.append((topic.key, results))
        if not urgent and total < self._min_bytes:
            self.missing = self._min_bytes - total
            return None
        self._count(answer)
        return encode_fetch_response(self._correlation_id, self._version, answer)

    def _count(self, answer: list[tuple[TopicKey, list[FetchResult]]]) -> None:
        for topic, (_, results) in zip(self._topics, answer, strict=True):
            for (_, partition), result in zip(topic.partitions, results, strict=True):
                if partition is not None:
                    size = 0 if result.records is None else result.records.size  # type: ignore[union-attr]
                    partition.topic.metrics.note_fetch(result.error_code, size)

    def _read(self, partition: Partition, asked: FetchPartition, total: int) -> FetchResult:
        log = partition.log
        index = asked.partition
        error = epoch_error(asked.current_leader_epoch, log.leader_epoch)
        if error is not None:
            return FetchResult(index, error)
        high, stable, start = log.high_watermark, log.last_stable_offset, log.log_start_offset
        offset = asked.fetch_offset
        if not start <= offset <= log.log_end_offset:
            return FetchResult(index, ErrorCode.OFFSET_OUT_OF_RANGE)
        up_to = stable if self._committed else high
        budget = min(asked.partition_max_bytes, self._max_bytes - total)
        records: Any = None
        if offset < up_to and (budget > 0 or total == 0):
            try:
                records = log.read(offset, max(budget, 0), up_to=up_to, min_one_batch=total == 0)
            except LogError as e:
                return FetchResult(index, e.code, high, stable, start)
        aborted = None
        if self._committed:
            aborted = [(t.producer_id, t.first_offset) for t in log.aborted_transactions(offset, up_to)]
        return FetchResult(index, 0, high, stable, start, aborted, records)

    def park(self, slot: Slot, timeout_s: float) -> None:
        """Wait for more; the answer goes into `slot`."""

        def complete(final: bool) -> bool:
            if slot.closed:
                return True
            try:
                reply = self.attempt(final=final)
            except Exception as e:  # a defect of ours must not keep the other waiters waiting
                log.exception("a parked fetch failed")
                slot.fail(f"FETCH failed here: {e!r}")
                return True
            waiter.missing = self.missing
            if reply is not None:
                slot.resolve(reply)
            return reply is not None

        partitions = [p for topic in self._topics for _, p in topic.partitions if p is not None]
        waiter = Waiter(partitions, self.missing, complete)
        slot.abandoned = waiter.leave
        waiter.enter(slot.waiting_room, timeout_s)


def _asked(broker: Broker, topic: FetchTopic, *, by_id: bool) -> Asked:
    key: TopicKey = topic.topic_id if by_id else topic.topic
    found = broker.topics.by_id.get(topic.topic_id) if by_id else broker.topics.by_name.get(topic.topic)
    partitions = found.partitions if found is not None else []
    count = len(partitions)
    return Asked(
        key,
        ErrorCode.UNKNOWN_TOPIC_ID if by_id and found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        [(p, partitions[p.partition] if 0 <= p.partition < count else None) for p in topic.partitions],
    )


def epoch_error(asked: int, current: int) -> ErrorCode | None:
    """What is wrong with the leader epoch that a client believes in; -1 means that it does not say."""
    if asked < 0 or asked == current:
        return None
    return ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH
