"""The records of Streams groups in `__consumer_offsets`, as Kafka writes and reads them.

A key's int16 version tells the kind of record. `StreamsRecord` pairs key and value as messages (`kind_record.py`); a group takes them in
with `apply`, live and when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm_broker.coordinator.kind_record import KindRecord
from klamm_broker.coordinator.streams.member import Endpoint, MemberState, StreamsMember
from klamm_broker.coordinator.streams.tasks import EpochTasks, OwnedTasks, Tasks, TaskSet
from klamm_kafka.wire.messages import streams_group_records as wire

GroupKey = wire.StreamsGroupMetadataKey
GroupValue = wire.StreamsGroupMetadataValue
MemberKey = wire.StreamsGroupMemberMetadataKey
MemberValue = wire.StreamsGroupMemberMetadataValue
TargetEpochKey = wire.StreamsGroupTargetAssignmentMetadataKey
TargetEpochValue = wire.StreamsGroupTargetAssignmentMetadataValue
TargetKey = wire.StreamsGroupTargetAssignmentMemberKey
TargetValue = wire.StreamsGroupTargetAssignmentMemberValue
CurrentKey = wire.StreamsGroupCurrentMemberAssignmentKey
CurrentValue = wire.StreamsGroupCurrentMemberAssignmentValue
TopologyKey = wire.StreamsGroupTopologyKey
TopologyValue = wire.StreamsGroupTopologyValue

_TargetTasks = wire.StreamsGroupTargetAssignmentMemberValueTaskIds
_CurrentTasks = wire.StreamsGroupCurrentMemberAssignmentValueTaskIds


class StreamsRecord(KindRecord):
    __slots__ = ()
    kind = "streams"
    types = {  # noqa: RUF012  # one table for all
        17: (GroupKey, GroupValue),
        19: (MemberKey, MemberValue),
        20: (TargetEpochKey, TargetEpochValue),
        21: (TargetKey, TargetValue),
        22: (CurrentKey, CurrentValue),
        23: (TopologyKey, TopologyValue),
    }


def group_epoch(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> StreamsRecord:
    value = GroupValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[
            wire.LastAssignmentConfig(key=k, value=v) for k, v in sorted(configs.items())
        ],
    )
    return StreamsRecord(GroupKey(group_id=group_id), value)


def topology(group_id: str, value: TopologyValue) -> StreamsRecord:
    return StreamsRecord(TopologyKey(group_id=group_id), value)


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> StreamsRecord:
    value = TargetEpochValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return StreamsRecord(TargetEpochKey(group_id=group_id), value)


def target(group_id: str, member_id: str, tasks: TaskSet) -> StreamsRecord:
    def stored(found: Tasks) -> list[_TargetTasks]:
        return [_TargetTasks(subtopology_id=s, partitions=sorted(p)) for s, p in sorted(found.items())]

    value = TargetValue(
        active_tasks=stored(tasks.active),
        standby_tasks=stored(tasks.standby),
        warmup_tasks=stored(tasks.warmup),
    )
    return StreamsRecord(TargetKey(group_id=group_id, member_id=member_id), value)


def target_of(value: TargetValue) -> TaskSet:
    """Returns the tasks that a target assignment's record holds."""

    def restored(found: list[_TargetTasks]) -> dict[str, frozenset[int]]:
        return {t.subtopology_id: frozenset(t.partitions) for t in found}

    return TaskSet(
        active=restored(value.active_tasks),
        standby=restored(value.standby_tasks),
        warmup=restored(value.warmup_tasks),
    )


def member(group_id: str, it: StreamsMember) -> StreamsRecord:
    """Returns the record of a member's own description."""
    endpoint = None if it.endpoint is None else wire.Endpoint(host=it.endpoint.host, port=it.endpoint.port)
    value = MemberValue(
        instance_id=it.instance_id,
        rack_id=it.rack_id,
        client_id=it.client_id,
        client_host=it.client_host,
        rebalance_timeout_ms=it.rebalance_timeout_ms,
        topology_epoch=it.topology_epoch,
        process_id=it.process_id,
        user_endpoint=endpoint,
        client_tags=[wire.KeyValue(key=k, value=v) for k, v in sorted(it.tags.items())],
    )
    return StreamsRecord(MemberKey(group_id=group_id, member_id=it.member_id), value)


def described_member(value: MemberValue) -> dict[str, Any]:
    """Returns the fields of a member that its metadata record holds."""
    endpoint = value.user_endpoint
    return {
        "instance_id": value.instance_id,
        "rack_id": value.rack_id,
        "client_id": value.client_id,
        "client_host": value.client_host,
        "rebalance_timeout_ms": value.rebalance_timeout_ms,
        "topology_epoch": value.topology_epoch,
        "process_id": value.process_id,
        "endpoint": None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        "tags": {tag.key: tag.value for tag in value.client_tags},
    }


def current(group_id: str, it: StreamsMember) -> StreamsRecord:
    """Returns the record of a member's tasks and epoch."""
    value = CurrentValue(
        member_epoch=it.epoch,
        previous_member_epoch=it.previous_epoch,
        state=it.state,
        active_tasks=_stored_active(it.assigned.active),
        standby_tasks=_stored(it.assigned.standby),
        warmup_tasks=_stored(it.assigned.warmup),
        active_tasks_pending_revocation=_stored_active(it.revoking.active),
        standby_tasks_pending_revocation=_stored(it.revoking.standby),
        warmup_tasks_pending_revocation=_stored(it.revoking.warmup),
    )
    return StreamsRecord(CurrentKey(group_id=group_id, member_id=it.member_id), value)


def current_of(value: CurrentValue) -> dict[str, Any]:
    """Returns the fields of a member that its current assignment's record holds."""
    epoch = value.member_epoch
    return {
        "epoch": epoch,
        "previous_epoch": value.previous_member_epoch,
        "state": MemberState.of(value.state),
        "assigned": OwnedTasks(
            active=_restored_active(value.active_tasks, epoch),
            standby=_restored(value.standby_tasks),
            warmup=_restored(value.warmup_tasks),
        ),
        "revoking": OwnedTasks(
            active=_restored_active(value.active_tasks_pending_revocation, epoch),
            standby=_restored(value.standby_tasks_pending_revocation),
            warmup=_restored(value.warmup_tasks_pending_revocation),
        ),
    }


def member_tombstones(group_id: str, member_id: str) -> list[StreamsRecord]:
    """Returns the tombstones of a member, in Kafka's order."""
    return [
        StreamsRecord(key(group_id=group_id, member_id=member_id), None)
        for key in (CurrentKey, TargetKey, MemberKey)
    ]


def group_tombstones(group_id: str) -> list[StreamsRecord]:
    """Returns the tombstones of a group whose members are gone."""
    return [StreamsRecord(key(group_id=group_id), None) for key in (TargetEpochKey, GroupKey, TopologyKey)]


def _stored_active(tasks: EpochTasks) -> list[_CurrentTasks]:
    return [
        _CurrentTasks(
            subtopology_id=subtopology,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[p] for p in sorted(epochs)],
        )
        for subtopology, epochs in sorted(tasks.items())
    ]


def _stored(tasks: Tasks) -> list[_CurrentTasks]:
    return [_CurrentTasks(subtopology_id=s, partitions=sorted(p)) for s, p in sorted(tasks.items())]


def _restored_active(stored: list[_CurrentTasks], epoch: int) -> dict[str, dict[int, int]]:
    """Returns the stored tasks with their epochs; without epochs the member's counts."""
    result = {}
    for item in stored:
        epochs = item.assignment_epochs
        if epochs is None or len(epochs) != len(item.partitions):
            epochs = [epoch] * len(item.partitions)
        result[item.subtopology_id] = dict(zip(item.partitions, epochs, strict=True))
    return result


def _restored(stored: list[_CurrentTasks]) -> dict[str, frozenset[int]]:
    return {item.subtopology_id: frozenset(item.partitions) for item in stored}
