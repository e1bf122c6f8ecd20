"""Streams groups (KIP-1071): their topology, and members with their tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.groups import Committed, committed, list_groups
from klamm.admin.model import Node, TopicPartition
from klamm.admin.offsets import known_offsets
from klamm_kafka.wire.messages import streams_group_describe as wire
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

STREAMS: Final = "Streams"
STATES: Final = ("Assigning", "Empty", "Dead", "Reconciling", "Stable", "NotReady")

Tasks = Mapping[str, tuple[int, ...]]
"""Partitions by subtopology."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """The tasks of a member, by their role."""

    active: Tasks
    standby: Tasks
    warmup: Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    """A member of a Streams group."""

    id: str
    client_id: str
    process_id: str
    epoch: int
    topology_epoch: int
    is_classic: bool
    assignment: TaskSet
    target: TaskSet


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroup:
    """A Streams group as its coordinator describes it."""

    group: str
    state: str
    coordinator: Node
    epoch: int
    target_epoch: int
    members: tuple[StreamsMember, ...]
    topics: tuple[str, ...]
    """Source topics and repartition topics, which its tasks read."""
    internal_topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsPosition:
    """The progress of a group in a partition."""

    partition: TopicPartition
    committed: Committed | None
    start: int
    end: int

    @property
    def lag(self) -> int:
        """Records behind the committed offset, or all of them."""
        return self.end - (self.start if self.committed is None else self.committed.offset)


async def streams_groups(admin: Admin, states: Collection[str] = ()) -> list[str]:
    """Return the names of all Streams groups."""
    return [g.group for g in await list_groups(admin, types=[STREAMS], states=states)]


async def describe_streams_group(admin: Admin, group: str) -> StreamsGroup:
    """Return a Streams group as its coordinator knows it. Raises AdminError with GROUP_ID_NOT_FOUND for an unknown group."""

    async def attempt() -> StreamsGroup:
        coordinator = await admin.coordinator(group)
        answer = await admin.ask_coordinator(group, wire.StreamsGroupDescribeRequest(group_ids=[group]))
        found: wire.DescribedGroup = answer.groups[0]
        admin.refused(
            group, found.error_code, f"cannot describe Streams group {group!r}", found.error_message
        )
        parts = (found.topology.subtopologies or []) if found.topology else []
        repartition = [t.name for s in parts for t in s.repartition_source_topics]
        changelogs = [t.name for s in parts for t in s.state_changelog_topics]
        sources = [name for s in parts for name in s.source_topics]
        return StreamsGroup(
            group=group,
            state=found.group_state,
            coordinator=coordinator,
            epoch=found.group_epoch,
            target_epoch=found.assignment_epoch,
            members=tuple(_member(m) for m in found.members),
            topics=tuple(dict.fromkeys([*sources, *repartition])),
            internal_topics=tuple(dict.fromkeys([*repartition, *changelogs])),
        )

    return await admin.patiently(attempt)


def _member(member: wire.Member) -> StreamsMember:
    return StreamsMember(
        id=member.member_id,
        client_id=member.client_id,
        process_id=member.process_id,
        epoch=member.member_epoch,
        topology_epoch=member.topology_epoch,
        is_classic=member.is_classic,
        assignment=_task_set(member.assignment),
        target=_task_set(member.target_assignment),
    )


def _task_set(tasks: wire.Assignment) -> TaskSet:
    return TaskSet(
        active=_tasks(tasks.active_tasks),
        standby=_tasks(tasks.standby_tasks),
        warmup=_tasks(tasks.warmup_tasks),
    )


def _tasks(told: Iterable[wire.TaskIds]) -> Tasks:
    return {t.subtopology_id: tuple(sorted(t.partitions)) for t in told}


async def positions(admin: Admin, group: StreamsGroup) -> list[StreamsPosition]:
    """Return how far the group has come in each partition of its topics. Raises AdminError."""
    answer = await admin.metadata(sorted(group.topics)) if group.topics else None
    partitions = [
        TopicPartition(t.name or "", p.partition_index)
        for t in (answer.topics if answer else ())
        for p in t.partitions
    ]
    offsets = await committed(admin, group.group)
    starts = await known_offsets(admin, partitions, EARLIEST)
    ends = await known_offsets(admin, partitions, LATEST)
    return [
        StreamsPosition(partition=tp, committed=offsets.get(tp), start=starts[tp], end=ends[tp])
        for tp in sorted(partitions)
    ]
