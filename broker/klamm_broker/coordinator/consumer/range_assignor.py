"""The `range` assignor: divides each topic's partitions into runs, one for each member, in the order of the members.

Members are ordered by instance id, then those without one by member id. Topics with the same number of
partitions and the same subscribers are divided equally, so that partitions of the same number go to the same member:
joins rely on that.
"""

from __future__ import annotations

from collections import Counter

from klamm_broker.coordinator.consumer.assignment import GroupSpec


class _Topic:
    """A topic that is being divided."""

    __slots__ = ("_extra", "_next", "_quota", "_total")

    def __init__(self, partitions: int, members: int) -> None:
        self._total = partitions
        self._quota, self._extra = divmod(partitions, members)
        self._next = 0

    def take(self) -> set[int]:
        """Returns the next member's run. If the division leaves a rest, the first members get one more each."""
        size = self._quota
        if self._extra > 0:
            size += 1
            self._extra -= 1
        start, self._next = self._next, min(self._next + size, self._total)
        return set(range(start, self._next))


def assign(group: GroupSpec) -> dict[str, dict[bytes, set[int]]]:
    """Returns the target assignment, without regard to the last one."""

    def rank(member_id: str) -> tuple[bool, bytes]:
        instance_id = group.members[member_id].instance_id
        name = member_id if instance_id is None else instance_id
        return instance_id is None, name.encode("utf-16-be", "surrogatepass")  # Java compares UTF-16 units

    subscribers = Counter(topic_id for member in group.members.values() for topic_id in member.topic_ids)
    topics = {topic_id: _Topic(group.partition_counts[topic_id], n) for topic_id, n in subscribers.items()}
    result = {}
    for member_id in sorted(group.members, key=rank):
        runs = {topic_id: topics[topic_id].take() for topic_id in group.members[member_id].topic_ids}
        result[member_id] = {topic_id: run for topic_id, run in runs.items() if run}
    return result
