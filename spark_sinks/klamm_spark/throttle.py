"""How much to send at once to a server that says when it is too much. Pure: times are passed in.

Additive increase, multiplicative decrease, as TCP does it. A 429 halves the number of requests under way; when that is one, the
documents of a request; and the pause before the next one doubles. What is accepted gives back a tenth of each. A writer
that waits takes no further rows from Spark, so the batch takes longer, and the next one begins later: that is how
the stream slows down. Nothing is given up because of a 429.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0
CALM: Final = 4
"""So many accepted requests in a row bring another one under way."""


@dataclass(slots=True)
class Throttle:
    """Of one worker process and one target; not safe for threads by itself."""

    most_documents: int
    most_in_flight: int
    documents: int = 0
    in_flight: int = 0
    pause_s: float = 0.0
    _calm: int = 0
    _changed_at: float = 0.0

    def __post_init__(self) -> None:
        self.documents = self.documents or self.most_documents
        self.in_flight = self.in_flight or self.most_in_flight

    @property
    def slowed(self) -> bool:
        return self.documents < self.most_documents or self.in_flight < self.most_in_flight

    def limit(self, most_documents: int, most_in_flight: int) -> None:
        """Other settings: what was learnt stays, within them."""
        self.documents = min(self.documents, most_documents)
        self.in_flight = min(self.in_flight, most_in_flight)
        self.most_documents, self.most_in_flight = most_documents, most_in_flight

    def refused(self, sent_at: float, now: float) -> None:
        """A 429 for a request of `sent_at`. Requests that were under way together are one reason to slow down."""
        self._calm = 0
        if sent_at < self._changed_at:
            return
        self._changed_at = now
        self.pause_s = min(max(self.pause_s * 2, FIRST_PAUSE_S), LONGEST_PAUSE_S)
        if self.in_flight > 1:
            self.in_flight //= 2
        else:
            self.documents = max(1, self.documents // 2)

    def accepted(self) -> None:
        """A request whose documents were all taken, or refused for good."""
        self.pause_s = 0.0
        if self.documents < self.most_documents:
            self.documents = min(self.most_documents, self.documents + max(1, self.most_documents // 10))
            return
        self._calm += 1
        if self._calm >= CALM and self.in_flight < self.most_in_flight:
            self.in_flight += 1
            self._calm = 0
