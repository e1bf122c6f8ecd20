"""The planner's questions to the brokers: partitions, and the bounds of their logs."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from klamm_base.errors import ConfigError, KlammError
from klamm_base.internal_topics import INTERNAL_TOPICS
from klamm_spark.datasource.offsets import Partition
from klamm_spark.datasource.option_values import EARLIEST, LATEST, Bound, Subscription, Times
from klamm_spark.datasource.options import ReadOptions, client_config

log = logging.getLogger(__name__)

_T = TypeVar("_T")
REQUEST_S: Final = 30.0
_SPEC: Final[Any] = OffsetSpec  # its functions have no types


class ClusterError(KlammError):
    """The brokers did not answer, or not as needed. Spark may try again."""


class Cluster:
    """The planner's one client. It is opened lazily, because Spark makes readers that it never asks."""

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
        """Returns every topic with its partition numbers."""
        where = self._options.client["bootstrap.servers"]
        found = self._persistently(
            lambda: self._admin.list_topics(timeout=REQUEST_S), f"no answer from a broker at {where}"
        )
        return {name: sorted(t.partitions) for name, t in found.topics.items() if t.error is None}

    def subscribed(self, topics: Mapping[str, list[int]]) -> list[Partition]:
        """Returns those existing partitions that the options ask for."""
        return selected(self._options.subscription, topics)

    def bounds(self, partitions: Iterable[Partition]) -> tuple[dict[Partition, int], dict[Partition, int]]:
        """Returns first offset and end of each log. When only committed records are read, the end is theirs."""
        wanted = list(partitions)
        return self._offsets(wanted, _SPEC.earliest()), self.ends(wanted)

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Returns the ends of logs, as in `bounds`."""
        return self._offsets(list(partitions), _SPEC.latest())

    def at_time(
        self, partitions: Iterable[Partition], at: Times, name: str, *, strict: bool
    ) -> dict[Partition, int]:
        """Returns the first record at or after a time (epoch ms) in each partition.

        Where there is none, the answer is the end of the log; with `strict`, a ConfigError is raised.
        """
        wanted = list(partitions)
        if not isinstance(at, int):
            self._every_one(at, wanted, name)
        found = self._offsets(
            wanted, {p: _SPEC.for_timestamp(at if isinstance(at, int) else at[p]) for p in wanted}
        )
        without = [p for p in wanted if found[p] < 0]
        if without and strict:
            (topic, number), ms = min(without), at if isinstance(at, int) else at[min(without)]
            raise ConfigError(
                f"{name}: {topic}-{number} has no record at or after {ms}; with startingOffsetsByTimestampStrategy=latest "
                "such a partition is read from its end",
                key=name,
            )
        return found | self._offsets(without, _SPEC.latest())

    def resolve(self, bound: Bound, partitions: Iterable[Partition], name: str) -> dict[Partition, int]:
        """Returns the offsets that a word or the options' offsets stand for. Raises ConfigError for another set of
        partitions.
        """
        wanted = list(partitions)
        earliest, latest = self.bounds(wanted)
        if isinstance(bound, str):
            return earliest if bound == "earliest" else latest
        self._every_one(bound, wanted, name)
        words = {EARLIEST: earliest, LATEST: latest}
        return {p: words[o][p] if o < 0 else o for p, o in bound.items()}

    @staticmethod
    def _every_one(given: Mapping[Partition, int], wanted: list[Partition], name: str) -> None:
        if set(given) != set(wanted):
            odd = min(set(given) ^ set(wanted))
            said = "is not named" if odd in set(wanted) else "is not read"
            raise ConfigError(
                f"{name}: partition {odd[0]}-{odd[1]} {said}; name every partition once", key=name
            )

    def _offsets(self, partitions: list[Partition], spec: Any) -> dict[Partition, int]:
        """Returns offsets for one specification, or one for each partition. Tries again as fetchOffset.numRetries says."""
        if not partitions:
            return {}
        level = (
            IsolationLevel.READ_COMMITTED if self._options.read_committed else IsolationLevel.READ_UNCOMMITTED
        )
        asked = {TopicPartition(*p): spec[p] if isinstance(spec, dict) else spec for p in partitions}

        def ask() -> dict[Partition, int]:
            found = self._admin.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_S)
            return {(tp.topic, tp.partition): int(f.result().offset) for tp, f in found.items()}

        return self._persistently(ask, "offsets could not be asked for")

    def _persistently(self, ask: Callable[[], _T], what: str) -> _T:
        left = self._options.retries
        while True:
            try:
                return ask()
            except KafkaException as e:
                if not left:
                    raise ClusterError(f"{what}: {e.args[0].str()}") from None
                log.warning("%s: %s; %d more attempts", what, e.args[0].str(), left)
                left -= 1
                time.sleep(self._options.retry_interval_s)


def selected(subscription: Subscription, topics: Mapping[str, list[int]]) -> list[Partition]:
    """Selects the existing partitions of a subscription. As in Spark, a pattern must match the whole name."""
    if subscription.partitions:
        return [(t, p) for t, p in subscription.partitions if p in topics.get(t, ())]
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        names = [t for t in topics if pattern.fullmatch(t) and t not in INTERNAL_TOPICS]
    else:
        names = [t for t in subscription.topics if t in topics]
    return [(t, p) for t in sorted(names) for p in topics[t]]


def missing(subscription: Subscription, topics: Mapping[str, list[int]]) -> list[str]:
    """Returns topics and partitions that are asked for by name and do not exist."""
    if subscription.partitions:
        return [f"{t}-{p}" for t, p in subscription.partitions if p not in topics.get(t, ())]
    return [t for t in subscription.topics if t not in topics]
