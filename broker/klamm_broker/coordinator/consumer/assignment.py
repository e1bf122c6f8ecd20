"""Input and output of assignors: subscriptions, partition counts, and the last assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple

Assignment = Mapping[bytes, AbstractSet[int]]
"""Partitions by topic id."""


class MemberSpec(NamedTuple):
    """A member as assignors see it; `topic_ids` are in the order in which Kafka would walk over them."""

    topic_ids: tuple[bytes, ...]
    instance_id: str | None = None
    rack_id: str | None = None
    assignment: Assignment = MappingProxyType({})
    """Its part of the last target assignment."""


class GroupSpec(NamedTuple):
    """A group as assignors see it; `members` are in the order in which Kafka would walk over them."""

    members: Mapping[str, MemberSpec]
    homogeneous: bool
    """True if all members subscribe to the same topics."""
    partition_counts: Mapping[bytes, int]
    """The number of partitions of every subscribed topic."""
    assigned: Mapping[bytes, AbstractSet[int]]
    """Every partition that the last target assignment gives to a member."""


Assignor = Callable[[GroupSpec], dict[str, dict[bytes, set[int]]]]


def combined(assignments: Iterable[Assignment]) -> dict[bytes, set[int]]:
    """Returns all partitions that are in any of these."""
    result: dict[bytes, set[int]] = {}
    for assignment in assignments:
        for topic_id, partitions in assignment.items():
            result.setdefault(topic_id, set()).update(partitions)
    return result
