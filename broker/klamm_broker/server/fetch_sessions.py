"""Fetch sessions (KIP-227): the broker remembers what a client reads, so that both sides name only changes.

A `Watched` partition stands in the partition's `waiters` for as long as its session lives. An append, a new log start,
a deletion, or a request that names the partition notes it in the session's `changed`. A partition outside `changed` has
nothing to tell: its reader is at the end and knows high watermark and log start. Therefore an incremental fetch costs
what has changed, not what is subscribed. A partition with an error is told each time, as in Kafka, and is in `errors` once it
was told: it is no reason not to wait. `FetchSessions` is the cache, with Kafka's rule of eviction. No I/O and no
clock: time is passed in. Event loop's thread only.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.server.topics import Partition, TopicTable
    from klamm_broker.server.waiting import Waiter
    from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest

EVICTION_MS: Final = 120_000
"""A session that is unused for so long makes room for any other session; one that is so old, for a larger one."""
PARTITIONS_MAX: Final = 250_000
"""Partitions in all sessions: each takes half a kilobyte. Beyond the limit fetches are served without a session."""
INITIAL_EPOCH: Final = 0
FULL_EPOCHS: Final = frozenset({INITIAL_EPOCH, -1})
"""Epochs of full fetches. The first begins a session; -1 wants none and ends the session that it names."""
_EPOCH_MAX: Final = (1 << 31) - 1
_ID_MAX: Final = (1 << 31) - 1

TopicKey = str | bytes


def next_epoch(epoch: int) -> int:
    """Returns the epoch that a session's next request must carry."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


class Watched:
    """A partition of a session, with the last request for it and the last answer.

    `key` is the topic's id or, before version 13, its name. `name` is the topic that had the id when it was first found:
    a later namesake is recognized by it (INCONSISTENT_TOPIC_ID).
    """

    __slots__ = ("asked", "high_watermark", "key", "log_start_offset", "name", "partition", "session")

    def __init__(self, session: FetchSession, key: TopicKey, asked: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.asked = asked
        self.name = key if isinstance(key, str) else None
        self.partition: Partition | None = None
        self.high_watermark = -1
        self.log_start_offset = -1

    def resolve(self, topics: TopicTable) -> ErrorCode | None:
        """Find the partition and watch it. Returns the error if it cannot be read."""
        if self.partition is not None:
            if not self.partition.deleted:
                return None
            self.leave()
        if self.name is None:
            found = topics.by_id.get(self.key)  # type: ignore[arg-type]  # without a name it is an id
            if found is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            self.name = found.name
        topic = topics.by_name.get(self.name)
        index = self.asked.partition
        if topic is None or not 0 <= index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if isinstance(self.key, bytes) and topic.id != self.key:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        self.partition = topic.partitions[index]
        if not self.session.closed:  # nobody would take it out again
            self.partition.waiters[self] = None
        return None

    def leave(self) -> None:
        """Stop watching."""
        if self.partition is not None:
            self.partition.waiters.pop(self, None)
            self.partition = None

    # Events of the partition (`topics.Watcher`)

    def advanced(self, size: int) -> None:
        session = self.session
        if session.errors and self in session.errors:
            return  # the next fetch looks at it anyway
        session.changed[self] = None
        waiter = session.waiter
        if waiter is not None:
            waiter.advanced(size)

    def gone(self) -> None:
        self.session.note_change(self)
        if self.session.waiter is not None:
            self.session.waiter.finish()


class FetchSession:
    """One client's session.

    `changed` are the partitions that may have something to tell, `errors` those with an error that was told, each with the
    longest waiting first. No partition is in both.
    """

    __slots__ = (
        "acl_version", "changed", "closed", "committed", "counted", "created_ms", "epoch", "errors", "evictable", "id",
        "last_used_ms", "partitions", "uses_ids", "waiter",
    )  # fmt: skip

    def __init__(self, session_id: int, *, uses_ids: bool, committed: bool, now_ms: int) -> None:
        self.id = session_id
        self.uses_ids = uses_ids
        self.committed = committed
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[tuple[TopicKey, int], Watched] = {}
        self.changed: dict[Watched, None] = {}
        self.errors: dict[Watched, None] = {}
        self.counted = 0  # its partitions when it was used last
        self.evictable = False
        self.closed = False
        self.waiter: Waiter | None = None  # the fetch that is parked
        self.acl_version = 0

    def add(self, key: TopicKey, asked: FetchPartition) -> Watched:
        """Add a partition, or replace what is asked of it."""
        where = (key, asked.partition)
        watched = self.partitions.get(where)
        if watched is None:
            watched = self.partitions[where] = Watched(self, key, asked)
        else:
            watched.asked = asked
        self.note_change(watched)
        return watched

    def note_change(self, watched: Watched) -> None:
        """Note that a partition may have something to tell that is new."""
        self.errors.pop(watched, None)
        self.changed[watched] = None

    def forget(self, key: TopicKey, index: int) -> None:
        watched = self.partitions.pop((key, index), None)
        if watched is not None:
            self.changed.pop(watched, None)
            self.errors.pop(watched, None)
            watched.leave()

    def note_acls(self, version: int) -> None:
        """Take note of the version of the ACLs. If it is a new one, every partition may have something to tell."""
        if version != self.acl_version:
            self.acl_version = version
            self._note_all()

    def isolate(self, *, committed: bool) -> None:
        """Read with this isolation. If it is a new one, every partition may have something to tell."""
        if committed != self.committed:
            self.committed = committed
            self._note_all()

    def _note_all(self) -> None:
        self.errors.clear()
        self.changed |= dict.fromkeys(self.partitions.values())

    def close(self) -> None:
        """Stop watching. A parked fetch is answered soon, as nothing would wake it any more."""
        self.closed = True
        for watched in self.partitions.values():
            watched.leave()
        if self.waiter is not None:
            self.waiter.finish_soon()


class FetchSessions:
    """The sessions of all clients: at most `slots`, with at most `partitions_max` partitions in all."""

    def __init__(self, slots: int, *, partitions_max: int = PARTITIONS_MAX) -> None:
        self.slots = slots
        self.partitions_max = partitions_max
        self.partitions = 0
        self.evictions = 0
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, size: int, *, uses_ids: bool, committed: bool, now_ms: int) -> FetchSession | None:
        """Returns a session for a full fetch of `size` partitions, or None when there is no room.

        The caller adds the partitions, then calls `touch`.
        """
        if self.partitions + size > self.partitions_max:
            return None
        if len(self._sessions) >= self.slots and not self._evict(size, now_ms):
            return None
        session_id = random.randint(1, _ID_MAX)
        while session_id in self._sessions:
            session_id = random.randint(1, _ID_MAX)
        session = FetchSession(session_id, uses_ids=uses_ids, committed=committed, now_ms=now_ms)
        self._sessions[session_id] = session
        return session

    def advance(
        self, request: FetchRequest, *, uses_ids: bool, now_ms: int
    ) -> FetchSession | ErrorCode | None:
        """Returns the session of an incremental fetch, changed as the fetch asks; None when no partition is left in it.

        Returns an error code if there is no such session: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session_id, epoch = request.session_id, request.session_epoch
        session = self._sessions.get(session_id)
        if session is not None and session.waiter is not None and session.epoch == epoch:
            # The waiter belongs to the request before this one, whose answer is due first. That answer may let another
            # connection go on, which may change everything here.
            session.waiter.finish()
            session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        for topic in request.topics:
            key: TopicKey = topic.topic_id if uses_ids else topic.topic
            for partition in topic.partitions:
                session.add(key, partition)
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                session.forget(gone.topic_id if uses_ids else gone.topic, index)
        if not session.partitions:
            self.remove(session_id)
            return None
        self.touch(session, now_ms)
        if self.partitions > self.partitions_max:
            self.remove(session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.epoch = next_epoch(epoch)
        return session

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Note that the session is used now."""
        size = len(session.partitions)
        self.partitions += size - session.counted
        session.counted = size
        session.last_used_ms = now_ms
        session.evictable = now_ms - session.created_ms > EVICTION_MS
        del self._sessions[session.id]
        self._sessions[session.id] = session

    def remove(self, session_id: int) -> None:
        """Close a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= session.counted
            session.close()

    def note_log_starts(self) -> None:
        """Note changed log starts after retention, so that readers learn them."""
        for session in self._sessions.values():
            for watched in session.partitions.values():
                partition = watched.partition
                if partition is None or watched in session.errors:
                    continue
                if partition.log.log_start_offset != watched.log_start_offset:
                    session.changed[watched] = None

    def _evict(self, size: int, now_ms: int) -> bool:
        """Make room for a session of `size` partitions: remove a stale session, or one that is old and smaller."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            victim = oldest
        else:
            candidates = [session for session in self._sessions.values() if session.evictable]
            if not candidates:
                return False
            victim = min(candidates, key=lambda session: (session.counted, session.id))
            if victim.counted >= size:
                return False
        self.remove(victim.id)
        self.evictions += 1
        return True
