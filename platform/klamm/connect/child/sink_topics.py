r"""The topics that a sink task reads: those that its configuration names, or all that match `topics.regex`.

librdkafka's own patterns are POSIX's: `\d` silently means the letter d there. So Klamm matches names itself,
by Java's rules, whenever Java's consumer would look for new topics (`metadata.max.age.ms`). Like Java it
leaves out Kafka's internal topics unless `exclude.internal.topics` is false.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

from klamm_base.errors import ConfigError
from klamm_base.internal_topics import INTERNAL_TOPICS
from klamm_plugins.java_regex import compile_java

log = logging.getLogger(__name__)

_REFRESH: Final = ("topic.metadata.refresh.interval.ms", "metadata.max.age.ms")
_REFRESH_MS: Final = 300_000
_ASK_S: Final = 1.0
# The interval while there is no topic or no broker, so that a first topic is found soon.
_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """All topics whose whole name matches; looks for new ones every `refresh_s` seconds."""

    pattern: re.Pattern[str]
    refresh_s: float = _REFRESH_MS / 1000
    internal: bool = False

    def of(self, names: Iterable[str]) -> list[str]:
        return sorted(
            name
            for name in names
            if self.pattern.fullmatch(name) and (self.internal or name not in INTERNAL_TOPICS)
        )


def wanted_topics(
    config: Mapping[str, str], *, consumer: Mapping[str, Any] | None = None, internal: bool = False
) -> list[str] | Matching:
    """Returns the topics that a connector config asks for; `consumer` is librdkafka's configuration. Raises
    ConfigError.
    """
    topics = [t.strip() for t in config.get("topics", "").split(",") if t.strip()]
    pattern = config.get("topics.regex", "").strip()
    if bool(topics) == bool(pattern):
        raise ConfigError("Must configure one of topics or topics.regex", key="topics")
    if topics:
        return topics
    try:
        compiled = compile_java(pattern)
    except re.error as e:
        raise ConfigError(
            f"Invalid value {pattern} for configuration topics.regex: Invalid regex: {e}", key="topics.regex"
        ) from e
    ages_ms = [int(consumer[key]) for key in _REFRESH if consumer and key in consumer]
    refresh_ms = min((ms for ms in ages_ms if ms > 0), default=_REFRESH_MS)
    return Matching(pattern=compiled, refresh_s=min(refresh_ms, _REFRESH_MS) / 1000, internal=internal)


class Subscription:
    """Keeps a consumer subscribed to the wanted topics; `callbacks` are those of `subscribe`."""

    def __init__(self, consumer: Consumer, wanted: list[str] | Matching, callbacks: dict[str, Any]) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._callbacks = callbacks
        self._now: list[str] = []
        self._due = 0.0

    def begin(self) -> None:
        if isinstance(self._wanted, list):
            self._consumer.subscribe(self._wanted, **self._callbacks)
        else:
            self.follow(time.monotonic())

    def follow(self, now: float) -> None:
        """Looks for new and deleted topics when it is time. Callbacks run with the next poll."""
        if isinstance(self._wanted, list) or now < self._due:
            return
        try:
            found = self._wanted.of(self._consumer.list_topics(timeout=_ASK_S).topics)
        except KafkaException as e:
            log.info("topics cannot be listed: %s", e.args[0].str())
            self._due = time.monotonic() + _AGAIN_S
            return
        self._due = now + (self._wanted.refresh_s if found else min(_AGAIN_S, self._wanted.refresh_s))
        if found != self._now:
            log.info("topics that match %s: %s", self._wanted.pattern.pattern, ", ".join(found) or "none yet")
            self._subscribe(found)

    def _subscribe(self, topics: list[str]) -> None:
        self._now = topics
        if topics:
            self._consumer.subscribe(topics, **self._callbacks)
        else:
            self._consumer.unsubscribe()
