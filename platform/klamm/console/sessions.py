"""Sessions of browsers: who is logged in, the token that each change must carry, and what to tell on the next page. Pure.

Everybody gets a session, also without logins: its id is a random number that only its cookie knows. The token against
foreign pages is derived from it with a key of this process. Times are passed in, in seconds.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

SESSIONS_MAX: Final = 10_000
"""The oldest sessions go first: a program without cookies makes a session with each request."""
NOTES_MAX: Final = 20


@dataclass(slots=True, kw_only=True)
class Session:
    """A browser's session. `authorization`: the header that found the user, asked again with each request."""

    id: str
    seen_s: float
    user: str | None = None
    authorization: str | None = field(default=None, repr=False)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def note(self, kind: str, text: str) -> None:
        """Keeps a sentence for the next page: `good` or `bad`."""
        self.notes = [*self.notes[-NOTES_MAX + 1 :], (kind, text)]

    def take_notes(self) -> list[tuple[str, str]]:
        """Returns the sentences once."""
        taken, self.notes = self.notes, []
        return taken


class Sessions:
    """The sessions of a console."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._key = secrets.token_bytes(32)
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, id: str | None, now_s: float) -> Session | None:
        """Returns the session of a cookie; None for an unknown one, and for one that has ended."""
        found = self._sessions.get(id or "")
        if found is None:
            return None
        if now_s - found.seen_s > self._idle_s:
            del self._sessions[found.id]
            return None
        found.seen_s = now_s
        self._sessions.move_to_end(found.id)
        return found

    def begin(self, now_s: float) -> Session:
        """Makes a session for a browser without one."""
        while len(self._sessions) >= SESSIONS_MAX:
            self._sessions.popitem(last=False)
        made = Session(id=secrets.token_urlsafe(32), seen_s=now_s)
        self._sessions[made.id] = made
        return made

    def log_in(self, old: Session, user: str, authorization: str, now_s: float) -> Session:
        """Returns a new session for a user: an id that somebody knew before the login is worth nothing after it."""
        self.end(old)
        made = self.begin(now_s)
        made.user, made.authorization = user, authorization
        return made

    def end(self, session: Session) -> None:
        """Forgets a session."""
        self._sessions.pop(session.id, None)

    def token(self, session: Session) -> str:
        """Returns the token that each change of this session must carry."""
        return hmac.new(self._key, session.id.encode(), hashlib.sha256).hexdigest()

    def right(self, session: Session, token: str) -> bool:
        """Tells whether a token is this session's."""
        return hmac.compare_digest(self.token(session).encode(), token.encode())
