"""How many requests may be under way, how large, and when: what a busy or absent server makes of the limits. No I/O.

After a 429 the number of requests is halved, then their size; each request that got through lets them grow by
one (the size: by a quarter). One decision per round: answers to requests that were sent before the last cut say nothing new.
While the server is away one request at a time asks whether it is back.
"""

from __future__ import annotations

from typing import Final

PAUSE_MAX_S: Final = 10.0


class Window:
    """`in_flight` and `batch` are the limits now; nothing is sent before `hold_until` (the caller's clock, seconds)."""

    def __init__(self, in_flight: int, batch: int, backoff_s: float) -> None:
        self._in_flight_max = in_flight
        self._batch_max = batch
        self._backoff_s = backoff_s
        self.in_flight = in_flight
        self.batch = batch
        self.hold_until = 0.0
        self.away = False
        self._cut_at = float("-inf")
        self._troubles = 0  # one after another
        self._through = 0

    @property
    def allowed(self) -> int:
        """Requests that may be under way now."""
        return 1 if self.away else self.in_flight

    @property
    def troubled(self) -> bool:
        """The last round met a busy or absent server."""
        return self._troubles > 0

    def got_through(self) -> None:
        """A request was answered and took documents."""
        self._troubles = 0
        self.away = False
        self._through += 1
        if self._through >= self.in_flight:
            self._through = 0
            if self.batch < self._batch_max:
                self.batch = min(self._batch_max, self.batch + max(1, self.batch // 4))
            else:
                self.in_flight = min(self._in_flight_max, self.in_flight + 1)

    def refused(self, sent_at: float, now: float, jitter: float) -> None:
        """The server was too busy for a request, or for parts of it (429). `jitter` is between 0 and 1."""
        self.away = False
        if sent_at < self._cut_at:
            return
        self._cut_at = now
        self._through = 0
        if self.in_flight > 1:
            self.in_flight //= 2
        else:
            self.batch = max(1, self.batch // 2)
        self._hold(now, jitter)

    def unreachable(self, sent_at: float, now: float, jitter: float) -> None:
        """No answer, or one that says that the cluster is not there at the moment."""
        first = not self.away
        self.away = True
        if first or sent_at >= self._cut_at:
            self._cut_at = now
            self._hold(now, jitter)

    def _hold(self, now: float, jitter: float) -> None:
        pause = min(PAUSE_MAX_S, self._backoff_s * 2.0 ** min(self._troubles, 20))
        self._troubles += 1
        self.hold_until = now + pause * (0.5 + jitter / 2)
