"""Input and output of assignors: subscriptions, partition counts, and the last assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

Assignment = Mapping[bytes, AbstractSet[int]]
"""Partitions by topic id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """A member as assignors see it; `topic_ids` are in the order in which Kafka would walk over them."""

    topic_ids: tuple[bytes, ...]
    instance_id: str | None = None
    rack_id: str | None = None
    assignment: Assignment = field(default_factory=dict)
    """Its part of the last target assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
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
