"""The broker's counters: plain integers on plain objects, read when somebody asks for the metrics.

There is no lock, no registry and no client library: a request costs one histogram lookup, a produced or fetched
partition a few additions. `metrics_families` makes Prometheus families of them. Event loop's thread only.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from typing import Final

from klamm_kafka.wire.api_keys import ApiKey

LATENCY_BUCKETS_S: Final = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds in seconds. A small request takes 20 µs here, a long poll half a second."""
_FIRST_BUCKET_S: Final = LATENCY_BUCKETS_S[0]


class Histogram:
    """Durations in seconds, counted by `LATENCY_BUCKETS_S`; the last count holds those above all bounds."""

    __slots__ = ("counts", "maximum", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BUCKETS_S) + 1)
        self.total = 0.0
        self.maximum = 0.0

    def observe(self, seconds: float) -> None:
        if seconds <= _FIRST_BUCKET_S:  # most of them: half the time
            self.counts[0] += 1
        else:
            self.counts[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1
        self.total += seconds
        if seconds > self.maximum:  # noqa: PLR1730 - for every request: a call costs three times this
            self.maximum = seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, q: float) -> float:
        """Returns the seconds below which the share `q` of the durations lies, interpolated inside its bucket; 0.0 without any."""
        wanted = q * self.count
        if wanted == 0:
            return 0.0
        below, lower = 0, 0.0
        for bound, count in zip((*LATENCY_BUCKETS_S, self.maximum), self.counts, strict=True):
            upper = min(bound, self.maximum)
            if count and below + count >= wanted:
                return lower + (upper - lower) * (wanted - below) / count
            below, lower = below + count, upper
        return self.maximum


class ApiMetrics:
    """The counters of one API: `requests` by version, `errors` by top-level error code, `latency` from last byte to answer.

    A request that wants no answer (Produce with acks=0) counts without a latency.
    """

    __slots__ = ("errors", "latency", "name", "requests")

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: defaultdict[int, int] = defaultdict(int)
        self.errors: dict[int, int] = {}
        self.latency = Histogram()


class TopicMetrics:
    """The counters of one topic since it is served: bytes and records in and out, requests and failures by partition."""

    __slots__ = (
        "bytes_in", "bytes_out", "failed_fetches", "failed_produces", "fetches", "messages_in", "produces",
    )  # fmt: skip

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.messages_in = 0
        self.produces = self.fetches = 0
        self.failed_produces = self.failed_fetches = 0

    def note_fetch(self, error_code: int, size: int) -> None:
        """Count one partition of an answered fetch: its error, or the bytes that it sends."""
        self.fetches += 1
        self.bytes_out += size
        if error_code:
            self.failed_fetches += 1

    def add(self, other: TopicMetrics) -> None:
        """Take over the counts of a deleted topic, so that totals never decrease."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class ApiTable(dict[int, ApiMetrics]):
    """`ApiMetrics` by API key, each made at its first request. Later lookups need no call."""

    def __missing__(self, key: int) -> ApiMetrics:
        made = self[key] = ApiMetrics(api_name(key))
        return made


class RequestMetrics:
    """`ApiMetrics` by key, and the counters of connections and logins."""

    __slots__ = (
        "apis",
        "connections_closed",
        "connections_made",
        "connections_refused",
        "handshakes",
        "handshakes_failed",
        "logins",
        "logins_failed",
    )

    def __init__(self) -> None:
        self.apis = ApiTable()
        self.connections_made = self.connections_closed = self.connections_refused = 0
        self.handshakes = self.handshakes_failed = 0
        self.logins = self.logins_failed = 0


class IdleMeter:
    """Measures the share of time in which the process used no CPU, between two questions."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def share(self) -> float:
        """Returns the idle share, 0 to 1, since the last call."""
        wall, cpu = time.monotonic(), time.process_time()
        passed, used = wall - self._wall, cpu - self._cpu
        self._wall, self._cpu = wall, cpu
        return max(0.0, min(1.0, 1 - used / passed)) if passed > 0 else 1.0


def api_name(key: int) -> str:
    """Returns an API's name in Kafka's metrics: `FindCoordinator`."""
    return "".join(part.capitalize() for part in ApiKey(key).name.split("_"))
