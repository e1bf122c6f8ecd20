"""Sessions of browsers: who is logged in, the token that each change must carry, and what to tell on the next page. Pure.

Everybody who sees a page gets a session, also without logins: its id is a random number that only its cookie knows. The token
against foreign pages is derived from it with a key of this process. Times are passed in, in seconds.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

SESSIONS_MAX: Final = 10_000
"""Sessions without a login, and sessions with one: of each the oldest go first. A program without cookies makes one of the former
with each page, and must not push out who is logged in."""
NOTES_MAX: Final = 20


@dataclass(slots=True, kw_only=True)
class Session:
    """A browser's session, since `began_s`. `authorization`: the header that found the user, asked again with each request."""

    id: str
    began_s: float
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
    """The sessions of a console. A login ends after `idle_s` without a request, and `most_s` after it began, whatever happens."""

    def __init__(self, idle_s: float, most_s: float) -> None:
        self._idle_s = idle_s
        self._most_s = most_s
        self._key = secrets.token_bytes(32)
        self._anonymous: OrderedDict[str, Session] = OrderedDict()
        self._logged_in: OrderedDict[str, Session] = OrderedDict()

    @property
    def anonymous(self) -> int:
        """The number of sessions without a login."""
        return len(self._anonymous)

    @property
    def logged_in(self) -> int:
        """The number of sessions with one; those that have ended and were not asked for since count, too."""
        return len(self._logged_in)

    def find(self, id: str | None, now_s: float) -> Session | None:
        """Returns the session of a cookie, which is in use; None for an unknown one, and for one that has ended."""
        found = self._anonymous.get(id or "") or self._logged_in.get(id or "")
        if found is None or not self.lives(found, now_s):
            return None
        found.seen_s = now_s
        self._kind(found).move_to_end(found.id)
        return found

    def lives(self, session: Session, now_s: float) -> bool:
        """Tells whether a session has not ended; one that is too old ends here."""
        if session.id not in self._kind(session):
            return False
        too_old = now_s - session.seen_s > self._idle_s or now_s - session.began_s > self._most_s
        if session.user is not None and too_old:
            self.end(session)
            return False
        return True

    def make(self, now_s: float) -> Session:
        """Makes a session for a browser without one. It is forgotten unless it is kept."""
        return Session(id=secrets.token_urlsafe(32), began_s=now_s, seen_s=now_s)

    def keep(self, session: Session) -> None:
        """Remembers a session."""
        kept = self._kind(session)
        while len(kept) >= SESSIONS_MAX:
            kept.popitem(last=False)
        kept[session.id] = session

    def log_in(self, old: Session, user: str, authorization: str, now_s: float) -> Session:
        """Returns a new session for a user: an id that somebody knew before the login is worth nothing after it."""
        self.end(old)
        made = self.make(now_s)
        made.user, made.authorization = user, authorization
        self.keep(made)
        return made

    def end(self, session: Session) -> None:
        """Forgets a session."""
        self._kind(session).pop(session.id, None)

    def _kind(self, session: Session) -> OrderedDict[str, Session]:
        return self._anonymous if session.user is None else self._logged_in

    def token(self, session: Session) -> str:
        """Returns the token that each change of this session must carry."""
        return hmac.new(self._key, session.id.encode(), hashlib.sha256).hexdigest()

    def right(self, session: Session, token: str) -> bool:
        """Tells whether a token is this session's."""
        return hmac.compare_digest(self.token(session).encode(), token.encode())
