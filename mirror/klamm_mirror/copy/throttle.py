"""Limits of a flow in bytes per second: token buckets, shared between tasks. Pure: time is passed in.

`mirror.throttle.bytes` limits a flow, `mirror.throttle.topic.bytes` each topic that a pattern names. Bytes are those
of fetched batches, as they are compressed. A task's share of a limit is that of its partitions, so that all shares
together are the limit. A share that a task does not need is not lent to others.

A bucket fills with the rate, up to what a second brings. A fetch may take more than there is, because a broker sends
whole batches: then the bucket owes, and nothing is taken until it has paid.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between, invalid

FLOW: Final = "mirror.throttle.bytes"
TOPICS: Final = "mirror.throttle.topic.bytes"
SHARE: Final = "task.throttle.bytes"
"""A task's shares, such as `*=500000,orders=100000`: `*` is the flow."""
BURST_S: Final = 1.0
"""Seconds at the full rate that a bucket holds after a rest."""
SIP_S: Final = 0.1
"""Seconds at the full rate that a bucket collects before anything is taken, so that fetches are not tiny."""
PARTITION_MIN: Final = 16 << 10
"""Bytes that a fetch asks for at least, as much as a producer's batch: most partitions of a fetch have nothing to give."""
_ALL: Final = "*"


def throttle_config() -> ConfigDef:
    """Returns the keys of limits."""
    return (
        ConfigDef()
        .define(
            FLOW, Type.LONG, 0, validator=between(0), importance=Importance.LOW,
            documentation="Bytes per second that the flow may read from the source, as they are compressed; 0: no limit.",
        )
        .define(
            TOPICS, Type.LIST, [], validator=_check_topics, importance=Importance.LOW,
            documentation="Bytes per second for each topic, as PATTERN:BYTES such as logs.*:1000000; the first pattern "
            "that matches a topic counts.",
        )
    )  # fmt: skip


def _check_topics(key: str, value: Any) -> None:
    for item in value or []:
        _limit(key, item)


def _limit(key: str, item: str) -> tuple[re.Pattern[str], int]:
    """Parses `PATTERN:BYTES`. Raises ConfigError."""
    pattern, _, rate = item.rpartition(":")
    try:
        compiled = re.compile(pattern)
    except re.error as e:
        raise invalid(key, item, f"{pattern} is no regular expression: {e}") from None
    if not pattern or not rate.strip().isdigit() or int(rate) == 0:
        raise invalid(
            key, item, "Must be PATTERN:BYTES, such as logs.*:1000000, with one byte per second at least"
        )
    return compiled, int(rate)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a flow, bytes per second. `flow` 0: none."""

    flow: int
    topics: Sequence[tuple[re.Pattern[str], int]]

    @classmethod
    def of(cls, parsed: Mapping[str, Any]) -> Limits:
        """Reads a parsed configuration. Raises ConfigError."""
        return cls(parsed[FLOW], [_limit(TOPICS, item) for item in parsed[TOPICS]])

    def of_topic(self, topic: str) -> int:
        """Returns the limit of a topic; 0: none."""
        return next((rate for pattern, rate in self.topics if pattern.fullmatch(topic)), 0)

    def share(self, all_: Sequence[tuple[str, int]], own: Sequence[tuple[str, int]]) -> str:
        """Returns a task's part of the limits, for `Throttle.of`: `all_` are the flow's partitions, `own` the task's."""
        parts = [(_ALL, self.flow * len(own) / len(all_))] if self.flow and all_ else []
        everywhere, here = (Counter(topic for topic, _ in some) for some in (all_, own))
        parts += [(t, self.of_topic(t) * n / everywhere[t]) for t, n in sorted(here.items())]
        return ",".join(f"{name}={rate:.3f}" for name, rate in parts if rate)


class Bucket:
    """A token bucket. `rate` is in bytes per second."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._level = rate * BURST_S
        self._at: float | None = None

    def available(self, now: float) -> int:
        """Returns the bytes that may be taken now; 0 while too few have collected."""
        self._fill(now)
        return max(int(self._level), 1) if self._level >= self.rate * SIP_S else 0

    def wait_s(self, now: float) -> float:
        """Returns the seconds until something may be taken."""
        self._fill(now)
        return max((self.rate * SIP_S - self._level) / self.rate, 0.0)

    def take(self, count: int, now: float) -> None:
        """Takes bytes, also those that are not there yet."""
        self._fill(now)
        self._level -= count

    def _fill(self, now: float) -> None:
        passed = 0.0 if self._at is None else max(now - self._at, 0.0)
        self._level = min(self._level + passed * self.rate, self.rate * BURST_S)
        self._at = now


class Throttle:
    """The limits of one task: of all its topics together, and of single topics."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._buckets = {name: Bucket(rate) for name, rate in rates.items()}

    @classmethod
    def of(cls, text: str) -> Throttle:
        """Reads what `Limits.share` wrote."""
        pairs = (item.rpartition("=") for item in text.split(",") if item)
        return cls({name: float(rate) for name, _, rate in pairs})

    @property
    def active(self) -> bool:
        """False where nothing is limited."""
        return bool(self._buckets)

    def held_by(self, topic: str, now: float) -> str | None:
        """Returns the key of the limit that lets nothing of the topic be read now; None: some may be read."""
        for name, bucket in self._of(topic):
            if not bucket.available(now):
                return FLOW if name == _ALL else TOPICS
        return None

    def flow_bytes(self, now: float, most: int) -> int:
        """Returns how many bytes a fetch may bring, `most` at most."""
        bucket = self._buckets.get(_ALL)
        return most if bucket is None else min(max(bucket.available(now), PARTITION_MIN), most)

    def topic_bytes(self, topic: str, partitions: int, now: float, most: int) -> int:
        """Returns how many bytes each of a topic's partitions may bring in a fetch, `most` at most."""
        bucket = self._buckets.get(topic)
        return most if bucket is None else min(max(bucket.available(now) // partitions, PARTITION_MIN), most)

    def take(self, topic: str, count: int, now: float) -> None:
        """Notes bytes of a topic that were read."""
        for _, bucket in self._of(topic):
            bucket.take(count, now)

    def wait_s(self, topics: Iterable[str], now: float) -> float:
        """Returns the seconds until some of these topics may be read, which are held now."""
        waits = (max(bucket.wait_s(now) for _, bucket in self._of(topic)) for topic in set(topics))
        return min(waits, default=0.0)

    def _of(self, topic: str) -> list[tuple[str, Bucket]]:
        return [(name, self._buckets[name]) for name in (_ALL, topic) if name in self._buckets]
