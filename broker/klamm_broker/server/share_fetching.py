"""A share fetch from its first attempt to its answer: it reads where records can be acquired, or waits for such.

Records leave as ranges of the segment file. Only the headers of their batches are read here, to know which records a range
has. Event loop's thread only.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from klamm_broker.coordinator.share.acquiring import acquire
from klamm_broker.coordinator.share.delivery import Acquired, Ask, Span
from klamm_broker.coordinator.share.model import ShareKey
from klamm_broker.coordinator.share.sessions import At, ShareSession
from klamm_broker.log.errors import LogError
from klamm_broker.server import heavy
from klamm_broker.server.share_groups import OK, Outcome, Served
from klamm_broker.server.waiting import Waiter
from klamm_kafka.wire.batch import HEADER_BYTES, read_header
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.share_fetch import SharedRecords, share_fetch_response_steps

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
STEP: Final = 256
"""Partitions in one step of a large share fetch."""
LARGE: Final = 500
"""A share fetch of more partitions, its session's included, is attempted in slices."""
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
        self.timeout_s = max(request.max_wait_ms, 0) / 1000
        self._watched: dict[At, Served] = {}
        self.missing = 1

    @property
    def is_large(self) -> bool:
        """True if it should be attempted in slices."""
        return len(self._partitions) > LARGE or len(self._acknowledged) > LARGE

    def attempt(self, *, final: bool) -> Reply | None:
        """Returns the answer, or None if the fetch should wait; with `final` always the answer."""
        return heavy.finished(self.attempting(final=final))

    def attempting(self, *, final: bool) -> Generator[None, None, Reply | None]:
        """Does what `attempt` does, in steps."""
        answer: dict[At, SharedRecords] = {}
        readable, waits = yield from self._look(answer)
        total, failed = 0, bool(answer) and not readable and not waits
        found: list[Found] = []
        each = self._max_bytes // max(len(readable), 1)
        for at, served in readable:
            yield
            is_new, served.is_new = served.is_new, False
            if is_new and total >= max(self._min_bytes, 1):
                continue  # as Kafka's share partitions, which load one after another: a fetch does not wait for all of them
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
        return (yield from self._answering(answer, found))

    def _look(
        self, answer: dict[At, SharedRecords]
    ) -> Generator[None, None, tuple[list[tuple[At, Served]], bool]]:
        """Returns the partitions that can be read, and whether others may be later. Errors go into the answer."""
        readable: list[tuple[At, Served]] = []
        waits = False
        for n, at in enumerate(self._partitions if self._wants_records else (), 1):
            if not n % STEP:
                yield
            partition, error = self._found(at)
            if partition is None:
                answer[at] = SharedRecords(at[1], error, error.message)
                continue
            shares = self._broker.shares
            if shares.leaving:
                shares.give_back((self._group_id, self._ask.member_id), at)
            served = self._served(at, partition)
            if served.error is not OK:
                answer[at] = SharedRecords(at[1], *served.error)
            elif served.core is not None and served.core.can_acquire():
                readable.append((at, served))
            else:
                waits = True
        return readable, waits

    def _answering(self, answer: dict[At, SharedRecords], found: list[Found]) -> Generator[None, None, Reply]:
        """Acquire records of what was found, and answer. For one who is over the quota nothing is locked."""
        charge, size = self._charge, 0
        if charge is not None:
            size = yield from self._likely_size(found)
            if throttle_ms := charge.fetched(size):
                return (yield from self._encoding({}, throttle_ms=throttle_ms))
        left = self._ask.max_records
        for at, served, offset, piece in [] if self._has_moved_on() else found:
            yield
            result = self._acquired(at, served, offset, piece, left)
            left -= sum(item.records for item in result.acquired)
            answer[at] = result
        reply = yield from self._encoding(answer)
        if charge is not None:
            charge.correct(int.from_bytes(reply[0][:4], "big") - size)  # type: ignore[index]  # bytes are first
        return reply

    def _likely_size(self, found: list[Found]) -> Generator[None, None, int]:
        """Returns about how many bytes will leave, before anything is acquired."""
        left, size = self._ask.max_records, 0
        for _, served, offset, piece in found:
            if left <= 0:
                break
            yield
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
        self, at: At, served: Served, offset: int, piece: FileSlice | None, left: int
    ) -> SharedRecords:
        core = served.core
        nothing = SharedRecords(at[1], ErrorCode.NONE, None)
        if piece is None or core is None or left <= 0:
            return nothing
        if core.next_fetch_offset() != offset or not self._broker.shares.serves(served):
            return nothing  # between two steps others have come first
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
        if self._session is not None:
            self._session.held.add(at)
        if served.timer is not None:
            served.timer.set()
        records = _slice(piece, spans, found)
        served.partition.topic.metrics.note_fetch(ErrorCode.NONE, records.size)
        return SharedRecords(at[1], ErrorCode.NONE, None, records=records, acquired=found)

    # Answer

    def _encoding(
        self, answer: dict[At, SharedRecords], *, throttle_ms: int = 0
    ) -> Generator[None, None, Reply]:
        error = yield from self._tell_changes(answer)
        if error is not ErrorCode.NONE:
            answer = {}
        for at, (code, message) in self._acknowledged.items():
            told = answer.get(at) or SharedRecords(at[1], ErrorCode.NONE, None)
            answer[at] = told._replace(ack_error=code, ack_message=message)
        topics: dict[bytes, list[SharedRecords]] = {}
        for n, (at, told) in enumerate(answer.items(), 1):
            if not n % STEP:
                yield
            topics.setdefault(at[0], []).append(told)
        return (
            yield from share_fetch_response_steps(
                self._correlation_id,
                list(topics.items()),
                throttle_time_ms=throttle_ms,
                error_code=error,
                lock_ms=self._broker.shares.delivery(self._group_id).lock_ms,
            )
        )

    def _has_moved_on(self) -> bool:
        """Decides whether another request has continued the session."""
        return self._session is not None and not self._first and self._session.epoch != self._epoch

    def _tell_changes(self, answer: dict[At, SharedRecords]) -> Generator[None, None, ErrorCode]:
        """Leave out of a session's answer what the reader knows. Returns an error if the session has moved on."""
        session = self._session
        if session is None:
            return ErrorCode.NONE
        if self._has_moved_on():
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        for n, (at, told) in enumerate(list(answer.items()), 1):
            if not n % STEP:
                yield
            if told.records is not None:
                session.note_served(at)
            if self._first:
                continue  # it is told of all partitions
            if told.records is None and at not in session.news and told.error_code == ErrorCode.NONE:
                del answer[at]
            session.news.discard(at)
            if told.error_code != ErrorCode.NONE:
                session.news.add(at)
        return ErrorCode.NONE

    # Waiting

    def watching(self, waiter: Waiter) -> Generator[None]:
        """Let all partitions wake the waiter, in steps: by records, new ones or such that come back."""
        for n, at in enumerate(self._partitions, 1):
            if not n % STEP:
                yield
            partition, _ = self._found(at)
            if partition is not None:
                served = self._served(at, partition)
                for waiters in (partition.waiters, served.waiters):
                    waiters[waiter] = None
                self._watched[at] = served

    def _served(self, at: At, partition: Partition) -> Served:
        """Returns a share partition; one that failed while this fetch waited for it stays so: the next fetch tries again."""
        watched = self._watched.get(at)
        if watched is not None and watched.error is not OK:
            return watched
        return self._broker.shares.get(ShareKey(self._group_id, *at), partition)

    def leave(self, waiter: Waiter) -> None:
        """Let nothing wake the waiter any more."""
        waiter.leave()
        for served in self._watched.values():
            served.partition.waiters.pop(waiter, None)
            served.waiters.pop(waiter, None)
        self._watched.clear()

    def answer_later(self, slot: Slot, *, tried: bool = False) -> None:
        """Attempt the fetch, again and again until it has its answer, which goes into `slot`. `tried`: once without one."""
        Attempts(self, slot, tried=tried)


class Attempts:
    """The attempts of a share fetch that is large or has to wait; those of a large one are in slices.

    It waits for its partitions from the beginning: what comes to one that was looked at already asks for another attempt.
    """

    def __init__(self, fetch: ShareFetch, slot: Slot, *, tried: bool) -> None:
        self._fetch = fetch
        self._slot = slot
        self._under_way = self._last = False
        self._waiter = Waiter((), 0, self._attempt)
        slot.abandoned = self._leave
        if fetch.timeout_s > 0:
            self._waiter.enter(slot.waiting_room, fetch.timeout_s)
        if tried:
            self._waiter.missing = fetch.missing
            heavy.finished(fetch.watching(self._waiter))
        else:
            self._attempt(fetch.timeout_s <= 0)

    def _attempt(self, final: bool) -> bool:
        self._last = self._last or final
        if not self._under_way and not self._slot.closed:
            self._under_way, self._waiter.missing = True, 0
            if self._fetch.is_large:
                heavy.run(self._slot, "SHARE_FETCH", self._steps(), self._attempted)
            else:
                self._attempt_at_once()
        return self._last

    def _attempt_at_once(self) -> None:
        charge = self._slot.charge
        if charge is not None:
            charge.go_on()
        try:
            reply = heavy.finished(self._steps())
        except Exception as e:  # a defect of ours must not keep the other waiters waiting
            log.exception("a parked share fetch failed")
            self._slot.fail(f"SHARE_FETCH failed here: {e!r}")
            return
        if charge is not None:
            charge.pause()
        self._attempted(reply)

    def _steps(self) -> Generator[None, None, Reply | None]:
        if not self._last:  # each time: a share partition may be another one by now
            yield from self._fetch.watching(self._waiter)
        return (yield from self._fetch.attempting(final=self._last))

    def _attempted(self, reply: Reply | None) -> None:
        self._under_way = False
        if reply is not None:
            self._leave()
            self._slot.resolve(reply)
            return
        self._waiter.missing += self._fetch.missing  # less what has come meanwhile
        if self._last or self._waiter.missing <= 0:
            self._attempt(self._last)

    def _leave(self) -> None:
        self._fetch.leave(self._waiter)


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
