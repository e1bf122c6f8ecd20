"""What the planner of a query asks the brokers: partitions and the bounds of their logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from klamm_base.errors import ConfigError, KlammError
from klamm_spark.datasource.offsets import Partition
from klamm_spark.datasource.options import EARLIEST, LATEST, Bound, ReadOptions, Subscription, client_config

REQUEST_S: Final = 30.0
_SPEC: Final[Any] = OffsetSpec  # its functions have no types
_INTERNAL: Final = re.compile(r"__(consumer_offsets|transaction_state|share_group_state)")


class ClusterError(KlammError):
    """The brokers did not answer, or not as needed; Spark may try again."""


class Cluster:
    """One client of the planner; `opened` lazily, because Spark makes readers that are never asked."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._opened: AdminClient | None = None

    @property
    def _admin(self) -> AdminClient:
        if self._opened is None:
            try:
                self._opened = AdminClient({**client_config(self._options.client, "admin")})
            except KafkaException as e:
                raise ConfigError(f"the options kafka.* cannot be used: {e.args[0].str()}") from None
        return self._opened

    def topics(self) -> dict[str, list[int]]:
        """Every topic with its partition numbers."""
        try:
            found = self._admin.list_topics(timeout=REQUEST_S)
        except KafkaException as e:
            where = self._options.client["bootstrap.servers"]
            raise ClusterError(f"no answer from a broker at {where}: {e.args[0].str()}") from None
        return {name: sorted(t.partitions) for name, t in found.topics.items() if t.error is None}

    def subscribed(self, topics: Mapping[str, list[int]]) -> list[Partition]:
        """The partitions that the options ask for, of those that exist."""
        return selected(self._options.subscription, topics)

    def bounds(self, partitions: Iterable[Partition]) -> tuple[dict[Partition, int], dict[Partition, int]]:
        """First offset and end of each log; the end is that of committed records when only these are read."""
        wanted = list(partitions)
        return self._offsets(wanted, _SPEC.earliest()), self._offsets(wanted, _SPEC.latest())

    def at_time(self, partitions: Iterable[Partition], ms: int) -> dict[Partition, int]:
        """The first record at or after `ms` (epoch); the end of the log where there is none."""
        wanted = list(partitions)
        found = self._offsets(wanted, _SPEC.for_timestamp(ms))
        ends = self._offsets([p for p in wanted if found[p] < 0], _SPEC.latest())
        return found | ends

    def resolve(self, bound: Bound, partitions: Iterable[Partition], name: str) -> dict[Partition, int]:
        """Offsets behind a word or behind offsets of the options. Raises ConfigError for another set of partitions."""
        wanted = list(partitions)
        earliest, latest = self.bounds(wanted)
        if isinstance(bound, str):
            return earliest if bound == "earliest" else latest
        if set(bound) != set(wanted):
            odd = min(set(bound) ^ set(wanted))
            said = "has no offset" if odd in set(wanted) else "is not read"
            raise ConfigError(
                f"{name}: partition {odd[0]}-{odd[1]} {said}; name every partition once", key=name
            )
        words = {EARLIEST: earliest, LATEST: latest}
        return {p: words[o][p] if o < 0 else o for p, o in bound.items()}

    def _offsets(self, partitions: list[Partition], spec: Any) -> dict[Partition, int]:
        if not partitions:
            return {}
        level = (
            IsolationLevel.READ_COMMITTED if self._options.read_committed else IsolationLevel.READ_UNCOMMITTED
        )
        asked = self._admin.list_offsets(
            {TopicPartition(*p): spec for p in partitions}, isolation_level=level, request_timeout=REQUEST_S
        )
        try:
            return {(tp.topic, tp.partition): int(f.result().offset) for tp, f in asked.items()}
        except KafkaException as e:
            raise ClusterError(f"offsets could not be asked for: {e.args[0].str()}") from None


def selected(subscription: Subscription, topics: Mapping[str, list[int]]) -> list[Partition]:
    """Partitions of a subscription among those that exist. Spark's rule: a pattern must match the whole name."""
    if subscription.partitions:
        return [(t, p) for t, p in subscription.partitions if p in topics.get(t, ())]
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        names = [t for t in topics if pattern.fullmatch(t) and not _INTERNAL.fullmatch(t)]
    else:
        names = [t for t in subscription.topics if t in topics]
    return [(t, p) for t in sorted(names) for p in topics[t]]


def missing(subscription: Subscription, topics: Mapping[str, list[int]]) -> list[str]:
    """What is asked for by name and does not exist."""
    if subscription.partitions:
        return [f"{t}-{p}" for t, p in subscription.partitions if p not in topics.get(t, ())]
    return [t for t in subscription.topics if t not in topics]
