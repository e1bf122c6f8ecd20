"""Limits for the number, size and time of requests, adapted to a busy or absent server. No I/O.

`klamm_base.request_limits` decides how the limits shrink and grow. Here they grow by a quarter of a request's size, or by
one request, after as many accepted requests as may be under way. While the server is away, one request at a time asks whether it is back.
"""

from __future__ import annotations

from typing import Final

from klamm_base.backoff import pause
from klamm_base.request_limits import RequestLimits

PAUSE_MAX_S: Final = 10.0
_JITTER: Final = 0.5


class Window(RequestLimits):
    """The present limits. Nothing is sent before `hold_until` (the caller's clock, seconds)."""

    def __init__(self, in_flight: int, documents: int, backoff_s: float) -> None:
        super().__init__(documents, in_flight)
        self._backoff_s = backoff_s
        self.hold_until = 0.0
        self.away = False

    @property
    def allowed(self) -> int:
        """The number of requests that may be under way now."""
        return 1 if self.away else self.in_flight

    @property
    def troubled(self) -> bool:
        """True when the last round met a busy or absent server."""
        return self.troubles > 0

    def got_through(self) -> None:
        """Notes a request that was answered and whose documents were accepted."""
        self.away = False
        self.grow(after=self.in_flight, documents=max(1, self.documents // 4))

    def refused(self, sent_at: float, now: float, chance: float) -> None:
        """Notes that the server was too busy for a request, or for parts of it (429). `chance` is between 0 and 1."""
        self.away = False
        if self.met_trouble(sent_at, now):
            self.shrink()
            self._hold(now, chance)

    def unreachable(self, sent_at: float, now: float, chance: float) -> None:
        """Notes a missing answer, or an answer which says that the cluster is unavailable at the moment."""
        first = not self.away
        self.away = True
        if self.met_trouble(now if first else sent_at, now):
            self._hold(now, chance)

    def _hold(self, now: float, chance: float) -> None:
        self.hold_until = now + pause(
            self.troubles, first=self._backoff_s, longest=PAUSE_MAX_S, jitter=_JITTER, chance=chance
        )
