"""Share sessions: the partitions that a member of a share group reads, so that both sides name only changes.

Pure. A session's epoch rises with each request; a request with another epoch is refused, as it was lost or sent twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from klamm_kafka.wire.errors import ErrorCode

OPEN_EPOCH: Final = 0
CLOSE_EPOCH: Final = -1
_EPOCH_MAX: Final = (1 << 31) - 1

At = tuple[bytes, int]
"""Topic id and partition."""
Owner = tuple[str, str]
"""Group and member."""


class ShareSession:
    """One member's session. `news` are partitions that the next answer must name, even if it has no records of them."""

    __slots__ = ("connection", "epoch", "news", "owner", "partitions")

    def __init__(self, owner: Owner, connection: Hashable) -> None:
        self.owner = owner
        self.connection = connection
        self.epoch = 1
        self.partitions: dict[At, None] = {}
        self.news: set[At] = set()


class ShareSessions:
    """The sessions of all members. `connection` is what a member's connection is known by."""

    def __init__(self) -> None:
        self._sessions: dict[Owner, ShareSession] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def has_members(self, group_id: str) -> bool:
        return any(owner[0] == group_id for owner in self._sessions)

    def get(self, owner: Owner) -> ShareSession | None:
        return self._sessions.get(owner)

    def open(
        self, owner: Owner, partitions: Iterable[At], connection: Hashable, limit: int
    ) -> ShareSession | ErrorCode:
        """Begin a session, in place of the member's last one. Returns SHARE_SESSION_LIMIT_REACHED when there are too many."""
        self._sessions.pop(owner, None)
        if len(self._sessions) >= limit:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = self._sessions[owner] = ShareSession(owner, connection)
        session.partitions = dict.fromkeys(partitions)
        return session

    def advance(
        self, owner: Owner, epoch: int, added: Iterable[At] = (), forgotten: Iterable[At] = ()
    ) -> ShareSession | ErrorCode:
        """Returns the session for its next request, changed as that asks. Returns an error if it is another one."""
        session = self._sessions.get(owner)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        for at in added:
            if at not in session.partitions:
                session.partitions[at] = None
                session.news.add(at)
        for at in forgotten:
            session.partitions.pop(at, None)
            session.news.discard(at)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def close(self, owner: Owner) -> ShareSession | None:
        """End a session. Returns it, if there was one."""
        return self._sessions.pop(owner, None)

    def of_connection(self, connection: Hashable) -> list[ShareSession]:
        return [s for s in self._sessions.values() if s.connection == connection]


def rotated(partitions: Iterable[At], epoch: int) -> list[At]:
    """Returns the partitions, beginning with another one for each request, so that none is always last."""
    found = list(partitions)
    at = epoch % len(found) if found and epoch > 0 else 0
    return found[at:] + found[:at]
