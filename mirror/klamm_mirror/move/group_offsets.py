"""The offsets of groups that move: where each goes on, what it had there before, and setting and restoring that.

Raises ClientError. A group with members keeps its offsets: its coordinator refuses others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from klamm_kafka.client import Cluster, broker_error
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from klamm_mirror.checkpoint import groups
from klamm_mirror.checkpoint.groups import IDLE, Committed
from klamm_mirror.checkpoint.translator import GroupTranslator
from klamm_mirror.offsets.mapping import Translated
from klamm_mirror.offsets.translation import Partition
from klamm_mirror.topics.formats import Checkpoint


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """A group's offset in a partition: `source_offset` at the source, `offset` (None: unknown) for `remote` at the target,
    where it has `before`.
    """

    group: str
    topic: str
    partition: int
    source_offset: int
    remote: str
    offset: int | None
    exact: bool
    before: int | None
    active: bool = False
    metadata: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.offset is None:
            return Verdict.UNKNOWN
        if self.before is not None and self.before >= self.offset:
            return Verdict.THERE if self.before == self.offset else Verdict.AHEAD
        return Verdict.ACTIVE if self.active else Verdict.SET

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group, "topic": self.topic, "partition": self.partition, "offset": self.source_offset,
            "target_topic": self.remote, "target_offset": self.offset, "exact": self.exact,
            "before": self.before, "verdict": str(self.verdict),
        }  # fmt: skip


async def with_members(cluster: Cluster, wants: Callable[[str], bool]) -> list[str]:
    """Returns the groups that somebody reads with."""
    found = await groups.consumer_groups(cluster)
    return [group for group, state in found.items() if wants(group) and state not in IDLE]


async def at_source(
    source: Cluster, target: Cluster, translator: GroupTranslator, wants: Callable[[str], bool]
) -> list[GroupPlace]:
    """Returns the places of all groups, by their committed offsets at the source now."""
    await translator.catch_up()
    active = await with_members(target, wants)
    found: list[GroupPlace] = []
    for group in [g for g in await groups.consumer_groups(source) if wants(g)]:
        mine = []
        offsets = await groups.committed_offsets(source, group)
        await translator.learn(offsets)
        for (topic, partition), committed in offsets.items():
            there = translator.translate(topic, partition, committed.offset)
            if there is not None:
                mine.append(((topic, partition), committed, *there))
        found += await _beside(target, group, mine, active=group in active)
    return found


async def from_checkpoints(
    checkpoints: Iterable[Checkpoint],
    target: Cluster,
    names: Mapping[str, str],
    translate: Callable[[Checkpoint], Translated],
) -> list[GroupPlace]:
    """Returns the places of groups by their last checkpoints, without the source. `names` are the source's by the target's."""
    by_group: dict[str, list[tuple[Partition, Committed, str, Translated]]] = {}
    for c in checkpoints:
        place = (names.get(c.topic, c.topic), c.partition), Committed(c.upstream_offset, c.metadata)
        by_group.setdefault(c.group, []).append((*place, c.topic, translate(c)))
    active = await with_members(target, by_group.__contains__)
    return [
        place for group, mine in sorted(by_group.items())
        for place in await _beside(target, group, mine, active=group in active)
    ]  # fmt: skip


async def _beside(
    target: Cluster, group: str, mine: Sequence[tuple[Partition, Committed, str, Translated]], *, active: bool
) -> list[GroupPlace]:
    """Returns a group's places with what it has at the target. `active`: it has members there."""
    if not mine:
        return []
    there = await groups.committed_offsets(target, group)
    return [
        GroupPlace(
            group=group, topic=topic, partition=partition, source_offset=committed.offset, remote=remote,
            offset=found.offset, exact=found.exact, active=active, metadata=committed.metadata,
            before=there[remote, partition].offset if (remote, partition) in there else None,
        )
        for (topic, partition), committed, remote, found in sorted(mine, key=lambda m: m[0])
    ]  # fmt: skip


async def set_places(target: Cluster, places: Iterable[GroupPlace]) -> list[str]:
    """Sets the offsets whose verdict is SET. Returns a sentence for each that the coordinator refused."""
    by_group: dict[str, dict[Partition, Committed]] = {}
    for p in places:
        if p.verdict is Verdict.SET and p.offset is not None:
            by_group.setdefault(p.group, {})[p.remote, p.partition] = Committed(p.offset, p.metadata)
    return await _commit(target, by_group)


async def restore(target: Cluster, before: Mapping[str, Mapping[Partition, int | None]]) -> list[str]:
    """Gives groups the offsets back that they had; None: they had none. Returns a sentence for each that was refused."""
    had = {g: {p: Committed(o) for p, o in each.items() if o is not None} for g, each in before.items()}
    said = await _commit(target, {g: each for g, each in had.items() if each})
    for group, each in before.items():
        none = [p for p, o in each.items() if o is None]
        if none:
            said += await _forget(target, group, none)
    return said


async def _commit(target: Cluster, wanted: Mapping[str, Mapping[Partition, Committed]]) -> list[str]:
    said = []
    for group, offsets in wanted.items():
        refused = await groups.commit_offsets(target, group, offsets)
        said += [
            f"group {group} keeps its offset in {topic}-{partition}: {ErrorCode(code).name}"
            for (topic, partition), code in refused.items()
        ]
    return said


async def _forget(target: Cluster, group: str, partitions: Sequence[Partition]) -> list[str]:
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=partition))
    request = OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=t, partitions=p) for t, p in topics.items()]
    )
    answer: OffsetDeleteResponse = await (await target.coordinator(group)).request(request)
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return []
    if answer.error_code:
        target.forget_coordinator(group)
        raise broker_error(answer.error_code, f"deleting offsets of group {group}")
    return [
        f"group {group} keeps its offset in {topic.name}-{p.partition_index}: error {p.error_code}"
        for topic in answer.topics for p in topic.partitions if p.error_code
    ]  # fmt: skip
