"""Share groups (KIP-932): their members, their start offsets, and changes of both."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.groups import Group, Member, list_groups
from klamm.admin.model import TopicPartition, by_topic
from klamm_kafka.wire.messages import alter_share_group_offsets as alter
from klamm_kafka.wire.messages import delete_share_group_offsets as delete
from klamm_kafka.wire.messages import describe_share_group_offsets as describe
from klamm_kafka.wire.messages.share_group_describe import Member as DescribedMember
from klamm_kafka.wire.messages.share_group_describe import ShareGroupDescribeRequest

SHARE: Final = "Share"
STATES: Final = ("Empty", "Stable", "Dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of a share group in a partition. None: not begun, or not told."""

    offset: int | None
    leader_epoch: int | None
    lag: int | None
    """Records from there on that are not done."""


async def share_groups(admin: Admin, states: Collection[str] = ()) -> list[str]:
    """Return the names of all share groups."""
    return [g.group for g in await list_groups(admin, types=[SHARE], states=states)]


async def describe_share_group(admin: Admin, group: str) -> Group:
    """Return a share group as its coordinator knows it. Raises AdminError with GROUP_ID_NOT_FOUND for an unknown group."""

    async def attempt() -> Group:
        coordinator = await admin.coordinator(group)
        answer = await admin.ask_coordinator(group, ShareGroupDescribeRequest(group_ids=[group]))
        found = answer.groups[0]
        admin.refused(group, found.error_code, f"cannot describe share group {group!r}", found.error_message)
        return Group(
            group=group,
            type=SHARE,
            state=found.group_state,
            assignor=found.assignor_name,
            coordinator=coordinator,
            members=tuple(_member(m) for m in found.members),
            epoch=found.group_epoch,
            target_epoch=found.assignment_epoch,
        )

    return await admin.patiently(attempt)


def _member(member: DescribedMember) -> Member:
    partitions = sorted(
        TopicPartition(t.topic_name, p) for t in member.assignment.topic_partitions for p in t.partitions
    )
    return Member(
        id=member.member_id,
        instance_id=None,
        client_id=member.client_id,
        host=member.client_host,
        assignment=tuple(partitions),
        epoch=member.member_epoch,
    )


async def starts(admin: Admin, group: str) -> dict[TopicPartition, Start]:
    """Return the start offsets of all partitions that a share group reads or has read."""
    what = f"cannot read the offsets of share group {group!r}"

    async def attempt() -> dict[TopicPartition, Start]:
        asked = describe.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        answer = await admin.ask_coordinator(group, describe.DescribeShareGroupOffsetsRequest(groups=[asked]))
        (found,) = answer.groups
        admin.refused(group, found.error_code, what, found.error_message)
        rows: dict[TopicPartition, Start] = {}
        for t in found.topics:
            for p in t.partitions:
                admin.refused(
                    group, p.error_code, f"{what}: {t.topic_name}-{p.partition_index}", p.error_message
                )
                rows[TopicPartition(t.topic_name, p.partition_index)] = _start(p)
        return dict(sorted(rows.items()))

    return await admin.patiently(attempt)


def _start(told: describe.DescribeShareGroupOffsetsResponsePartition) -> Start:
    if told.start_offset < 0:
        return Start(offset=None, leader_epoch=None, lag=None)
    return Start(
        offset=told.start_offset, leader_epoch=told.leader_epoch, lag=None if told.lag < 0 else told.lag
    )


async def set_starts(admin: Admin, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set start offsets of a share group without members, which is made if necessary. Raises AdminError naming what was refused."""
    if not offsets:
        return
    topics = [
        alter.AlterShareGroupOffsetsRequestTopic(
            topic_name=topic,
            partitions=[
                alter.AlterShareGroupOffsetsRequestPartition(
                    partition_index=p, start_offset=offsets[TopicPartition(topic, p)]
                )
                for p in ids
            ],
        )
        for topic, ids in by_topic(offsets).items()
    ]

    async def attempt() -> None:
        answer = await admin.ask_coordinator(
            group, alter.AlterShareGroupOffsetsRequest(group_id=group, topics=topics)
        )
        what = f"cannot set the offsets of share group {group!r}"
        admin.refused(group, answer.error_code, what, answer.error_message)
        for t in answer.responses:
            for p in t.partitions:
                admin.refused(
                    group, p.error_code, f"{what}: {t.topic_name}-{p.partition_index}", p.error_message
                )

    await admin.patiently(attempt)


async def forget_starts(admin: Admin, group: str, topics: Sequence[str]) -> dict[str, AdminError | None]:
    """Forget the start offsets of topics: an error or None for each. Raises AdminError when the group itself is the reason."""
    asked = [delete.DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]

    async def attempt() -> dict[str, AdminError | None]:
        answer = await admin.ask_coordinator(
            group, delete.DeleteShareGroupOffsetsRequest(group_id=group, topics=asked)
        )
        what = f"cannot delete offsets of share group {group!r}"
        admin.refused(group, answer.error_code, what, answer.error_message)
        return {
            t.topic_name: AdminError(t.error_code, t.topic_name, t.error_message) if t.error_code else None
            for t in answer.responses
        }

    return await admin.patiently(attempt)
