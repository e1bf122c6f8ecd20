"""Subscriptions and assignments of the classic protocol's consumers (protocol type `consumer`), for groups that mix both.

Kafka reads a version that is newer than it knows as its newest. Errors: MalformedSubscription.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from struct import Struct
from typing import Final, NamedTuple

from klamm_broker.coordinator.consumer.topics import Topics
from klamm_broker.coordinator.subscription import MalformedSubscription
from klamm_kafka.wire.errors import ProtocolError
from klamm_kafka.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

_VERSION: Final = Struct(">h")
_NEWEST: Final = 3


class Subscription(NamedTuple):
    """The subscription that a classic consumer sent when it joined."""

    topics: frozenset[str]
    owned: Mapping[bytes, AbstractSet[int]]
    """The partitions that it claims to own, by topic id; topics that are gone are left out."""
    rack_id: str | None


def version_of(data: bytes) -> int:
    """Returns the version in front of a subscription or an assignment, at most the newest that is known here."""
    if len(data) < _VERSION.size:
        raise MalformedSubscription(f"{len(data)} bytes, at least {_VERSION.size} are needed")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MalformedSubscription(f"version {version}")
    return min(int(version), _NEWEST)


def read_subscription(metadata: bytes, topics: Topics) -> Subscription:
    """Returns the subscription in a member's metadata."""
    try:
        said, _ = ConsumerProtocolSubscription.decode(metadata, version_of(metadata), _VERSION.size)
    except ProtocolError as e:
        raise MalformedSubscription(str(e)) from e
    owned = {}
    for item in said.owned_partitions:
        topic = topics.by_name(item.topic)
        if topic is not None:
            owned[topic.id] = frozenset(item.partitions)
    return Subscription(topics=frozenset(said.topics), owned=owned, rack_id=said.rack_id or None)


def read_assignment(assignment: bytes, topics: Topics) -> tuple[dict[bytes, frozenset[int]], bool]:
    """Returns a member's assignment by topic id, and whether an assignor put data of its own into it."""
    if not assignment:
        return {}, False
    try:
        said, _ = ConsumerProtocolAssignment.decode(assignment, version_of(assignment), _VERSION.size)
    except ProtocolError as e:
        raise MalformedSubscription(str(e)) from e
    found = {}
    for item in said.assigned_partitions:
        topic = topics.by_name(item.topic)
        if topic is not None:
            found[topic.id] = frozenset(item.partitions)
    return found, bool(said.user_data)


def write_assignment(
    assignment: Mapping[bytes, Mapping[int, int] | AbstractSet[int]], metadata: bytes, topics: Topics
) -> bytes:
    """Returns an assignment for a member that subscribed with `metadata`, in the version that it used."""
    version = version_of(metadata)
    message = ConsumerProtocolAssignment(user_data=None)
    for topic_id, partitions in assignment.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            message.assigned_partitions.append(
                ConsumerProtocolAssignmentTopicPartition(topic=topic.name, partitions=sorted(partitions))
            )
    return _VERSION.pack(version) + message.encode(version)
