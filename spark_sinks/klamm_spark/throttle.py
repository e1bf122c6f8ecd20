"""Limits on requests to Elasticsearch when it answers 429. Pure: times are passed in.

`klamm_base.request_limits` says how the limits shrink and grow: here by a tenth of the largest request with each accepted
request, then by a request after `CALM` of them. The pause before the next request doubles with each refusal. A writer
that waits takes no further rows from Spark, so the batch takes longer, and the next one begins later: that is how
the stream slows down. Nothing is given up because of a 429.
"""

from __future__ import annotations

from typing import Final

from klamm_base.backoff import pause
from klamm_base.request_limits import RequestLimits

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0
CALM: Final = 4
"""This many accepted requests in a row allow another request under way."""


class Throttle(RequestLimits):
    """The limits of one worker process for one target."""

    @property
    def pause_s(self) -> float:
        """The pause before the next request."""
        return pause(self.troubles, first=FIRST_PAUSE_S, longest=LONGEST_PAUSE_S) if self.troubles else 0.0

    @property
    def slowed(self) -> bool:
        """True while something is held back."""
        return self.documents < self.documents_max or self.in_flight < self.in_flight_max

    def limit(self, documents_max: int, in_flight_max: int) -> None:
        """Takes other settings. The learnt limits stay, within them."""
        self.documents = min(self.documents, documents_max)
        self.in_flight = min(self.in_flight, in_flight_max)
        self.documents_max, self.in_flight_max = documents_max, in_flight_max

    def refused(self, sent_at: float, now: float) -> None:
        """Notes a 429 for a request of `sent_at`."""
        if self.met_trouble(sent_at, now):
            self.shrink()

    def accepted(self) -> None:
        """Notes a request whose documents were all taken, or refused for good."""
        whole = self.documents == self.documents_max
        self.grow(after=CALM if whole else 1, documents=max(1, self.documents_max // 10))
