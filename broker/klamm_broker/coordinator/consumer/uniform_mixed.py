"""The `uniform` assignor where members subscribe to different topics: balanced as far as subscriptions allow.

It takes three steps. Members keep their last partitions of topics that they still subscribe to. Free partitions go to
the subscriber with the fewest. Then partitions move from the subscribers with most to those with fewest, topic by
topic, until no move helps.
"""

from __future__ import annotations

from fractions import Fraction
from struct import Struct
from typing import Final

from klamm_broker.coordinator.consumer.assignment import GroupSpec

_ROUNDS_MAX: Final = 16
"""Each round about halves the imbalance; overlapping subscriptions could go on for very long."""
_NOBODY: Final = -1
_SIGNED_HALVES: Final = Struct(">qq")


def assign(group: GroupSpec) -> dict[str, dict[bytes, set[int]]]:
    """Returns the target assignment. Members are numbered in the order of the group."""
    builder = _Builder(group)
    return builder.build() if builder.subscribers else {}


class _Builder:
    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        self.subscribers: dict[bytes, list[int]] = {}
        for index, member in enumerate(group.members.values()):
            for topic_id in member.topic_ids:
                self.subscribers.setdefault(topic_id, []).append(index)
        self.owners = {t: [_NOBODY] * group.partition_counts[t] for t in self.subscribers}
        self.loads = [0] * len(group.members)

    def build(self) -> dict[str, dict[bytes, set[int]]]:
        self._keep()
        self._give_away()
        self._balance()
        result: list[dict[bytes, set[int]]] = [{} for _ in self.loads]
        for topic_id, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                result[owner].setdefault(topic_id, set()).add(partition)
        return dict(zip(self._group.members, result, strict=True))

    def _keep(self) -> None:
        for index, member in enumerate(self._group.members.values()):
            for topic_id, partitions in member.assignment.items():
                if topic_id in member.topic_ids:
                    for partition in partitions:
                        self.owners[topic_id][partition] = index
                    self.loads[index] += len(partitions)

    def _sorted(self, topic_ids: list[bytes]) -> list[bytes]:
        """Sorts topics: most partitions per subscriber first, then fewest subscribers, then by id as signed halves."""

        def rank(topic_id: bytes) -> tuple[Fraction, int, tuple[int, ...]]:
            subscribers = len(self.subscribers[topic_id])
            share = Fraction(self._group.partition_counts[topic_id], subscribers)
            return -share, subscribers, _SIGNED_HALVES.unpack(topic_id)

        return sorted(topic_ids, key=rank)

    def _give_away(self) -> None:
        unowned = {
            topic_id: [p for p, owner in enumerate(owners) if owner == _NOBODY]
            for topic_id, owners in self.owners.items()
        }
        for topic_id in self._sorted([t for t, partitions in unowned.items() if partitions]):
            ranges = _Ranges(self.loads, self.subscribers[topic_id])
            for partition in unowned[topic_id]:
                self._move(topic_id, partition, ranges.next_least())

    def _balance(self) -> None:
        topic_ids = self._sorted([t for t, members in self.subscribers.items() if len(members) > 1])
        last_moved: int | None = None
        for _ in range(_ROUNDS_MAX):
            for i, topic_id in enumerate(topic_ids):
                if i == last_moved:
                    return  # a whole round went by without a move
                if self._balance_topic(topic_id) or last_moved is None:
                    last_moved = i

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Move partitions of a topic between its subscribers. Returns whether any moved."""
        ranges = _Ranges(self.loads, self.subscribers[topic_id])
        if ranges.imbalance <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        moved = False
        while not ranges.is_balanced():
            giver = ranges.next_most()
            while giver is not None and not owned.get(giver):
                ranges.exclude_most()
                giver = ranges.next_most()
            if giver is None:
                break
            partition = owned[giver].pop()
            taker = ranges.next_least()
            if ranges.is_balanced():
                break
            self._move(topic_id, partition, taker)
            moved = True
        return moved

    def _move(self, topic_id: bytes, partition: int, index: int) -> None:
        owners = self.owners[topic_id]
        if owners[partition] != _NOBODY:
            self.loads[owners[partition]] -= 1
        owners[partition] = index
        self.loads[index] += 1


class _Ranges:
    """The subscribers of a topic by load: a range with least that grows upwards, one with most that grows downwards.

    Within a range all have the same number of partitions. A pass gives to (or takes from) each of them once; then the
    level moves by one, and the range takes in the members on the new level. `loads` are read, never changed.
    """

    def __init__(self, loads: list[int], members: list[int]) -> None:
        self._loads = loads
        self._members = sorted(members, key=lambda m: (loads[m], m))
        lowest, highest = loads[self._members[0]], loads[self._members[-1]]
        self.imbalance = highest - lowest
        self._least_level, self._least_end, self._next_least = lowest - 1, 0, 0
        end = len(self._members)
        self._most_level, self._most_start, self._most_end = highest + 1, end, end
        self._next_most = end - 1

    def is_balanced(self) -> bool:
        """True when no move between the two ranges would help any more."""
        return self._most_level - self._least_level <= 1

    def next_least(self) -> int:
        """Returns the member that gets the next partition."""
        members = self._members
        if self._next_least >= self._least_end:
            self._least_level += 1
            while (
                self._least_end < len(members) and self._loads[members[self._least_end]] == self._least_level
            ):
                self._least_end += 1
            self._next_least = 0
        self._next_least += 1
        return members[self._next_least - 1]

    def next_most(self) -> int | None:
        """Returns the member that gives the next partition; None when no member is left that has one."""
        members = self._members
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # All members of the range were excluded: go on with the next lower level that exists.
                self._most_level = self._loads[members[self._most_start - 1]]
            else:
                self._most_level -= 1
            while self._most_start > 0 and self._loads[members[self._most_start - 1]] == self._most_level:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        self._next_most -= 1
        return members[self._next_most + 1]

    def exclude_most(self) -> None:
        """Take the last member of `next_most` out of the range, as it has no partition of this topic."""
        at, last = self._next_most + 1, self._most_end - 1
        members = self._members
        members[at], members[last] = members[last], members[at]
        self._most_end -= 1
