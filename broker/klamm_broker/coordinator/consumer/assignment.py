"""What assignors get and give: who subscribes to what, how many partitions there are, who had which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

Assignment = Mapping[bytes, AbstractSet[int]]
"""Partitions by topic id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """A member as assignors see it; `topic_ids` in the order in which Kafka would walk over them."""

    topic_ids: tuple[bytes, ...]
    instance_id: str | None = None
    rack_id: str | None = None
    assignment: Assignment = field(default_factory=dict)
    """Its part of the last target assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """A group as assignors see it; `members` in the order in which Kafka would walk over them."""

    members: Mapping[str, MemberSpec]
    homogeneous: bool
    """All members subscribe to the same topics."""
    partition_counts: Mapping[bytes, int]
    """Of every topic that anybody subscribes to."""
    assigned: Mapping[bytes, AbstractSet[int]]
    """Every partition that the last target assignment gives to somebody."""


Assignor = Callable[[GroupSpec], dict[str, dict[bytes, set[int]]]]


def combined(assignments: Iterable[Assignment]) -> dict[bytes, set[int]]:
    """All partitions that are in any of these."""
    result: dict[bytes, set[int]] = {}
    for assignment in assignments:
        for topic_id, partitions in assignment.items():
            result.setdefault(topic_id, set()).update(partitions)
    return result
