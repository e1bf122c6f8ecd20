"""Asks the cluster, while a configuration is validated, if it can make the dead letter topic: a task would fail otherwise.

The request creates nothing. An answer that the topic is there or can be made counts for a minute; after a cluster that did not answer, nobody
waits again for ten seconds. A connector with admin overrides is not asked about: its topic may be in another cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.connect.settings.override_policy import overrides
from klamm.connect.validation.connector import Row, add_error
from klamm.connect.validation.definitions import DEAD_LETTERS, REPLICATION, SINK
from klamm_base.configdef import invalid, parse_key
from klamm_base.errors import ConfigError

FINE_S: Final = 60.0
AWAY_S: Final = 10.0
ASK_S: Final = 2.0
_TOPICS_MAX: Final = 1_000
"""Answers that are remembered; more than the connectors of a group."""
_KEYS: Final = {
    KafkaError.INVALID_REPLICATION_FACTOR: REPLICATION,
    KafkaError.TOPIC_EXCEPTION: DEAD_LETTERS,
    KafkaError.INVALID_CONFIG: DEAD_LETTERS,
    KafkaError.POLICY_VIOLATION: DEAD_LETTERS,
}
"""The key to change, by errors that a retry would not change. Others say nothing about the configuration."""


@dataclass(frozen=True, slots=True)
class Objection:
    """The cluster's reason why it cannot make a dead letter topic with so many replicas."""

    topic: str
    replicas: int
    error: KafkaError

    def add_to(self, rows: Mapping[str, Row]) -> None:
        """Adds an error to the row of the key to change. `rows` are those of a validate answer by key."""
        key = _KEYS[self.error.code()]
        why = f"the cluster cannot make the dead letter topic {self.topic}: {self.error.str()}"
        if key == REPLICATION:
            why += "; set a number that it has brokers for, or make the topic"
        if key in rows:
            given = self.replicas if key == REPLICATION else self.topic
            add_error(rows[key], str(invalid(key, given, why)))


class DeadLetterCheck:
    """See the module. Lives in the event loop."""

    def __init__(self, admin: Callable[[], AdminClient], clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._clock = clock
        self._fine: dict[tuple[str, int], float] = {}
        self._away_until = 0.0

    async def objection(self, config: Mapping[str, str]) -> Objection | None:
        """Asks about a configuration's topic. Returns None, too, where its keys are wrong in themselves."""
        try:
            topic = str(parse_key(SINK[DEAD_LETTERS], config)).strip()
            replicas = int(parse_key(SINK[REPLICATION], config))
        except ConfigError:
            return None
        if not topic or overrides(config, "admin"):
            return None
        error = await self._objection(topic, replicas)
        return None if error is None else Objection(topic, replicas, error)

    async def _objection(self, topic: str, replicas: int) -> KafkaError | None:
        """Returns the cluster's reason why it cannot make the topic; None when it can, or does not say."""
        now = self._clock()
        if now < self._fine.get((topic, replicas), 0.0) or now < self._away_until:
            return None
        try:
            await self._ask(topic, replicas)
        except KafkaException as e:
            error: KafkaError = e.args[0]
            if error.code() in _KEYS:
                return error
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                self._away_until = self._clock() + AWAY_S
                return None
        except TimeoutError:
            self._away_until = self._clock() + AWAY_S
            return None
        if len(self._fine) >= _TOPICS_MAX:
            self._fine.clear()
        self._fine[topic, replicas] = self._clock() + FINE_S
        return None

    async def _ask(self, topic: str, replicas: int) -> Any:
        new = NewTopic(topic, num_partitions=1, replication_factor=replicas)
        futures = self._admin().create_topics([new], validate_only=True, request_timeout=ASK_S)
        async with asyncio.timeout(ASK_S):
            return await asyncio.wrap_future(futures[topic])
