"""Consumer groups of both kinds: their members, their committed offsets, and changes of both.

ConsumerGroupDescribe (69) describes a group of the consumer protocol (KIP-848), DescribeGroups (15) any other: we ask
the first, and the second for groups that the first does not know, as Kafka's own client does.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import Node, TopicPartition, by_topic
from klamm_kafka.client import UnsupportedApi
from klamm_kafka.wire.errors import ErrorCode, ProtocolError
from klamm_kafka.wire.messages import consumer_group_describe as describe_848
from klamm_kafka.wire.messages import describe_groups as describe_classic
from klamm_kafka.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from klamm_kafka.wire.messages.delete_groups import DeleteGroupsRequest
from klamm_kafka.wire.messages.list_groups import ListGroupsRequest
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm_kafka.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from klamm_kafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"
TYPES: Final = (CLASSIC, CONSUMER)
LISTED_TYPES: Final = (*TYPES, "Share", "Streams")
STATES: Final = (
    "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling",
)  # fmt: skip
EMPTY: Final = ("Empty", "Dead")
_NAMES_UP_TO: Final = 9  # OffsetFetch and OffsetCommit: later versions speak of topics by their ids only
_UPGRADED: Final = {0: False, 1: True}  # member_type: a classic member in a group of the consumer protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in a list. `type` is "" when the broker is too old to say."""

    group: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a group. Epoch and target belong to the consumer protocol: None for a classic group."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] = ()
    epoch: int | None = None
    upgraded: bool | None = None
    """True for a member that speaks the consumer protocol itself; None where the broker does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as its coordinator describes it. The epochs belong to the consumer protocol."""

    group: str
    type: str
    state: str
    assignor: str
    coordinator: Node
    members: tuple[Member, ...]
    epoch: int | None = None
    target_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A committed offset."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


# ---- lists


async def list_groups(
    admin: Admin, *, types: Collection[str] = (), states: Collection[str] = (), consumers_only: bool = True
) -> list[GroupListing]:
    """Return the groups of all brokers by name. `consumers_only` leaves out other kinds that are not in `types`."""
    others = set(types) - set(TYPES)
    asked_types = list(types) or (list(TYPES) if consumers_only else [])
    found: dict[str, GroupListing] = {}
    for node_id in await admin.brokers():
        answer = await _list_of(admin, node_id, asked_types, list(states))
        for g in answer.groups:
            kind = _type_name(g.group_type)
            if kind in others or not consumers_only or g.protocol_type in ("", "consumer"):
                found[g.group_id] = GroupListing(
                    group=g.group_id,
                    protocol_type=g.protocol_type,
                    state=g.group_state,
                    type=kind,
                )
    return [found[name] for name in sorted(found)]


async def _list_of(admin: Admin, node_id: int, types: list[str], states: list[str]) -> Any:
    async def attempt() -> Any:
        asked = ListGroupsRequest(states_filter=states, types_filter=types)
        try:
            answer = await admin.ask_broker(node_id, asked, floor=5 if types else 4 if states else 0)
        except UnsupportedApi:
            if states or set(types) - set(TYPES):
                raise
            answer = await admin.ask_broker(node_id, ListGroupsRequest())  # knows classic groups only
        if answer.error_code:
            raise AdminError(answer.error_code, f"cannot list the groups of broker {node_id}")
        return answer

    return await admin.patiently(attempt)


def _type_name(told: str) -> str:
    return told[:1].upper() + told[1:]


# ---- descriptions


async def describe_group(admin: Admin, group: str) -> Group:
    """Return a group as its coordinator knows it. Raises AdminError with GROUP_ID_NOT_FOUND for an unknown group."""

    async def attempt() -> Group:
        coordinator = await admin.coordinator(group)
        modern = await _describe_848(admin, group, coordinator)
        return modern if modern is not None else await _describe_classic(admin, group, coordinator)

    return await admin.patiently(attempt)


async def _describe_848(admin: Admin, group: str, coordinator: Node) -> Group | None:
    """Return a group of the consumer protocol; None for any other group."""
    try:
        answer = await admin.ask_coordinator(
            group, describe_848.ConsumerGroupDescribeRequest(group_ids=[group])
        )
    except UnsupportedApi:
        return None
    found: describe_848.DescribedGroup = answer.groups[0]
    if found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    admin.refused(group, found.error_code, f"cannot describe group {group!r}", found.error_message)
    return Group(
        group=group,
        type=CONSUMER,
        state=found.group_state,
        assignor=found.assignor_name,
        coordinator=coordinator,
        members=tuple(_member_848(m) for m in found.members),
        epoch=found.group_epoch,
        target_epoch=found.assignment_epoch,
    )


def _member_848(member: describe_848.Member) -> Member:
    return Member(
        id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_partitions_848(member.assignment),
        target=_partitions_848(member.target_assignment),
        epoch=member.member_epoch,
        upgraded=_UPGRADED.get(member.member_type),
    )


def _partitions_848(assignment: describe_848.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(t.topic_name, p) for t in assignment.topic_partitions for p in t.partitions)
    )


async def _describe_classic(admin: Admin, group: str, coordinator: Node) -> Group:
    answer = await admin.ask_coordinator(group, describe_classic.DescribeGroupsRequest(groups=[group]))
    found: describe_classic.DescribedGroup = answer.groups[0]
    admin.refused(group, found.error_code, f"cannot describe group {group!r}", found.error_message)
    if found.protocol_type not in ("", "consumer"):
        raise AdminError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"cannot describe group {group!r}",
            f"GroupId {group} is not a consumer group ({found.protocol_type}).",
        )
    return Group(
        group=group,
        type=CLASSIC,
        state=found.group_state,
        assignor=found.protocol_data,
        coordinator=coordinator,
        members=tuple(_member_classic(m) for m in found.members),
    )


def _member_classic(member: describe_classic.DescribedGroupMember) -> Member:
    return Member(
        id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=assigned(member.member_assignment),
    )


def assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a consumer's assignment; none while the group is rebalancing, or for bytes that are no
    assignment.
    """
    try:
        (version,) = struct.unpack_from(">h", data)
        known = min(version, ConsumerProtocolAssignment.MAX_VERSION)
        message, _ = ConsumerProtocolAssignment.decode(data, known, 2)
    except (struct.error, ProtocolError):
        return ()
    return tuple(
        sorted(TopicPartition(t.topic, p) for t in message.assigned_partitions for p in t.partitions)
    )


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as `topic:0,1;topic2:0`."""
    return ";".join(f"{topic}:{','.join(map(str, ids))}" for topic, ids in by_topic(partitions).items())


# ---- offsets


async def committed(admin: Admin, group: str) -> dict[TopicPartition, Committed]:
    """Return all committed offsets of a group, by topic and partition; none for a group that does not exist."""
    what = f"cannot read the offsets of group {group!r}"

    async def attempt() -> dict[TopicPartition, Committed]:
        await admin.coordinator(group)
        try:
            asked = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=False
            )
            answer = await admin.ask_coordinator(group, asked, cap=_NAMES_UP_TO)
        except ProtocolError:  # a broker from before many groups fit a request
            asked = OffsetFetchRequest(group_id=group, topics=None)
            answer = await admin.ask_coordinator(group, asked, cap=7)
        found = answer.groups[0] if answer.groups else answer
        admin.refused(group, found.error_code, what)
        for t in found.topics:
            for p in t.partitions:
                admin.refused(group, p.error_code, f"{what}: {t.name}-{p.partition_index}")
        rows = {
            TopicPartition(t.name, p.partition_index): Committed(
                offset=p.committed_offset,
                leader_epoch=None if p.committed_leader_epoch < 0 else p.committed_leader_epoch,
                metadata=p.metadata or "",
            )
            for t in found.topics
            for p in t.partitions
            if p.committed_offset >= 0
        }
        return dict(sorted(rows.items()))

    return await admin.patiently(attempt)


async def commit(
    admin: Admin,
    group: str,
    offsets: Mapping[TopicPartition, int],
    *,
    metadata: Mapping[TopicPartition, str] | None = None,
) -> None:
    """Set a group's offsets from outside; it must have no members. Raises AdminError naming what was refused."""
    if not offsets:
        return
    texts = metadata or {}
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=p,
                    committed_offset=offsets[TopicPartition(topic, p)],
                    committed_metadata=texts.get(TopicPartition(topic, p), ""),
                )
                for p in ids
            ],
        )
        for topic, ids in by_topic(offsets).items()
    ]

    async def attempt() -> None:
        answer = await admin.ask_coordinator(
            group, OffsetCommitRequest(group_id=group, topics=topics), cap=_NAMES_UP_TO
        )
        for t in answer.topics:
            for p in t.partitions:
                what = f"cannot set the offset of {t.name}-{p.partition_index} in group {group!r}"
                admin.refused(group, p.error_code, what)

    await admin.patiently(attempt)


async def delete_offsets(
    admin: Admin, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, AdminError | None]:
    """Forget committed offsets: an error or None for each. Raises AdminError when the group itself is the reason."""
    wanted = sorted(set(partitions))
    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in ids]
        )
        for topic, ids in by_topic(wanted).items()
    ]

    async def attempt() -> dict[TopicPartition, AdminError | None]:
        answer = await admin.ask_coordinator(group, OffsetDeleteRequest(group_id=group, topics=topics))
        admin.refused(group, answer.error_code, f"cannot delete offsets of group {group!r}")
        return {
            TopicPartition(t.name, p.partition_index): AdminError(
                p.error_code, f"{t.name}-{p.partition_index}"
            )
            if p.error_code
            else None
            for t in answer.topics
            for p in t.partitions
        }

    return await admin.patiently(attempt)


async def delete_group(admin: Admin, group: str) -> None:
    """Delete a group without members and its offsets. Raises AdminError."""

    async def attempt() -> None:
        answer = await admin.ask_coordinator(group, DeleteGroupsRequest(groups_names=[group]))
        admin.refused(group, answer.results[0].error_code, f"cannot delete group {group!r}")

    await admin.patiently(attempt)
