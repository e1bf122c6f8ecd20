"""Share sessions: the partitions that a member of a share group reads, so that both sides name only changes.

Pure. A session's epoch rises with each request; a request with another epoch is refused, as it was lost or sent twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

from klamm_kafka.wire.errors import ErrorCode

PARTITIONS_MAX: Final = 250_000
"""Partitions in all sessions, as many as in those of Fetch. Beyond it a request that brings more is refused."""
CONNECTION_SHARE: Final = 10
"""A connection may have this part of all sessions. Clients have one for each consumer; at Kafka's broker one could have all."""
OPEN_EPOCH: Final = 0
CLOSE_EPOCH: Final = -1
_EPOCH_MAX: Final = (1 << 31) - 1

At = tuple[bytes, int]
"""Topic id and partition."""
Owner = tuple[str, str]
"""Group and member."""


class ShareSession:
    """One member's session. `partitions` are in the order of their turns: the one that was served last is the last.

    `news` are partitions that the next answer must name, even if it has no records of them.
    `held` are those of which the member has got records: only these have something to give back.
    """

    __slots__ = ("connection", "epoch", "held", "news", "owner", "partitions")

    def __init__(self, owner: Owner, connection: Hashable) -> None:
        self.owner = owner
        self.connection = connection
        self.epoch = 1
        self.partitions: dict[At, None] = {}
        self.news: set[At] = set()
        self.held: set[At] = set()

    def note_served(self, at: At) -> None:
        """Let a partition whose records were delivered wait for its next turn behind the others."""
        if at in self.partitions:
            del self.partitions[at]
            self.partitions[at] = None


class ShareSessions:
    """The sessions of all members. `connection` is what a member's connection is known by."""

    def __init__(self) -> None:
        self._sessions: dict[Owner, ShareSession] = {}
        self._of_connection: dict[Hashable, dict[Owner, ShareSession]] = {}
        self._of_group: Counter[str] = Counter()
        self.evictions = 0
        self.partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def has_members(self, group_id: str) -> bool:
        return self._of_group[group_id] > 0

    def get(self, owner: Owner) -> ShareSession | None:
        return self._sessions.get(owner)

    def open(self, owner: Owner, count: int, connection: Hashable, limit: int) -> ShareSession | ErrorCode:
        """Begin a session, in place of the member's last one; `count` partitions are about to be added.

        Returns SHARE_SESSION_LIMIT_REACHED when there are too many sessions, or partitions in them. The last one then goes on.
        """
        before = self._sessions.get(owner)
        own = self._of_connection.get(connection, {})
        partitions = self.partitions - (0 if before is None else len(before.partitions))
        if (
            len(own) - (owner in own) >= max(1, limit // CONNECTION_SHARE)
            or len(self._sessions) - (before is not None) >= limit
            or partitions + count > PARTITIONS_MAX
        ):
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        self.close(owner)
        session = self._sessions[owner] = ShareSession(owner, connection)
        self._of_connection.setdefault(connection, {})[owner] = session
        self._of_group[owner[0]] += 1
        if before is not None:
            session.held = before.held
        return session

    def advance(self, owner: Owner, epoch: int, count: int = 0) -> ShareSession | ErrorCode:
        """Returns the session for its next request; `count` partitions are about to be added. Returns an error if it is another one."""
        session = self._sessions.get(owner)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        if count and self.partitions + count > PARTITIONS_MAX:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def add(self, session: ShareSession, at: At, *, told: bool) -> None:
        """Let a session read a partition; unless it is `told`, the next answer must name it."""
        if at in session.partitions or self._sessions.get(session.owner) is not session:
            return
        session.partitions[at] = None
        self.partitions += 1
        if not told:
            session.news.add(at)

    def remove(self, session: ShareSession, at: At) -> None:
        """Let a session forget a partition."""
        if at in session.partitions and self._sessions.get(session.owner) is session:
            del session.partitions[at]
            self.partitions -= 1
            session.news.discard(at)

    def close(self, owner: Owner) -> ShareSession | None:
        """End a session. Returns it, if there was one."""
        session = self._sessions.pop(owner, None)
        if session is not None:
            self.partitions -= len(session.partitions)
            self._of_group[owner[0]] -= 1
            if not self._of_group[owner[0]]:
                del self._of_group[owner[0]]
            own = self._of_connection[session.connection]
            del own[owner]
            if not own:
                del self._of_connection[session.connection]
        return session

    def of_connection(self, connection: Hashable) -> list[ShareSession]:
        return list(self._of_connection.get(connection, {}).values())
