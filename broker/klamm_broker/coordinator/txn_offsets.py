"""Offsets that were committed within transactions which are not decided yet.

They are in the log, but the group has not committed them until the marker of their transaction comes: a commit marker
makes them visible, an abort marker drops them. Until then a reader that wants stable offsets learns that they are
unstable.

Invariant: of several commits to a partition the last one in the log wins, in whatever order their transactions end. So a
record behind a pending offset supersedes it: the offset will not become visible, but its transaction still makes the
partition unstable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from klamm_broker.coordinator.model import CommitRequest, CommittedOffset, TopicPartition

_Place = tuple[str, TopicPartition]
"""A group, and a partition whose offset it commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnCommitRequest(CommitRequest):
    """TxnOffsetCommit. The coordinator has verified the producer whose transaction decides about the offsets."""

    producer_id: int
    producer_epoch: int

    @property
    def is_transactional(self) -> bool:
        return True


class Completed(NamedTuple):
    """The effect of a marker: the places that its transaction had open, and the offsets that became visible, by group."""

    closed: list[_Place]
    visible: dict[str, dict[TopicPartition, CommittedOffset]]


class PendingOffsets:
    """The pending offsets of the groups in one partition of `__consumer_offsets`. Calls come in the order of that log."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[_Place, tuple[int, CommittedOffset] | None]] = {}
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}
        self._order = 0

    def __len__(self) -> int:
        return sum(len(pending) for pending in self._by_producer.values())

    def add(
        self, producer_id: int, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset | None]
    ) -> list[TopicPartition]:
        """Note offsets in the log that belong to the producer's open transaction (None: superseded already).

        Returns the partitions that the transaction did not have open before.
        """
        self._order += 1
        opened = []
        pending = self._by_producer.setdefault(producer_id, {})
        group = self._open.setdefault(group_id, {})
        for at, offset in offsets.items():
            if (group_id, at) not in pending:
                opened.append(at)
            pending[group_id, at] = None if offset is None else (self._order, offset)
            group.setdefault(at, set()).add(producer_id)
        return opened

    def supersede(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Supersede what is pending for these partitions, as an ordinary commit of them is in the log."""
        group = self._open.get(group_id)
        if group is None:
            return
        for at in partitions:
            for producer_id in group.get(at, ()):
                self._by_producer[producer_id][group_id, at] = None

    def forget(self, group_id: str, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget what is pending for these partitions, as their tombstones are in the log.

        Returns the forgotten partitions, once for each transaction.
        """
        group = self._open.get(group_id)
        if group is None:
            return []
        closed = []
        for at in partitions:
            for producer_id in group.pop(at, ()):
                closed.append(at)
                pending = self._by_producer[producer_id]
                del pending[group_id, at]
                if not pending:
                    del self._by_producer[producer_id]
        if not group:
            del self._open[group_id]
        return closed

    def complete(self, producer_id: int, *, committed: bool) -> Completed:
        """Complete the transaction of a producer whose marker is in the log."""
        pending_here = self._by_producer.pop(producer_id, {})
        visible: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for (group_id, at), entry in pending_here.items():
            others = self._close(group_id, at, producer_id)
            if not committed or entry is None:
                continue
            order, offset = entry
            visible.setdefault(group_id, {})[at] = offset
            for other in others:
                pending = self._by_producer[other]
                later = pending[group_id, at]
                if later is not None and later[0] < order:
                    pending[group_id, at] = None
        return Completed(list(pending_here), visible)

    def _close(self, group_id: str, at: TopicPartition, producer_id: int) -> set[int]:
        """Close the producer's transaction for this partition. Returns the other producers with an open one."""
        group = self._open[group_id]
        producers = group[at]
        producers.discard(producer_id)
        if not producers:
            del group[at]
            if not group:
                del self._open[group_id]
        return producers

    def is_open(self, group_id: str, at: TopicPartition) -> bool:
        """Decides whether an open transaction may still change this offset."""
        group = self._open.get(group_id)
        return group is not None and at in group

    def of_group(self, group_id: str) -> Mapping[TopicPartition, set[int]]:
        """Returns the partitions of a group with an open transaction, with its producers. A view."""
        return self._open.get(group_id, {})
