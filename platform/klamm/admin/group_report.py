"""A group's positions and lag: the member that reads each partition, and its offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.groups import Committed, Group, Member, committed
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import log_ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A partition of a group. None stands for no committed offset, an unknown end of the log, no reader."""

    group: str
    partition: TopicPartition
    current: int | None
    end: int | None
    leader_epoch: int | None
    member: Member | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the log's end."""
        if self.current is None or self.end is None or self.current == -1:
            return None
        return self.end - self.current


async def positions(admin: Admin, groups: Sequence[Group]) -> list[list[Position]]:
    """Return the rows of each group: members with most partitions first, then unassigned partitions; partitions in
    order.

    Raises AdminError. Asks for each log's end once, however many groups read it.
    """
    offsets: list[dict[TopicPartition, Committed]] = []
    for found in await admin.each(groups, lambda g: committed(admin, g.group)):
        if isinstance(found, AdminError):
            raise found
        offsets.append(found)
    wanted = {tp for g in groups for m in g.members for tp in m.assignment}
    ends = await log_ends(admin, wanted.union(*offsets))
    return [arrange(group, found, ends) for group, found in zip(groups, offsets, strict=True)]


def arrange(
    group: Group, offsets: Mapping[TopicPartition, Committed], ends: Mapping[TopicPartition, int | None]
) -> list[Position]:
    """Return the rows of `positions`, in its order."""

    def row(tp: TopicPartition, member: Member | None) -> Position:
        found = offsets.get(tp)
        return Position(
            group=group.group,
            partition=tp,
            current=found.offset if found else None,
            end=ends.get(tp),
            leader_epoch=found.leader_epoch if found else None,
            member=member,
        )

    members = sorted((m for m in group.members if m.assignment), key=lambda m: -len(m.assignment))
    taken = {tp for m in members for tp in m.assignment}
    rows = [row(tp, m) for m in members for tp in sorted(m.assignment)]
    return rows + [row(tp, None) for tp in sorted(set(offsets) - taken)]
