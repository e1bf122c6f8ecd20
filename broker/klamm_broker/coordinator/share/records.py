"""The records of share groups in `__consumer_offsets`, as Kafka writes and reads them.

A key's int16 version tells the kind of record. `ShareRecord` pairs key and value as messages (`kind_record.py`); a group takes them in with
`apply`, live and when it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from klamm_broker.coordinator.kind_record import KindRecord
from klamm_broker.coordinator.share.member import ShareMember
from klamm_kafka.wire.messages import share_group_records as wire

MemberKey = wire.ShareGroupMemberMetadataKey
MemberValue = wire.ShareGroupMemberMetadataValue
GroupKey = wire.ShareGroupMetadataKey
GroupValue = wire.ShareGroupMetadataValue
TargetEpochKey = wire.ShareGroupTargetAssignmentMetadataKey
TargetEpochValue = wire.ShareGroupTargetAssignmentMetadataValue
TargetKey = wire.ShareGroupTargetAssignmentMemberKey
TargetValue = wire.ShareGroupTargetAssignmentMemberValue
CurrentKey = wire.ShareGroupCurrentMemberAssignmentKey
CurrentValue = wire.ShareGroupCurrentMemberAssignmentValue
StateKey = wire.ShareGroupStatePartitionMetadataKey
StateValue = wire.ShareGroupStatePartitionMetadataValue


class TopicState(NamedTuple):
    """The partitions of a topic whose state is stored, or is being made since then (wall clock)."""

    name: str
    partitions: frozenset[int]
    since_ms: int = 0


Topics = Mapping[bytes, TopicState]
"""By topic id."""


class ShareRecord(KindRecord):
    __slots__ = ()
    kind = "share"
    types = {  # noqa: RUF012  # one table for all
        10: (MemberKey, MemberValue),
        11: (GroupKey, GroupValue),
        12: (TargetEpochKey, TargetEpochValue),
        13: (TargetKey, TargetValue),
        14: (CurrentKey, CurrentValue),
        15: (StateKey, StateValue),
    }


def member(group_id: str, it: ShareMember) -> ShareRecord:
    """Returns the record of a member's own description."""
    value = MemberValue(
        rack_id=it.rack_id,
        client_id=it.client_id,
        client_host=it.client_host,
        subscribed_topic_names=sorted(it.topics),
    )
    return ShareRecord(MemberKey(group_id=group_id, member_id=it.member_id), value)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> ShareRecord:
    return ShareRecord(GroupKey(group_id=group_id), GroupValue(epoch=epoch, metadata_hash=metadata_hash))


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> ShareRecord:
    value = TargetEpochValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return ShareRecord(TargetEpochKey(group_id=group_id), value)


def target(group_id: str, member_id: str, assignment: Mapping[bytes, AbstractSet[int]]) -> ShareRecord:
    partitions = [
        wire.TopicPartition(topic_id=topic_id, partitions=sorted(found))
        for topic_id, found in assignment.items()
    ]
    key = TargetKey(group_id=group_id, member_id=member_id)
    return ShareRecord(key, TargetValue(topic_partitions=partitions))


def current(group_id: str, it: ShareMember) -> ShareRecord:
    """Returns the record of a member's partitions and epoch."""
    value = CurrentValue(
        member_epoch=it.epoch,
        previous_member_epoch=it.previous_epoch,
        state=0,
        assigned_partitions=[
            wire.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in it.assigned.items()
        ],
    )
    return ShareRecord(CurrentKey(group_id=group_id, member_id=it.member_id), value)


def state_partitions(
    group_id: str, initializing: Topics, initialized: Topics, deleting: Mapping[bytes, str]
) -> ShareRecord:
    """Returns the record of the partitions whose state is being made, is made, and is being deleted."""
    value = StateValue(
        initializing_topics=_infos(initializing),
        initialized_topics=_infos(initialized),
        deleting_topics=[wire.TopicInfo(topic_id=t, topic_name=name) for t, name in deleting.items()],
    )
    return ShareRecord(StateKey(group_id=group_id), value)


def _infos(topics: Topics) -> list[wire.TopicPartitionsInfo]:
    return [
        wire.TopicPartitionsInfo(topic_id=t, topic_name=it.name, partitions=sorted(it.partitions))
        for t, it in topics.items()
    ]


def topics_of(infos: Iterable[wire.TopicPartitionsInfo], now_ms: int) -> dict[bytes, TopicState]:
    return {i.topic_id: TopicState(i.topic_name, frozenset(i.partitions), now_ms) for i in infos}


def member_tombstones(group_id: str, member_id: str) -> list[ShareRecord]:
    """Returns the tombstones of a member, in Kafka's order."""
    keys = (
        CurrentKey(group_id=group_id, member_id=member_id),
        TargetKey(group_id=group_id, member_id=member_id),
        MemberKey(group_id=group_id, member_id=member_id),
    )
    return [ShareRecord(key, None) for key in keys]


def group_tombstones(group_id: str) -> list[ShareRecord]:
    """Returns the tombstones of a group whose members are gone."""
    keys = (
        TargetEpochKey(group_id=group_id),
        StateKey(group_id=group_id),
        GroupKey(group_id=group_id),
    )
    return [ShareRecord(key, None) for key in keys]
