"""Topics and partitions of a sink task, in its own words and in librdkafka's. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Message
from confluent_kafka import TopicPartition as KafkaPartition

from klamm_plugins.errors import ConfigError
from klamm_plugins.records import TopicPartition


def subscription(config: Mapping[str, str]) -> list[str]:
    """The topics, or librdkafka's notation of the pattern (`^…`). Raises ConfigError."""
    topics = [t.strip() for t in config.get("topics", "").split(",") if t.strip()]
    pattern = config.get("topics.regex", "").strip()
    if bool(topics) == bool(pattern):
        raise ConfigError("Must configure one of topics or topics.regex", key="topics")
    if topics:
        return topics
    try:
        re.compile(pattern)
    except re.error as e:
        raise ConfigError(
            f"Invalid value {pattern} for configuration topics.regex: Invalid regex: {e}", key="topics.regex"
        ) from e
    # Java matches the whole name.
    return [f"^({pattern})$"]


def place_of(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


def named(partition: KafkaPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def kafka(places: Any) -> list[KafkaPartition]:
    """For librdkafka: from a mapping with its offsets, from a collection without."""
    if isinstance(places, Mapping):
        return [KafkaPartition(p.topic, p.partition, offset) for p, offset in places.items()]
    return [KafkaPartition(p.topic, p.partition) for p in places]
