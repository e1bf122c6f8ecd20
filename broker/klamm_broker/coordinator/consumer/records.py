"""The records of consumer groups in `__consumer_offsets`, as Kafka writes and reads them.

A key's int16 version tells the kind of record. `ConsumerRecord` pairs key and value as messages (`kind_record.py`); a group takes
them in with `apply`, live and when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from klamm_broker.coordinator.consumer.member import ClassicSide, ConsumerMember, MemberState, Owned
from klamm_broker.coordinator.kind_record import KindRecord
from klamm_broker.coordinator.model import Protocol
from klamm_kafka.wire.messages import consumer_group_records as wire

GroupKey = wire.ConsumerGroupMetadataKey
GroupValue = wire.ConsumerGroupMetadataValue
PartitionMetadataKey = wire.ConsumerGroupPartitionMetadataKey
PartitionMetadataValue = wire.ConsumerGroupPartitionMetadataValue
MemberKey = wire.ConsumerGroupMemberMetadataKey
MemberValue = wire.ConsumerGroupMemberMetadataValue
TargetEpochKey = wire.ConsumerGroupTargetAssignmentMetadataKey
TargetEpochValue = wire.ConsumerGroupTargetAssignmentMetadataValue
TargetKey = wire.ConsumerGroupTargetAssignmentMemberKey
TargetValue = wire.ConsumerGroupTargetAssignmentMemberValue
CurrentKey = wire.ConsumerGroupCurrentMemberAssignmentKey
CurrentValue = wire.ConsumerGroupCurrentMemberAssignmentValue
RegexKey = wire.ConsumerGroupRegularExpressionKey
RegexValue = wire.ConsumerGroupRegularExpressionValue


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched at the last look."""

    topics: frozenset[str]
    version: int = 0
    """The version of the topics, as `Topics.version`."""
    timestamp_ms: int = -(2**63)
    """Wall clock."""


class ConsumerRecord(KindRecord):
    __slots__ = ()
    kind = "consumer"
    types = {  # noqa: RUF012  # one table for all
        3: (GroupKey, GroupValue),
        4: (PartitionMetadataKey, PartitionMetadataValue),
        5: (MemberKey, MemberValue),
        6: (TargetEpochKey, TargetEpochValue),
        7: (TargetKey, TargetValue),
        8: (CurrentKey, CurrentValue),
        16: (RegexKey, RegexValue),
    }


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> ConsumerRecord:
    return ConsumerRecord(GroupKey(group_id=group_id), GroupValue(epoch=epoch, metadata_hash=metadata_hash))


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> ConsumerRecord:
    value = TargetEpochValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return ConsumerRecord(TargetEpochKey(group_id=group_id), value)


def target(group_id: str, member_id: str, assignment: Mapping[bytes, AbstractSet[int]]) -> ConsumerRecord:
    partitions = [
        wire.TopicPartition(topic_id=topic_id, partitions=sorted(found))
        for topic_id, found in assignment.items()
    ]
    key = TargetKey(group_id=group_id, member_id=member_id)
    return ConsumerRecord(key, TargetValue(topic_partitions=partitions))


def member(group_id: str, it: ConsumerMember) -> ConsumerRecord:
    """Returns the record of a member's own description."""
    classic = None
    if it.classic is not None:
        classic = wire.ClassicMemberMetadata(
            session_timeout_ms=it.classic.session_timeout_ms,
            supported_protocols=[
                wire.ClassicProtocol(name=p.name, metadata=p.metadata) for p in it.classic.protocols
            ],
        )
    value = MemberValue(
        instance_id=it.instance_id,
        rack_id=it.rack_id,
        client_id=it.client_id,
        client_host=it.client_host,
        subscribed_topic_names=sorted(it.topics),
        subscribed_topic_regex=it.regex,
        rebalance_timeout_ms=it.rebalance_timeout_ms,
        server_assignor=it.server_assignor,
        classic_member_metadata=classic,
    )
    return ConsumerRecord(MemberKey(group_id=group_id, member_id=it.member_id), value)


def current(group_id: str, it: ConsumerMember) -> ConsumerRecord:
    """Returns the record of a member's partitions and epoch."""
    value = CurrentValue(
        member_epoch=it.epoch,
        previous_member_epoch=it.previous_epoch,
        state=it.state,
        assigned_partitions=_stored(it.assigned),
        partitions_pending_revocation=_stored(it.revoking),
    )
    return ConsumerRecord(CurrentKey(group_id=group_id, member_id=it.member_id), value)


def regex(group_id: str, expression: str, resolved: ResolvedRegex) -> ConsumerRecord:
    value = RegexValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return ConsumerRecord(RegexKey(group_id=group_id, regular_expression=expression), value)


def regex_tombstone(group_id: str, expression: str) -> ConsumerRecord:
    return ConsumerRecord(RegexKey(group_id=group_id, regular_expression=expression), None)


def partition_metadata_tombstone(group_id: str) -> ConsumerRecord:
    """Returns the tombstone of a record in which Kafka 4.0 kept what is hashed today; the next change writes it."""
    return ConsumerRecord(PartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[ConsumerRecord]:
    """Returns the tombstones of a member, in Kafka's order."""
    keys = (
        CurrentKey(group_id=group_id, member_id=member_id),
        TargetKey(group_id=group_id, member_id=member_id),
        MemberKey(group_id=group_id, member_id=member_id),
    )
    return [ConsumerRecord(key, None) for key in keys]


def group_tombstones(group_id: str) -> list[ConsumerRecord]:
    """Returns the tombstones of a group whose members are gone."""
    keys = (
        TargetEpochKey(group_id=group_id),
        PartitionMetadataKey(group_id=group_id),
        GroupKey(group_id=group_id),
    )
    return [ConsumerRecord(key, None) for key in keys]


def described_member(it: ConsumerMember, value: MemberValue) -> dict[str, Any]:
    """Returns the fields of a member that its metadata record holds."""
    classic = value.classic_member_metadata
    return {
        "member_id": it.member_id,
        "instance_id": value.instance_id,
        "rack_id": value.rack_id,
        "client_id": value.client_id,
        "client_host": value.client_host,
        "topics": frozenset(value.subscribed_topic_names),
        "regex": value.subscribed_topic_regex or "",
        "rebalance_timeout_ms": value.rebalance_timeout_ms,
        "server_assignor": value.server_assignor,
        "classic": None
        if classic is None
        else ClassicSide(
            session_timeout_ms=classic.session_timeout_ms,
            protocols=tuple(Protocol(p.name, p.metadata) for p in classic.supported_protocols),
        ),
    }


def current_of(value: CurrentValue) -> dict[str, Any]:
    """Returns the fields of a member that its current assignment's record holds."""
    return {
        "epoch": value.member_epoch,
        "previous_epoch": value.previous_member_epoch,
        "state": MemberState.of(value.state),
        "assigned": _restored(value.assigned_partitions, value.member_epoch),
        "revoking": _restored(value.partitions_pending_revocation, value.member_epoch),
    }


def _stored(owned: Owned) -> list[wire.TopicPartitions]:
    return [
        wire.TopicPartitions(
            topic_id=topic_id,
            partitions=list(partitions),
            assignment_epochs=list(partitions.values()),
        )
        for topic_id, partitions in owned.items()
    ]


def _restored(stored: list[wire.TopicPartitions], epoch: int) -> dict[bytes, dict[int, int]]:
    """Returns the stored partitions with their epochs. Kafka before 4.3 stored no epochs: then the member's counts."""
    result = {}
    for item in stored:
        epochs = item.assignment_epochs
        if epochs is None or len(epochs) != len(item.partitions):
            epochs = [max(epoch, 0)] * len(item.partitions)
        result[item.topic_id] = dict(zip(item.partitions, epochs, strict=True))
    return result
