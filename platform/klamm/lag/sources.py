"""The interface of sources of positions: one for groups of all kinds, mirror flows and Spark queries.

A source is polled again and again, and tells what was committed since. It says the time of each commit as its own cluster
knows it: a reader that commits the same offset again stands still, one that says nothing has stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from klamm.admin.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Position:
    """A position of a reader in a cluster's partition, the next offset to be read; None: the reader has given it up.

    `lag` is told by a cluster that counts it itself: a share group's records are not read in their order.
    """

    cluster: str
    group: str
    kind: str
    partition: TopicPartition
    offset: int | None
    at_ms: int
    order: int
    lag: int | None = None


class Source(Protocol):
    """Something that knows positions."""

    name: str
    """The source in words, for logs and metrics."""

    trouble: str | None
    """Why a part of it cannot be read, after a poll that returned the rest."""
    began_anew: bool
    """Set by a poll that found other records than those of before: their orders say nothing of the new ones. Whoever reads it clears it."""

    def blind(self, cluster: str, group: str, kind: str) -> bool:
        """Returns whether positions of a group may be in what cannot be read."""
        ...

    async def poll(self, now_ms: int) -> list[Position]:
        """Returns the positions since the last poll. Raises KlammError, of which its next poll is free."""
        ...

    def places(self) -> dict[TopicPartition, int]:
        """Returns from where another process has to read, to know what this one knows; nothing if it need not read."""
        ...

    @property
    def caught_up(self) -> bool:
        """True when everything that was there at the last poll is told."""
        ...


class WholeSource:
    """A source whose poll returns all of it, or raises."""

    trouble: str | None = None
    began_anew = False

    def blind(self, cluster: str, group: str, kind: str) -> bool:
        return False
