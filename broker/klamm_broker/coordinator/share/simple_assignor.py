"""The assignor of share groups: Kafka's "simple" one. A partition may go to several members.

Every partition goes to as many members as are needed to give each member one, and each member gets about as many
partitions as the others. What a member has it keeps, as far as that allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import ceil
from typing import NamedTuple

Partition = tuple[bytes, int]
Assignment = Mapping[bytes, AbstractSet[int]]


class Reader(NamedTuple):
    """A member as the assignor sees it: the topics that it subscribes to, and its part of the last assignment."""

    topic_ids: frozenset[bytes]
    assignment: Assignment


def assign(
    readers: Mapping[str, Reader], partitions: Mapping[bytes, AbstractSet[int]]
) -> dict[str, dict[bytes, set[int]]]:
    """Returns the partitions of each member. `partitions` are those that may be assigned, by topic."""
    result: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in readers}
    topics = {topic_id for reader in readers.values() for topic_id in reader.topic_ids}
    same = all(reader.topic_ids == topics for reader in readers.values())
    # Members with the same topics share one pool of partitions, otherwise each topic is shared out by itself.
    for pool in [sorted(topics)] if same else [[topic_id] for topic_id in sorted(topics)]:
        members = [member_id for member_id, reader in readers.items() if reader.topic_ids.issuperset(pool)]
        wanted = [(topic_id, p) for topic_id in pool for p in sorted(partitions.get(topic_id, ()))]
        held = {m: _held(readers[m].assignment, wanted) for m in members}
        for member_id, found in _shared_out(wanted, members, held).items():
            for topic_id, partition in found:
                result[member_id].setdefault(topic_id, set()).add(partition)
    return result


def _held(assignment: Assignment, wanted: Iterable[Partition]) -> list[Partition]:
    return [(topic_id, p) for topic_id, p in wanted if p in assignment.get(topic_id, ())]


def _shared_out(
    wanted: Sequence[Partition], members: Sequence[str], held: Mapping[str, list[Partition]]
) -> dict[str, list[Partition]]:
    if not wanted:
        return {member_id: [] for member_id in members}
    sharing = -(-len(members) // len(wanted))
    each = sharing * len(wanted) / len(members)
    desired = {m: ceil(each * (i + 1)) - ceil(each * i) for i, m in enumerate(members)}
    result = {m: held[m][max(0, len(held[m]) - desired[m]) :] for m in members}
    holders: dict[Partition, list[str]] = {p: [] for p in wanted}
    for member_id, found in result.items():
        for partition in found:
            holders[partition].append(member_id)
    for partition, having in holders.items():
        while len(having) > sharing:
            result[having.pop(0)].remove(partition)
    unfilled = deque(m for m in members if len(result[m]) < desired[m])
    for partition, having in holders.items():
        while len(having) < sharing:
            free = next((m for m in unfilled if m not in having), None)
            if free is None:
                break
            unfilled.remove(free)
            having.append(free)
            result[free].append(partition)
            if len(result[free]) < desired[free]:
                unfilled.append(free)
    return result
