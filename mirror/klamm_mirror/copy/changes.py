"""Remembers which partitions of a task have changed, so that work at short intervals does not grow with all of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.source_offsets import Position

Committed = list[tuple[MirrorPartition, Position]]
"""Partitions with the positions to commit."""


class Changes:
    """The partitions that changed since `take`; at first, all of them."""

    def __init__(self, partitions: Sequence[MirrorPartition]) -> None:
        self._changed = dict.fromkeys(partitions)
        for partition in partitions:
            partition.watchers.append(self._changed)

    def take(self) -> list[MirrorPartition]:
        """Returns them, in the order of their first changes."""
        found = list(self._changed)
        self._changed.clear()
        return found


class Uncommitted:
    """The positions that are to be committed."""

    def __init__(self, partitions: Sequence[MirrorPartition]) -> None:
        self._committed = {p: p.committed for p in partitions}
        self._changed: dict[MirrorPartition, None] = {}
        for partition in partitions:
            partition.watchers.append(self._changed)

    def news(self) -> Committed:
        """Returns all positions that are known and not committed."""
        found = []
        for partition in list(self._changed):
            here = partition.committed
            if here is None or here == self._committed[partition]:
                del self._changed[partition]
            else:
                found.append((partition, here))
        return found

    def committed(self, news: Committed) -> None:
        """Notes that these are committed."""
        self._committed |= dict(news)
