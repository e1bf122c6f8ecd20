"""Counts requests for the metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from klamm_base.metrics_text import Family, Sample


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

    def families(self, name: str) -> Iterator[Family]:
        """Yields `NAME_requests_total` and `NAME_request_seconds_total`."""
        counts = sorted(self.counts.items())
        yield Family(
            f"{name}_requests_total",
            "counter",
            "REST requests by method, path and status.",
            [Sample({"method": m, "path": path, "status": s}, count) for (m, path, s), count in counts],
        )
        yield Family(
            f"{name}_request_seconds_total",
            "counter",
            "Seconds that they took; streams do not count.",
            [Sample({"method": m, "path": path}, sum_s) for (m, path), sum_s in sorted(self.seconds.items())],
        )
