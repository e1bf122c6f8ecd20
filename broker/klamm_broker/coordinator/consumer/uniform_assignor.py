"""The `uniform` assignor: all members get the same number of partitions, and keep their last ones if possible.

This module handles groups whose members all subscribe to the same topics; `uniform_mixed` handles the others.
"""

from __future__ import annotations

from klamm_broker.coordinator import java_order
from klamm_broker.coordinator.consumer.assignment import Assignment, GroupSpec

TopicPartition = tuple[bytes, int]


def assign(group: GroupSpec) -> dict[str, dict[bytes, set[int]]]:
    """Returns the target assignment."""
    if not group.members:
        return {}
    if not group.homogeneous:
        from klamm_broker.coordinator.consumer import uniform_mixed  # rare, and fractions are slow to import

        return uniform_mixed.assign(group)
    topic_ids = java_order.uuids(next(iter(group.members.values())).topic_ids, copied=True)
    if not topic_ids:
        return {}
    return _Builder(group, topic_ids).build()


class _Builder:
    """Takes away the partitions that members may not keep, then gives away the free ones."""

    def __init__(self, group: GroupSpec, topic_ids: list[bytes]) -> None:
        self._group = group
        self._topic_ids = frozenset(topic_ids)
        counts = group.partition_counts
        self._free: list[TopicPartition] = [
            (topic_id, partition)
            for topic_id in topic_ids
            for partition in range(counts[topic_id])
            if partition not in group.assigned.get(topic_id, ())
        ]
        total = sum(counts[topic_id] for topic_id in topic_ids)
        self._quota, self._extras = divmod(total, len(group.members))
        """What everybody gets, and how many get one more."""

    def build(self) -> dict[str, dict[bytes, set[int]]]:
        result = {}
        room: list[tuple[str, int]] = []
        members_left = len(self._group.members)
        for member_id, member in self._group.members.items():
            result[member_id], left = self._keep(member.assignment, members_left)
            members_left -= 1
            if left > 0:
                room.append((member_id, left))
        free = iter(self._free)
        for member_id, left in room:
            for _, (topic_id, partition) in zip(range(left), free, strict=False):
                result[member_id].setdefault(topic_id, set()).add(partition)
        return result

    def _keep(self, last: Assignment, members_left: int) -> tuple[dict[bytes, set[int]], int]:
        """Returns the partitions that a member keeps, and how many more it gets. `members_left` counts the member itself."""
        has_extra = self._extras > 0
        left = self._quota + has_extra
        kept: dict[bytes, set[int]] = {}
        for topic_id in java_order.uuids(last):
            if topic_id not in self._topic_ids:
                continue
            partitions = java_order.integers(last[topic_id])
            if left > 0:
                kept[topic_id] = set(partitions[:left])
            self._free += [(topic_id, partition) for partition in partitions[left:]]
            left -= min(left, len(partitions))
        if left > 0 and has_extra and members_left > self._extras:
            # The member leaves its extra partition to another one, unless just enough members are left to take them.
            left -= 1
            has_extra = False
        self._extras -= has_extra
        return kept, left
