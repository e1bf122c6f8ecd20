"""A share fetch from its first attempt to its answer: it reads where records can be acquired, or waits for such.

Records leave as ranges of the segment file. Only the headers of their batches are read here, to know which records a range
has. Event loop's thread only.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from klamm_broker.coordinator.share.acquiring import acquire
from klamm_broker.coordinator.share.delivery import Acquired, Ask, Span
from klamm_broker.coordinator.share.model import ShareKey
from klamm_broker.coordinator.share.sessions import At, ShareSession
from klamm_broker.log.errors import LogError
from klamm_broker.server.share_groups import OK, Outcome, Served
from klamm_broker.server.waiting import Waiter
from klamm_kafka.wire.batch import HEADER_BYTES, read_header
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.share_fetch import SharedRecords, encode_share_fetch_response

if TYPE_CHECKING:
    from klamm_broker.log.answers import FileSlice
    from klamm_broker.server.connection import Slot
    from klamm_broker.server.metering import Charge
    from klamm_broker.server.outgoing import Reply
    from klamm_broker.server.state import BrokerState
    from klamm_broker.server.topics import Partition
    from klamm_kafka.wire.messages.share_fetch import ShareFetchRequest

log = logging.getLogger(__name__)

RECORD_LIMIT: Final = 1
_HEADERS_BYTES: Final = 16 * 1024
"""Bytes that are read at once to find batch headers."""


class Rights(Protocol):
    """The topics that the reader may read."""

    def may_read(self, topic: str) -> bool: ...


Found = tuple[At, Served, int, "FileSlice | None"]
"""A partition that can be read, where, and what is there."""


class ShareFetch:
    """One share fetch. `acknowledged` are the outcomes of the acknowledgements that came with it."""

    def __init__(
        self,
        broker: BrokerState,
        request: ShareFetchRequest,
        correlation_id: int,
        *,
        rights: Rights,
        session: ShareSession | None,
        partitions: list[At],
        acknowledged: Mapping[At, Outcome],
        first: bool,
        charge: Charge | None = None,
    ) -> None:
        group_id, member_id = request.group_id or "", request.member_id or ""
        self._broker = broker
        self._group_id = group_id
        self._correlation_id = correlation_id
        self._rights = rights
        self._session = session
        self._epoch = 0 if session is None else session.epoch
        self._first = first
        self._partitions = partitions
        self._acknowledged = acknowledged
        self._charge = charge
        self._max_bytes = min(request.max_bytes, broker.config["fetch.max.bytes"])
        if charge is not None and (most := charge.fetch_bytes_max()) is not None:
            self._max_bytes = min(self._max_bytes, most)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        limited = request.share_acquire_mode == RECORD_LIMIT
        self._ask = Ask(member_id, request.max_records, max(request.batch_size, 1), limited)
        self._committed = broker.shares.setting(group_id, "share.isolation.level") == "read_committed"
        self._wants_records = request.max_records > 0 and self._max_bytes > 0
        self.missing = 1

    def attempt(self, *, final: bool) -> Reply | None:
        """Returns the answer, or None if the fetch should wait; with `final` always the answer."""
        answer: dict[At, SharedRecords] = {}
        readable: list[tuple[At, Served]] = []
        waits = False
        for at in self._partitions if self._wants_records else ():
            partition, error = self._found(at)
            if partition is None:
                answer[at] = SharedRecords(at[1], error, error.message)
                continue
            served = self._broker.shares.get(ShareKey(self._group_id, *at), partition)
            if served.error is not OK:
                answer[at] = SharedRecords(at[1], *served.error)
            elif served.core is not None and served.core.can_acquire():
                readable.append((at, served))
            else:
                waits = True
        total, failed = 0, bool(answer) and not readable and not waits
        found: list[Found] = []
        each = self._max_bytes // max(len(readable), 1)
        for at, served in readable:
            try:
                offset, piece = self._read(served, each, force=total == 0)
            except LogError as e:
                answer[at] = SharedRecords(at[1], e.code, e.code.message)
                failed = True
                continue
            found.append((at, served, offset, piece))
            total += 0 if piece is None else piece.size
        wants = self._wants_records and bool(self._partitions)
        if wants and not final and not failed and total < self._min_bytes:
            self.missing = self._min_bytes - total
            return None
        return self._answer(answer, found)

    def _answer(self, answer: dict[At, SharedRecords], found: list[Found]) -> Reply:
        """Acquire records of what was found, and answer. For one who is over the quota nothing is locked."""
        charge, size = self._charge, 0
        if charge is not None:
            size = self._likely_size(found)
            if throttle_ms := charge.fetched(size):
                return self._encode({}, throttle_ms=throttle_ms)
        left = self._ask.max_records
        for at, served, offset, piece in found:
            result = self._acquired(at[1], served, offset, piece, left)
            left -= sum(item.records for item in result.acquired)
            answer[at] = result
        reply = self._encode(answer)
        if charge is not None:
            charge.correct(int.from_bytes(reply[0][:4], "big") - size)  # type: ignore[index]  # bytes are first
        return reply

    def _likely_size(self, found: list[Found]) -> int:
        """Returns about how many bytes will leave, before anything is acquired."""
        left, size = self._ask.max_records, 0
        for _, served, offset, piece in found:
            if left <= 0:
                break
            spans = [] if piece is None else self._spans(served, offset, piece, left)
            left -= sum(span.last - span.first + 1 for span in spans)
            size += sum(span.size for span in spans)
        return size

    def _spans(self, served: Served, offset: int, piece: FileSlice, left: int) -> list[Span]:
        """Returns the batches of which records may be acquired: those in flight, and new ones as far as there are locks."""
        core = served.core
        assert core is not None
        room = max(core.settings().max_locks - core.in_flight, 0)
        return _spans(piece, max(core.end, offset) + min(left, room))

    def _found(self, at: At) -> tuple[Partition | None, ErrorCode]:
        topic = self._broker.topics.by_id.get(at[0])
        if topic is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
        if not self._rights.may_read(topic.name):
            return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not 0 <= at[1] < len(topic.partitions):
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = topic.partitions[at[1]]
        if partition.log.offline:
            return None, ErrorCode.KAFKA_STORAGE_ERROR
        return partition, ErrorCode.NONE

    def _read(self, served: Served, max_bytes: int, *, force: bool) -> tuple[int, FileSlice | None]:
        """Returns where the partition is to be read, and the range of records there."""
        core, stored = served.core, served.partition.log
        assert core is not None
        if core.next_fetch_offset() < stored.log_start_offset:
            core.move_start(stored.log_start_offset)
        offset = core.next_fetch_offset()
        up_to = stored.last_stable_offset if self._committed else stored.high_watermark
        if not stored.log_start_offset <= offset < up_to:
            return offset, None
        return offset, stored.read(offset, max_bytes, up_to=up_to, min_one_batch=force)

    def _acquired(
        self, index: int, served: Served, offset: int, piece: FileSlice | None, left: int
    ) -> SharedRecords:
        core = served.core
        nothing = SharedRecords(index, ErrorCode.NONE, None)
        if piece is None or core is None or left <= 0:
            return nothing
        stored = served.partition.log
        up_to = stored.last_stable_offset if self._committed else stored.high_watermark
        spans = self._spans(served, offset, piece, left)
        aborted = (
            [(t.producer_id, t.first_offset) for t in stored.aborted_in(offset, piece, up_to)]
            if self._committed
            else ()
        )
        ask = self._ask._replace(max_records=left)
        found = acquire(core, ask, offset, spans, self._broker.shares.now_ms(), aborted=aborted)
        if not found:
            return nothing
        if served.timer is not None:
            served.timer.set()
        records = _slice(piece, spans, found)
        served.partition.topic.metrics.note_fetch(ErrorCode.NONE, records.size)
        return SharedRecords(index, ErrorCode.NONE, None, records=records, acquired=found)

    # Answer

    def _encode(self, answer: dict[At, SharedRecords], *, throttle_ms: int = 0) -> Reply:
        error = self._tell_changes(answer)
        if error is not ErrorCode.NONE:
            answer = {}
        for at, (code, message) in self._acknowledged.items():
            told = answer.get(at) or SharedRecords(at[1], ErrorCode.NONE, None)
            answer[at] = told._replace(ack_error=code, ack_message=message)
        topics: dict[bytes, list[SharedRecords]] = {}
        for at, told in answer.items():
            topics.setdefault(at[0], []).append(told)
        lock_ms = self._broker.shares.delivery(self._group_id).lock_ms
        return encode_share_fetch_response(
            self._correlation_id,
            list(topics.items()),
            throttle_time_ms=throttle_ms,
            error_code=error,
            lock_ms=lock_ms,
        )

    def _tell_changes(self, answer: dict[At, SharedRecords]) -> ErrorCode:
        """Leave out of a session's answer what the reader knows. Returns an error if the session has moved on."""
        session = self._session
        if session is None or self._first:
            return ErrorCode.NONE
        if session.epoch != self._epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        for at, told in list(answer.items()):
            if told.records is None and at not in session.news and told.error_code == ErrorCode.NONE:
                del answer[at]
            session.news.discard(at)
            if told.error_code != ErrorCode.NONE:
                session.news.add(at)
            elif told.records is not None and at in session.partitions:
                del session.partitions[at]
                session.partitions[at] = None
        return ErrorCode.NONE

    # Waiting

    def park(self, slot: Slot, timeout_s: float) -> None:
        """Wait for records, new ones or such that come back; the answer goes into `slot`."""
        served: list[Served] = []
        found = (self._found(at)[0] for at in self._partitions)
        partitions = [partition for partition in found if partition is not None]

        def watch() -> None:
            leave()
            for at in self._partitions:
                partition, _ = self._found(at)
                if partition is not None:
                    served.append(self._broker.shares.get(ShareKey(self._group_id, *at), partition))
                    served[-1].waiters[waiter] = None

        def leave() -> None:
            for item in served:
                item.waiters.pop(waiter, None)
            served.clear()

        def complete(final: bool) -> bool:
            if slot.closed:
                leave()
                return True
            if self._charge is not None:
                self._charge.go_on()
            try:
                reply = self.attempt(final=final)
            except Exception as e:  # a defect of ours must not keep the other waiters waiting
                log.exception("a parked share fetch failed")
                leave()
                slot.fail(f"SHARE_FETCH failed here: {e!r}")
                return True
            if self._charge is not None:
                self._charge.pause()
            waiter.missing = self.missing
            if reply is None:
                watch()  # a share partition may be another one by now
            else:
                leave()
                slot.resolve(reply)
            return reply is not None

        def abandoned() -> None:
            leave()
            waiter.leave()

        waiter = Waiter(partitions, self.missing, complete)
        slot.abandoned = abandoned
        watch()
        waiter.enter(slot.waiting_room, timeout_s)


def _spans(piece: FileSlice, up_to: int) -> list[Span]:
    """Returns the batches of a range, until one reaches behind `up_to`: no more records can be acquired."""
    spans: list[Span] = []
    at, end, data, base = piece.position, piece.position + piece.size, b"", piece.position
    while at < end:
        if at + HEADER_BYTES > base + len(data):
            base, data = at, os.pread(piece.fd, min(_HEADERS_BYTES, end - at), at)
        header = read_header(data, at - base)
        spans.append(
            Span(
                header.base_offset,
                header.last_offset,
                header.size,
                header.producer_id,
                header.is_transactional,
                header.is_control,
            )
        )
        if header.last_offset > up_to:
            break
        at += header.size
    return spans


def _slice(piece: FileSlice, spans: list[Span], acquired: list[Acquired]) -> FileSlice:
    """Returns the batches of a range that have acquired records, from the first to the last."""
    first, last = acquired[0].first, acquired[-1].last
    skipped = taken = 0
    for index, span in enumerate(spans):
        if index + 1 < len(spans) and spans[index + 1].first <= first:
            skipped += span.size
        elif span.first <= last:
            taken += span.size
    return piece._replace(position=piece.position + skipped, size=taken)
