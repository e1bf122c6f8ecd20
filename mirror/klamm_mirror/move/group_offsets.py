"""The offsets of groups that move: where each goes on, what it had there before, and setting and restoring that.

Raises ClientError. A group with members keeps its offsets: its coordinator refuses others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from klamm_kafka.client import Cluster
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.offset_specs import LATEST
from klamm_mirror.checkpoint import groups
from klamm_mirror.checkpoint.coordinators import Committed
from klamm_mirror.checkpoint.groups import Group, Kind
from klamm_mirror.checkpoint.share_groups import NoShareGroups
from klamm_mirror.checkpoint.translator import GroupTranslator
from klamm_mirror.offsets.mapping import Translated
from klamm_mirror.offsets.translation import Partition
from klamm_mirror.topics import internal_topics
from klamm_mirror.topics.formats import Checkpoint

_NOWHERE: Final = Translated(None, exact=False)


class Verdict(StrEnum):
    """The treatment of a group's offset at the target."""

    SET = "set"
    THERE = "there"
    """It is there already."""
    AHEAD = "ahead"
    """The group has read farther at the target: it is not taken back."""
    UNKNOWN = "unknown"
    """Nothing that is known translates the offset."""
    ACTIVE = "active"
    """The group has members at the target, and keeps its own."""
    TAKEN = "taken"
    """A group of another kind has its name at the target."""
    UNSERVED = "unserved"
    """The target does not know share groups."""
    UNREAD = "unread"
    """A share group without a start offset yet: it begins by the target's `share.auto.offset.reset`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """A group's offset in a partition: `source_offset` at the source, `offset` (None: unknown) for `remote` at the target,
    where it has `before`. `barred`: the reason why nothing can be set there.

    `again` is the number of records from the offset on that the group has finished, and gets again; None: not known.
    """

    group: str
    topic: str
    partition: int
    source_offset: int
    remote: str
    offset: int | None
    exact: bool
    before: int | None
    kind: Kind = Kind.CONSUMER
    again: int | None = 0
    barred: Verdict | None = None
    metadata: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.offset is None:
            return Verdict.UNREAD if self.source_offset < 0 else Verdict.UNKNOWN
        if self.before is not None and self.before >= self.offset:
            return Verdict.THERE if self.before == self.offset else Verdict.AHEAD
        return self.barred or Verdict.SET

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group, "kind": str(self.kind), "topic": self.topic, "partition": self.partition, "offset": self.source_offset,
            "target_topic": self.remote, "target_offset": self.offset, "exact": self.exact,
            "again": self.again, "before": self.before, "verdict": str(self.verdict),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Going:
    """A group's offset in a partition of the source, and where it goes on."""

    topic: str
    partition: int
    committed: Committed
    remote: str
    there: Translated
    again: int | None = 0


async def with_members(cluster: Cluster, wants: Callable[[str], bool]) -> list[str]:
    """Returns the groups that somebody reads with."""
    found = await groups.list_groups(cluster)
    return [name for name, group in found.items() if wants(name) and not group.idle]


async def at_source(
    source: Cluster, target: Cluster, translator: GroupTranslator, wants: Callable[[str], bool]
) -> list[GroupPlace]:
    """Returns the places of all groups, by their committed offsets at the source now."""
    await translator.catch_up()
    there = await groups.list_groups(target)
    found: list[GroupPlace] = []
    for name, group in (await groups.list_groups(source)).items():
        if not wants(name):
            continue
        offsets = await groups.committed_offsets(source, name, group.kind)
        await translator.learn(offsets)
        again = await _again(source, group.kind, offsets)
        mine = []
        for (topic, partition), committed in offsets.items():
            renamed = translator.translate(topic, partition, max(committed.offset, 0))
            if renamed is not None:
                mine.append(
                    _Going(
                        topic=topic, partition=partition, committed=committed, remote=renamed[0],
                        there=renamed[1] if committed.offset >= 0 else _NOWHERE, again=again.get((topic, partition), 0),
                    )
                )  # fmt: skip
        found += await _beside(target, name, group.kind, mine, there.get(name))
    return found


async def _again(
    source: Cluster, kind: Kind, offsets: Mapping[Partition, Committed]
) -> dict[Partition, int | None]:
    """Returns how many records a share group has finished from its start offsets on."""
    if kind is not Kind.SHARE:
        return {}
    started = {place: c for place, c in offsets.items() if c.offset >= 0}
    ends = await internal_topics.offsets_of(source, list(started), LATEST) if started else {}
    return {
        place: None if c.lag is None or place not in ends else max(ends[place] - c.offset - c.lag, 0)
        for place, c in started.items()
    }


async def from_checkpoints(
    checkpoints: Iterable[Checkpoint],
    target: Cluster,
    names: Mapping[str, str],
    translate: Callable[[Checkpoint], Translated],
) -> list[GroupPlace]:
    """Returns the places of groups by their last checkpoints, without the source. `names` are the source's by the target's."""
    by_group: dict[tuple[str, Kind], list[_Going]] = {}
    for c in checkpoints:
        kind = groups.kind_of(c)
        going = _Going(
            topic=names.get(c.topic, c.topic), partition=c.partition, remote=c.topic, there=translate(c),
            committed=Committed(c.upstream_offset, c.metadata), again=None if kind is Kind.SHARE else 0,
        )  # fmt: skip
        by_group.setdefault((c.group, kind), []).append(going)
    there = await groups.list_groups(target)
    return [
        place for (group, kind), mine in sorted(by_group.items())
        for place in await _beside(target, group, kind, mine, there.get(group))
    ]  # fmt: skip


async def _beside(
    target: Cluster, group: str, kind: Kind, mine: Sequence[_Going], listed: Group | None
) -> list[GroupPlace]:
    """Returns a group's places with what it has at the target. `listed`: the group of its name there."""
    if not mine:
        return []
    barred, there = bar(kind, listed), dict[Partition, Committed]()
    if barred is not Verdict.TAKEN:
        try:
            there = await groups.committed_offsets(target, group, kind)
        except NoShareGroups:
            barred = Verdict.UNSERVED
    before = {place: c.offset for place, c in there.items() if c.offset >= 0}
    return [
        GroupPlace(
            group=group, kind=kind, topic=m.topic, partition=m.partition, source_offset=m.committed.offset,
            remote=m.remote, offset=m.there.offset, exact=m.there.exact, again=m.again, barred=barred,
            metadata=m.committed.metadata, before=before.get((m.remote, m.partition)),
        )
        for m in sorted(mine, key=lambda m: (m.topic, m.partition))
    ]  # fmt: skip


def bar(kind: Kind, listed: Group | None) -> Verdict | None:
    """Returns why a group's offsets cannot be set at the target. Pure."""
    if listed is None:
        return None
    if listed.kind is not kind:
        return Verdict.TAKEN
    return None if listed.idle else Verdict.ACTIVE


async def set_places(target: Cluster, places: Iterable[GroupPlace]) -> list[str]:
    """Sets the offsets whose verdict is SET. Returns a sentence for each that the coordinator refused."""
    by_group: dict[tuple[str, Kind], dict[Partition, Committed]] = {}
    for p in places:
        if p.verdict is Verdict.SET and p.offset is not None:
            mine = by_group.setdefault((p.group, p.kind), {})
            mine[p.remote, p.partition] = Committed(p.offset, p.metadata)
    return [
        said for (group, kind), mine in by_group.items() for said in await _commit(target, group, kind, mine)
    ]


async def restore(target: Cluster, before: Mapping[str, Mapping[Partition, int | None]]) -> list[str]:
    """Gives groups the offsets back that they had; None: they had none. Returns a sentence for each that was refused.

    A share group keeps a new start offset in a topic where it had another one: it reads no record twice for that.
    """
    said, listed = list[str](), await groups.list_groups(target)
    for group, each in before.items():
        kind = listed[group].kind if group in listed else Kind.CONSUMER
        none = [p for p, o in each.items() if o is None]
        had = {p: Committed(o) for p, o in each.items() if o is not None}
        if kind is Kind.SHARE and none:
            none = in_whole_topics(none, await groups.committed_offsets(target, group, kind))
        if none:
            said += _kept(group, await groups.forget_offsets(target, group, none, kind))
        if had:
            said += await _commit(target, group, kind, had)
    return said


def in_whole_topics(wanted: Sequence[Partition], there: Iterable[Partition]) -> list[Partition]:
    """Returns the wanted partitions of topics in which the group has no others: a share group forgets whole topics only. Pure."""
    mixed = {topic for topic, partition in there if (topic, partition) not in wanted}
    return [place for place in wanted if place[0] not in mixed]


async def _commit(
    target: Cluster, group: str, kind: Kind, wanted: Mapping[Partition, Committed]
) -> list[str]:
    return _kept(group, await groups.commit_offsets(target, group, wanted, kind))


def _kept(group: str, refused: Mapping[Partition, int]) -> list[str]:
    """Returns a sentence for each offset that the coordinator did not change. Pure."""
    return [
        f"group {group} keeps its offset in {topic}-{partition}: {ErrorCode(code).name}"
        for (topic, partition), code in refused.items()
    ]
