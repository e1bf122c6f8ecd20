"""Limits on requests to a server that answers 429 when it has too much to do. Pure: times are passed in.

Additive increase, multiplicative decrease, as TCP does it. A refusal halves the number of requests under way;
when that is 1, it halves the documents of a request. Accepted requests give back first the documents, then the
requests.
"""

from __future__ import annotations


class RequestLimits:
    """`documents` per request and `in_flight` requests at once, never above their maximum. Not safe for threads by itself."""

    def __init__(self, documents_max: int, in_flight_max: int) -> None:
        self.documents_max = self.documents = documents_max
        self.in_flight_max = self.in_flight = in_flight_max
        self.troubles = 0
        """Rounds in a row that met trouble."""
        self._troubled_at = float("-inf")
        self._calm = 0

    def met_trouble(self, sent_at: float, now: float) -> bool:
        """Notes that a request of `sent_at` met trouble; returns False if another request of its round has done so.

        Requests that were under way together are one reason to slow down.
        """
        if sent_at < self._troubled_at:
            return False
        self._troubled_at = now
        self.troubles += 1
        return True

    def shrink(self) -> None:
        """Halves the limit of requests under way; when it is one, halves the documents of a request.

        Accepted requests are counted from here again.
        """
        self._calm = 0
        if self.in_flight > 1:
            self.in_flight //= 2
        else:
            self.documents = max(1, self.documents // 2)

    def grow(self, *, after: int, documents: int) -> None:
        """Notes an accepted request. After every `after` of them without a cut, raises the limits.

        Adds `documents` to a request until their maximum is reached, then one request.
        """
        self.troubles = 0
        self._calm += 1
        if self._calm < after:
            return
        self._calm = 0
        if self.documents < self.documents_max:
            self.documents = min(self.documents_max, self.documents + documents)
        else:
            self.in_flight = min(self.in_flight_max, self.in_flight + 1)
