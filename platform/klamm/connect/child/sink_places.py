"""Conversions of a sink task's topics and partitions between Klamm's types and librdkafka's. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Message
from confluent_kafka import TopicPartition as KafkaPartition

from klamm_plugins.records import TopicPartition


def place_of(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


def named(partition: KafkaPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def kafka(places: Any) -> list[KafkaPartition]:
    """Returns librdkafka's partitions: from a mapping with its offsets, from a collection without."""
    if isinstance(places, Mapping):
        return [KafkaPartition(p.topic, p.partition, offset) for p, offset in places.items()]
    return [KafkaPartition(p.topic, p.partition) for p in places]
