"""Limits on requests and bytes by time, under Confluent's names: pure, but for the clock that is handed in.

A bucket works as Guava's RateLimiter does, which Confluent's proxy uses: permits of a second are kept, and a request may take more than there are; those after
it wait for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm.restproxy.costs import COSTS, check_costs, cost_of, parse_costs
from klamm.restproxy.errors import ProxyError
from klamm_base.configdef import ConfigDef, Importance, Type, between

PRODUCE: Final = "api.v3.produce.rate.limit."
ALL: Final = "rate.limit."
EXCEEDED: Final = "Request rate limit exceeded"
_KEEPS_S: Final = 1.0

# Confluent's codes: which of the limits it was
REQUESTS_GLOBAL, REQUESTS, BYTES_GLOBAL, BYTES = 429001, 429002, 429003, 429004
PERMITS_GLOBAL, PERMITS = 429005, 429006


class Bucket:
    """Permits that come at a rate."""

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self._free_s = 0.0
        """The time from which on the next one may take some."""
        self._kept = per_s * _KEEPS_S

    def wait_s(self, now_s: float) -> float:
        """Return the time until permits may be taken."""
        return max(0.0, self._free_s - now_s)

    def take(self, cost: float, now_s: float) -> None:
        """Take permits, which may have to wait (`wait_s`)."""
        if now_s > self._free_s:
            self._kept = min(self.per_s * _KEEPS_S, self._kept + (now_s - self._free_s) * self.per_s)
            self._free_s = now_s
        used = min(cost, self._kept)
        self._kept -= used
        self._free_s += (cost - used) / self.per_s


class RateLimits:
    """The limits of a proxy. It stands before one cluster, so limits of a cluster and of all of them count the same."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.refused = 0
        self._timeout_s = values[f"{ALL}timeout.ms"] / 1000
        self.cost = cost_of(parse_costs(values[COSTS]), values[f"{ALL}default.cost"])
        self._produce: list[tuple[Bucket, bool, int]] = []
        self._requests: list[tuple[Bucket, int]] = []
        if values[f"{PRODUCE}enabled"]:
            for name, of_bytes, code in (
                ("max.requests.global.per.sec", False, REQUESTS_GLOBAL),
                ("max.requests.per.sec", False, REQUESTS),
                ("max.bytes.global.per.sec", True, BYTES_GLOBAL),
                ("max.bytes.per.sec", True, BYTES),
            ):
                self._produce.append((Bucket(values[f"{PRODUCE}{name}"]), of_bytes, code))
        if values[f"{ALL}enable"]:
            self._requests = [
                (Bucket(values[f"{ALL}permits.per.sec"]), PERMITS_GLOBAL),
                (Bucket(values[f"{ALL}per.cluster.permits.per.sec"]), PERMITS),
            ]

    def produce(self, size: int, now_s: float) -> None:
        """Count a record of v3 with so many bytes. Raises ProxyError 429 where there are too many; then it does not count."""
        for bucket, _, code in self._produce:
            self._check(bucket, code, now_s, 0.0)
        for bucket, of_bytes, _ in self._produce:
            bucket.take(size if of_bytes else 1, now_s)

    def request(self, now_s: float, *, of_cluster: bool, cost: int = 1) -> float:
        """Count a request, and return the time that it has to wait; one without cost never waits. Raises ProxyError 429 where that is too long."""
        if not cost:
            return 0.0
        held = self._requests if of_cluster else self._requests[:1]
        waits = [self._check(bucket, code, now_s, self._timeout_s) for bucket, code in held]
        for bucket, _ in held:
            bucket.take(cost, now_s)
        return max(waits, default=0.0)

    def _check(self, bucket: Bucket, code: int, now_s: float, timeout_s: float) -> float:
        wait_s = bucket.wait_s(now_s)
        if wait_s > timeout_s:
            self.refused += 1
            raise ProxyError(code, EXCEEDED, retry_s=max(1, round(wait_s + 0.5)))
        return wait_s


def define(d: ConfigDef) -> None:
    """Define the settings."""
    of_produce = (
        ("max.requests.per.sec", 10_000, "The most records of v3 a second; more are answered 429."),
        ("max.requests.global.per.sec", 10_000, "The same for all clusters: a proxy has one."),
        (
            "max.bytes.per.sec",
            10_000_000,
            "The most bytes of keys and values of v3 a second; more are answered 429.",
        ),
        ("max.bytes.global.per.sec", 10_000_000, "The same for all clusters: a proxy has one."),
    )
    d.define(
        f"{PRODUCE}enabled", Type.BOOLEAN, False, importance=Importance.LOW,
        documentation=f"Whether the other limits of {PRODUCE} hold.",
    )  # fmt: skip
    for name, default, text in of_produce:
        d.define(
            f"{PRODUCE}{name}",
            Type.LONG,
            default,
            validator=between(1),
            importance=Importance.LOW,
            documentation=text,
        )
    d.define(
        f"{ALL}enable", Type.BOOLEAN, False, importance=Importance.LOW,
        documentation="Whether requests of v2 and v3 are limited; a request that has to wait longer than rate.limit.timeout.ms is answered 429.",
    )  # fmt: skip
    d.define(
        COSTS, Type.STRING, "", validator=check_costs, importance=Importance.LOW,
        documentation="The permits of some requests: NAME=COST, separated by commas, as api.v3.clusters.*=1,api.v3.brokers.list=2; 0: no limit.",
    )  # fmt: skip
    for name, default, low, text in (
        ("permits.per.sec", 50, 1, "The permits of a second for all requests."),
        ("per.cluster.permits.per.sec", 50, 1, "The permits of a second for requests below /v3/clusters/ID."),
        ("timeout.ms", 0, 0, "The longest time that a request waits for its permits."),
        (
            "default.cost",
            1,
            0,
            "The permits that a request takes where rate.limit.costs says nothing; 0: no limit.",
        ),
    ):
        d.define(
            f"{ALL}{name}",
            Type.INT,
            default,
            validator=between(low),
            importance=Importance.LOW,
            documentation=text,
        )
