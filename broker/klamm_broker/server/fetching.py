"""Fetches from their first attempt to their answer: full fetches, and incremental fetches of a session.

Both kinds read as much as their limits allow, and wait while that is less than `min_bytes`. An error of an existing
partition, or its deletion, is answered at once. A partition that does not exist is answered at once only if the fetch
asks for nothing else: a reader of many topics must not spin because one of them is gone. Event loop's thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from klamm_broker.log.errors import LogError
from klamm_broker.server import heavy
from klamm_broker.server.waiting import Waiter
from klamm_kafka.wire.acls import AclOperation, ResourceType
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.hot import FetchResult, TopicKey, encode_fetch_response, fetch_response_steps

if TYPE_CHECKING:
    from klamm_broker.log.partition_log import PartitionLog
    from klamm_broker.security.authorizer import Access
    from klamm_broker.server.connection import Slot
    from klamm_broker.server.fetch_sessions import FetchSession, Watched
    from klamm_broker.server.metering import Charge
    from klamm_broker.server.outgoing import Reply
    from klamm_broker.server.storage import Storage
    from klamm_broker.server.topics import Partition, Topic
    from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest

log = logging.getLogger(__name__)

READ_COMMITTED: Final = 1
STEP: Final = 256
"""Partitions in one step of a large fetch."""
CHANGES_MAX: Final = 1_000
"""Changed partitions of a session that one answer tells of: they take some 5 ms."""
IDS_FROM: Final = 13
"""The version from which topics come as ids."""
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_STALE_EPOCH: Final = ErrorCode.INVALID_FETCH_SESSION_EPOCH


def _may_read(access: Access, topic: str) -> bool:
    return topic in access.readable or access.may(
        AclOperation.READ, ResourceType.TOPIC, topic, ApiKey.FETCH.name
    )


class Fetch:
    """The common part of both kinds: the limits, reading a partition, waiting."""

    __slots__ = (
        "_access",
        "_charge",
        "_committed",
        "_correlation_id",
        "_max_bytes",
        "_min_bytes",
        "_storage",
        "_version",
        "missing",
    )

    def __init__(
        self,
        storage: Storage,
        request: FetchRequest,
        version: int,
        correlation_id: int,
        access: Access | None = None,
        *,
        charge: Charge | None = None,
    ) -> None:
        self._storage = storage
        self._access = access
        self._charge = charge
        self._version = version
        self._correlation_id = correlation_id
        max_bytes = min(request.max_bytes, storage.config["fetch.max.bytes"])
        if charge is not None and (most := charge.fetch_bytes_max()) is not None:
            max_bytes = min(max_bytes, most)
        self._max_bytes = max_bytes
        self._min_bytes = min(request.min_bytes, max_bytes)
        self._committed = request.isolation_level == READ_COMMITTED
        self.missing = 0

    def attempt(self, *, final: bool) -> Reply | None:
        """Returns the answer, or None if the fetch should wait for more; with `final` always the answer."""
        raise NotImplementedError

    def park(self, slot: Slot, timeout_s: float) -> None:
        """Wait for more; the answer goes into `slot`."""
        raise NotImplementedError

    def _read(self, log: PartitionLog, asked: FetchPartition, total: int) -> FetchResult:
        index = asked.partition
        if log.offline:
            return FetchResult(index, ErrorCode.KAFKA_STORAGE_ERROR)
        epoch = asked.current_leader_epoch
        if (
            epoch not in (-1, log.leader_epoch)
            and (error := epoch_error(epoch, log.leader_epoch)) is not None
        ):
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
            found = log.aborted_in(offset, records, up_to) if records is not None else ()
            aborted = [(t.producer_id, t.first_offset) for t in found]
        return FetchResult(index, 0, high, stable, start, aborted, records)

    def _wait(self, slot: Slot, timeout_s: float, partitions: list[Partition]) -> Waiter:
        """Wait for more in these partitions; the answer goes into `slot`."""

        def complete(final: bool) -> bool:
            if slot.closed:
                return True
            if self._charge is not None:
                self._charge.go_on()
            try:
                reply = self.attempt(final=final)
            except Exception as e:  # a defect of ours must not keep the other waiters waiting
                log.exception("a parked fetch failed")
                slot.fail(f"FETCH failed here: {e!r}")
                return True
            if self._charge is not None:
                self._charge.pause()
            waiter.missing = self.missing
            if reply is not None:
                slot.resolve(reply)
            return reply is not None

        waiter = Waiter(partitions, self.missing, complete)
        slot.abandoned = waiter.leave
        waiter.enter(slot.waiting_room, timeout_s)
        return waiter

    def _held_up(self, charge: Charge, answer: Answer, session_id: int = 0) -> Reply | None:
        """Returns the empty answer of a client that is over its quota; None if it gets this one."""
        (head, *_) = encode_fetch_response(self._correlation_id, self._version, answer)
        throttle_ms = charge.fetched(int.from_bytes(head[:4], "big"))
        if not throttle_ms:
            return None
        return encode_fetch_response(
            self._correlation_id, self._version, [], throttle_time_ms=throttle_ms, session_id=session_id
        )


Asked = tuple[TopicKey, ErrorCode, list[tuple["FetchPartition", "Partition | None"]]]
"""A topic of a full fetch: its key, the error for partitions that do not exist, and all partitions that it names."""
Answer = list[tuple[TopicKey, list[FetchResult]]]


class FullFetch(Fetch):
    """A fetch that names every partition. With `session` it begins a session when it is answered."""

    __slots__ = ("_session", "_topics")

    def __init__(
        self,
        storage: Storage,
        request: FetchRequest,
        version: int,
        correlation_id: int,
        access: Access | None = None,
        *,
        session: bool,
        charge: Charge | None = None,
    ) -> None:
        # half the time of super()
        Fetch.__init__(self, storage, request, version, correlation_id, access, charge=charge)
        self._session = session
        by_id = version >= IDS_FROM
        topics: Mapping[Any, Topic] = storage.topics.by_id if by_id else storage.topics.by_name
        self._topics: list[Asked] = []
        for topic in request.topics:
            key: TopicKey = topic.topic_id if by_id else topic.topic
            found = topics.get(key)
            denied = False
            if access is not None and (found is not None or not by_id):
                denied = not _may_read(access, key if found is None else found.name)  # type: ignore[arg-type]
                found = None if denied else found
            partitions = found.partitions if found is not None else ()
            count = len(partitions)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if found is None and by_id:
                unknown = ErrorCode.UNKNOWN_TOPIC_ID
            if denied:
                unknown = _DENIED
            asked = [
                (p, partitions[p.partition] if 0 <= p.partition < count else None) for p in topic.partitions
            ]
            self._topics.append((key, unknown, asked))

    def attempt(self, *, final: bool) -> Reply | None:
        if not final and self._min_bytes > 0 and self._at_the_end():
            self.missing = self._min_bytes
            return None
        steps = self.attempting(final=final)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def attempting(self, *, final: bool) -> Generator[None, None, Reply | None]:
        """Does what `attempt` does, in steps."""
        total, urgent, known, left = 0, final, False, STEP
        answer: Answer = []
        for key, unknown, partitions in self._topics:
            results: list[FetchResult] = []
            for asked, partition in partitions:
                left -= 1
                if not left:
                    left = STEP
                    yield
                if partition is None:
                    results.append(FetchResult(asked.partition, unknown))
                    continue
                known = True
                if partition.deleted:
                    result = FetchResult(asked.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    result = self._read(partition.log, asked, total)
                if result.error_code:
                    urgent = True
                if result.records is not None:
                    total += result.records.size  # type: ignore[union-attr]  # always a file range here
                results.append(result)
            answer.append((key, results))
        if total < self._min_bytes and known and not urgent:
            self.missing = self._min_bytes - total
            return None
        if self._charge is not None and (held_up := self._held_up(self._charge, answer)) is not None:
            return held_up
        yield from self._counting(answer)
        session_id = (yield from self._opening_session(answer)) if self._session else 0
        return (
            yield from fetch_response_steps(
                self._correlation_id, self._version, answer, session_id=session_id
            )
        )

    def answer_later(self, slot: Slot, timeout_s: float) -> None:
        """Attempt a large fetch in slices, again and again until it has its answer, which goes into `slot`."""
        _LargeFetch(self, slot, timeout_s)

    def known(self) -> list[Partition]:
        return [p for _, _, asked in self._topics for _, p in asked if p is not None]

    def _at_the_end(self) -> bool:
        """Decides whether all partitions are read to their end, as by most fetches of a reader that keeps up."""
        known, committed = False, self._committed
        for _, _, partitions in self._topics:
            for asked, partition in partitions:
                if partition is None:
                    continue
                log = partition.log
                if (
                    asked.fetch_offset != (log.last_stable_offset if committed else log.high_watermark)
                    or asked.current_leader_epoch not in {-1, log.leader_epoch}
                    or partition.deleted
                    or log.offline
                ):
                    return False
                known = True
        return known

    def park(self, slot: Slot, timeout_s: float) -> None:
        """Wait for more; the answer goes into `slot`."""
        self._wait(slot, timeout_s, self.known())

    def _counting(self, answer: Answer) -> Generator[None]:
        left = STEP
        for (_, _, asked), (_, results) in zip(self._topics, answer, strict=True):
            for (_, partition), result in zip(asked, results, strict=True):
                left -= 1
                if not left:
                    left = STEP
                    yield
                if partition is not None:
                    records = result[6]
                    partition.topic.metrics.note_fetch(result[1], 0 if records is None else records.size)  # type: ignore[union-attr]

    def _opening_session(self, answer: Answer) -> Generator[None, None, int]:
        """Remember the request and the answer in a session. Returns the session's id, or 0 when there is no room."""
        sessions, topics = self._storage.fetch_sessions, self._storage.topics
        now_ms = int(self._storage.loop.time() * 1000)
        size = sum(len(asked) for _, _, asked in self._topics)
        uses_ids = self._version >= IDS_FROM
        session = sessions.create(size, uses_ids=uses_ids, committed=self._committed, now_ms=now_ms)
        if session is None:
            return 0
        left = STEP
        for (_, _, named), (key, results) in zip(self._topics, answer, strict=True):
            for (asked, _), result in zip(named, results, strict=True):
                watched = session.add(key, asked)
                watched.resolve(topics)
                note_answer(session, watched, result)
                partition = watched.partition
                if partition is not None and partition.log.high_watermark != result.high_watermark:
                    session.changed[watched] = None  # between two steps records have come
                left -= 1
                if not left:
                    left = STEP
                    yield
        if session.closed:  # evicted between two steps
            return 0
        sessions.touch(session, now_ms)
        return session.id


class _LargeFetch:
    """The attempts of a full fetch in slices.

    It waits for its partitions from the beginning: what comes to one that was read already asks for another attempt.
    """

    __slots__ = ("_fetch", "_last", "_slot", "_under_way", "_waiter")

    def __init__(self, fetch: FullFetch, slot: Slot, timeout_s: float) -> None:
        self._fetch = fetch
        self._slot = slot
        self._under_way = self._last = False
        self._waiter = Waiter(fetch.known(), 0, self._attempt)  # it lets go of this when it leaves
        slot.abandoned = self._waiter.leave
        if timeout_s > 0:
            self._waiter.enter(slot.waiting_room, timeout_s)
        self._attempt(timeout_s <= 0)

    def _attempt(self, final: bool) -> bool:
        self._last = self._last or final
        if not self._under_way and not self._slot.closed:
            self._under_way, self._waiter.missing = True, 0
            heavy.run(self._slot, "FETCH", self._fetch.attempting(final=self._last), self._attempted)
        return self._last

    def _attempted(self, reply: Reply | None) -> None:
        self._under_way = False
        if reply is not None:
            self._waiter.leave()
            self._slot.resolve(reply)
            return
        self._waiter.missing += self._fetch.missing  # less what has come meanwhile
        if self._last or self._waiter.missing <= 0:
            self._attempt(self._last)


class IncrementalFetch(Fetch):
    """A fetch within a session: reads and tells only changes."""

    __slots__ = ("_epoch", "_session")

    def __init__(
        self,
        storage: Storage,
        request: FetchRequest,
        version: int,
        correlation_id: int,
        access: Access | None = None,
        *,
        session: FetchSession,
        charge: Charge | None = None,
    ) -> None:
        Fetch.__init__(self, storage, request, version, correlation_id, access, charge=charge)
        self._session = session
        self._epoch = session.epoch
        session.isolate(committed=self._committed)
        if access is not None:
            session.note_acls(access.version)

    def attempt(self, *, final: bool) -> Reply | None:
        session, topics, access = self._session, self._storage.topics, self._access
        if session.epoch != self._epoch:  # another request has continued the session
            return self._encode([], error_code=_STALE_EPOCH)
        total, urgent, missing = 0, final, 0
        news: list[tuple[Watched, FetchResult]] = []
        looked_at = list(islice(session.changed, CHANGES_MAX))
        if len(looked_at) < len(session.changed):
            urgent = True  # the next fetch tells of the others, and others are served before
        looked_at += islice(session.errors, CHANGES_MAX - len(looked_at))
        for watched in looked_at:
            partition = watched.partition
            error = watched.resolve(topics) if partition is None or partition.deleted else None
            if access is not None and watched.name is not None and not _may_read(access, watched.name):
                error = _DENIED
            if error is not None:
                missing += error != ErrorCode.INCONSISTENT_TOPIC_ID
                result = FetchResult(watched.asked.partition, error)
            else:
                result = self._read(watched.partition.log, watched.asked, total)  # type: ignore[union-attr]
                error = result.error_code or None  # type: ignore[assignment]
            if error is not None:
                known = watched.partition is not None and error is not _DENIED
                urgent = urgent or known or error == ErrorCode.INCONSISTENT_TOPIC_ID
                news.append((watched, result))
                continue
            if watched in session.errors:  # it can be read again, and what comes to it wakes this fetch
                session.note_change(watched)
            if result.records is not None:
                total += result.records.size  # type: ignore[union-attr]  # always a file range here
            elif (result[2], result[4]) == (watched.high_watermark, watched.log_start_offset):
                if not has_more(session, watched, result):
                    session.changed.pop(watched, None)
                continue
            news.append((watched, result))
        if total < self._min_bytes and not urgent and missing < len(session.partitions):
            self.missing = self._min_bytes - total
            return None
        answer = _by_topic(news)
        charge = self._charge
        if charge is not None and (held_up := self._held_up(charge, answer, session.id)) is not None:
            session.waiter = None
            return held_up
        for watched, result in news:
            note_answer(session, watched, result)
            if watched.partition is not None:
                size = 0 if result.records is None else result.records.size  # type: ignore[union-attr]
                watched.partition.topic.metrics.note_fetch(result.error_code, size)
        return self._encode(answer)

    def park(self, slot: Slot, timeout_s: float) -> None:
        """Wait for more; the answer goes into `slot`. The session's partitions wake the waiter."""
        self._session.waiter = waiter = self._wait(slot, timeout_s, [])
        slot.abandoned = lambda: self._abandon(waiter)

    def _abandon(self, waiter: Waiter) -> None:
        waiter.leave()
        if self._session.waiter is waiter:
            self._session.waiter = None

    def _encode(self, answer: Answer, *, error_code: int = 0) -> Reply:
        session = self._session
        if session.epoch == self._epoch:
            session.waiter = None
        return encode_fetch_response(
            self._correlation_id, self._version, answer, error_code=error_code, session_id=session.id
        )


def _by_topic(news: list[tuple[Watched, FetchResult]]) -> Answer:
    """Returns the results of an answer by topic."""
    by_topic: dict[TopicKey, list[FetchResult]] = {}
    for watched, result in news:
        results = by_topic.get(watched.key)
        if results is None:
            by_topic[watched.key] = [result]
        else:
            results.append(result)
    return list(by_topic.items())


def has_more(session: FetchSession, watched: Watched, result: FetchResult) -> bool:
    """Decides whether there are records from the requested offset on."""
    up_to = result.last_stable_offset if session.committed else result.high_watermark
    return watched.asked.fetch_offset < up_to


def note_answer(session: FetchSession, watched: Watched, result: FetchResult) -> None:
    """Remember what the client is told of a partition, and whether there will be more to tell.

    A partition whose records are sent goes behind those that still wait for their turn, one with an error behind the other errors.
    """
    session.errors.pop(watched, None)
    if result.error_code:
        watched.high_watermark = -1
        session.changed.pop(watched, None)
        session.errors[watched] = None
        return
    watched.high_watermark = result.high_watermark
    watched.log_start_offset = result.log_start_offset
    if not has_more(session, watched, result):
        session.changed.pop(watched, None)
    elif result.records is not None:
        session.changed.pop(watched, None)
        session.changed[watched] = None


def epoch_error(asked: int, current: int) -> ErrorCode | None:
    """Returns the error for a client's leader epoch, if it is wrong; -1 means that the client names none."""
    if asked < 0 or asked == current:
        return None
    return ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH
