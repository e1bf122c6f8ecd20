"""A broker's answers to requests for topics and configurations that it must refuse.

The broker's tests check the code and the words of each case. The conformance tests send the same cases to Apache
Kafka, too, and compare the answers.
"""

from __future__ import annotations

from typing import Any

from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.create_partitions import CreatePartitionsAssignment
from klamm_kafka.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)

TOPIC, BROKER = 2, 4
"""Types of resources with configurations."""
SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""

Change = tuple[str, int, str | None]


def creatable(name: str, **fields: Any) -> CreatableTopic:
    """Returns a topic to create: with the broker's defaults, where `fields` gives nothing else."""
    return CreatableTopic(name=name, **{"num_partitions": -1, "replication_factor": -1} | fields)


def config(name: str, value: str | None) -> dict[str, list[CreatableTopicConfig]]:
    return {"configs": [CreatableTopicConfig(name=name, value=value)]}


def assigned(*brokers: list[int], indexes: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Returns the fields that assign partitions by hand: by default numbered from 0 on."""
    rows = zip(indexes or range(len(brokers)), brokers, strict=True)
    return {"assignments": [CreatableReplicaAssignment(partition_index=i, broker_ids=b) for i, b in rows]}


CREATE_REFUSED: list[tuple[dict[str, Any], E, str]] = [
    ({"name": ""}, E.INVALID_TOPIC_EXCEPTION, "empty"),
    ({"name": "."}, E.INVALID_TOPIC_EXCEPTION, "cannot be"),
    ({"name": ".."}, E.INVALID_TOPIC_EXCEPTION, "cannot be"),
    ({"name": "a" * 250}, E.INVALID_TOPIC_EXCEPTION, "250 characters"),
    ({"name": "bad/name"}, E.INVALID_TOPIC_EXCEPTION, "characters other than"),
    ({"num_partitions": 0}, E.INVALID_PARTITIONS, "non-positive"),
    ({"num_partitions": -5}, E.INVALID_PARTITIONS, "non-positive"),
    ({"num_partitions": 0, "replication_factor": 1}, E.INVALID_PARTITIONS, "non-positive"),
    ({"num_partitions": -2, "replication_factor": 1}, E.INVALID_PARTITIONS, "non-positive"),
    ({"replication_factor": 3}, E.INVALID_REPLICATION_FACTOR, "only 1 broker"),
    ({"replication_factor": 0}, E.INVALID_REPLICATION_FACTOR, "larger than 0"),
    ({"num_partitions": 1, "replication_factor": 2}, E.INVALID_REPLICATION_FACTOR, "only 1 broker"),
    ({"num_partitions": 1, "replication_factor": 0}, E.INVALID_REPLICATION_FACTOR, "larger than 0"),
    (config("no.such.key", "1"), E.INVALID_CONFIG, "no.such.key"),
    (config("retention.ms", "soon"), E.INVALID_CONFIG, "retention.ms"),
    (config("retention.ms", None), E.INVALID_CONFIG, "retention.ms"),
    (config("segment.bytes", "1"), E.INVALID_CONFIG, "segment.bytes"),
    (config("min.insync.replicas", "0"), E.INVALID_CONFIG, "min.insync.replicas"),
    (config("cleanup.policy", "burn"), E.INVALID_CONFIG, "cleanup.policy"),
    (assigned([1], [2]), E.INVALID_REPLICA_ASSIGNMENT, "partition 1"),
    (assigned([9]), E.INVALID_REPLICA_ASSIGNMENT, "partition 0"),
    (assigned([1, 2]), E.INVALID_REPLICA_ASSIGNMENT, "partition 0"),
    (assigned([1, 1]), E.INVALID_REPLICA_ASSIGNMENT, "partition 0"),
    (assigned([1], indexes=(1,)), E.INVALID_REPLICA_ASSIGNMENT, "consecutive"),
    (assigned([1], [1], indexes=(0, 2)), E.INVALID_REPLICA_ASSIGNMENT, "consecutive"),
    (assigned([1]) | {"num_partitions": 1}, E.INVALID_REQUEST, "manual partition assignment"),
    (assigned([9]) | {"num_partitions": 1, "replication_factor": 1}, E.INVALID_REQUEST, "manual partition assignment"),
]  # fmt: skip

ALTER_REFUSED: list[tuple[tuple[Change, ...], E, str]] = [
    ((("no.such.key", SET, "1"),), E.INVALID_CONFIG, "no.such.key"),
    ((("retention.ms", SET, "soon"),), E.INVALID_CONFIG, "retention.ms"),
    ((("retention.ms", SET, None),), E.INVALID_REQUEST, "retention.ms"),
    ((("retention.ms", APPEND, "5"),), E.INVALID_CONFIG, "not LIST"),
    ((("retention.ms", SET, "5"), ("retention.ms", SET, "6")), E.INVALID_REQUEST, "retention.ms"),
    ((("retention.ms", 9, "5"),), E.INVALID_REQUEST, "operations type 9"),
]
"""Changes of a topic."""


def replicas(*brokers: list[int]) -> list[CreatePartitionsAssignment]:
    return [CreatePartitionsAssignment(broker_ids=b) for b in brokers]


GROWTH: list[tuple[int, list[CreatePartitionsAssignment] | None, E]] = [
    (-1, None, E.INVALID_PARTITIONS),
    (1, None, E.INVALID_PARTITIONS),
    (2, None, E.INVALID_PARTITIONS),
    (3, None, E.NONE),
    (3, replicas([1]), E.NONE),
    (3, replicas([9]), E.INVALID_REPLICA_ASSIGNMENT),
    (3, replicas([1], [1]), E.INVALID_REPLICA_ASSIGNMENT),
    (4, replicas([1]), E.INVALID_REPLICA_ASSIGNMENT),
]
"""Wanted counts of partitions for a topic that has two."""

DESCRIBE_REFUSED: list[tuple[int, str, E]] = [
    (TOPIC, "unknown", E.UNKNOWN_TOPIC_OR_PARTITION),
    (TOPIC, "bad/name", E.INVALID_TOPIC_EXCEPTION),
    (TOPIC, "a b", E.INVALID_TOPIC_EXCEPTION),
    (TOPIC, "", E.INVALID_TOPIC_EXCEPTION),
    (BROKER, "7", E.INVALID_REQUEST),
    (BROKER, "one", E.INVALID_REQUEST),
    (99, "x", E.INVALID_REQUEST),
]
"""Resources whose configurations cannot be described."""
