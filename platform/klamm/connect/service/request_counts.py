"""Counts REST requests for the metrics."""

from __future__ import annotations

from collections import Counter, defaultdict


class RequestCounts:
    """Requests by method, path (as in the table of endpoints) and status, and seconds by method and path."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)

    def note(self, method: str, path: str, status: int, seconds: float | None) -> None:
        """Counts a request; `seconds` is None for an answer without end."""
        self.counts[method, path, status] += 1
        if seconds is not None:
            self.seconds[method, path] += seconds
