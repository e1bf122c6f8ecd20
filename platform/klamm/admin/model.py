"""Names of things that several questions are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """Sorts by topic, then by partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A broker by its id and the address it told."""

    id: int
    host: str
    port: int


def by_topic(partitions: object) -> dict[str, list[int]]:
    """Return partition numbers by topic, both in ascending order."""
    result: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):  # type: ignore[call-overload]
        result.setdefault(topic, []).append(partition)
    return result
