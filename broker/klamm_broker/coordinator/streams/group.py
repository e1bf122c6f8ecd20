"""A Streams group: what its durable records say, and what follows from them.

The group changes only by `apply`, so a restart replays exactly what was live. Not durable, as in Kafka: the configured
topology (computed anew after a start), the epoch of endpoints, and the request to shut the application down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from klamm_broker.coordinator.base import Clock, Group
from klamm_broker.coordinator.model import UNKNOWN_MEMBER_ID, CommitRequest, CommittedOffset
from klamm_broker.coordinator.streams import records
from klamm_broker.coordinator.streams.config import StreamsGroupState
from klamm_broker.coordinator.streams.member import StreamsMember
from klamm_broker.coordinator.streams.model import PROTOCOL_TYPE, Topology
from klamm_broker.coordinator.streams.records import StreamsRecord
from klamm_broker.coordinator.streams.tasks import NO_TASKS, NOTHING_OWNED, OwnedTasks, TaskId, TaskSet, each
from klamm_broker.coordinator.streams.topology import Configured, required_topics, source_topics
from klamm_kafka.wire.errors import ErrorCode

_GONE = -1
"""The epoch of a member or target whose record was deleted."""


class StreamsGroup(Group):
    """A Streams group. See the module's docstring."""

    kind = "streams"
    protocol_type = PROTOCOL_TYPE

    def __init__(self, group_id: str, *, partition: int) -> None:
        super().__init__(group_id, partition=partition)
        self.epoch = 1
        self.metadata_hash = 0
        self.validated_topology_epoch = 0
        self.assignment_configs: Mapping[str, str] = {}
        """The settings with which the last epoch began."""
        self.topology: Topology | None = None
        self.target_epoch = 1
        self.target_at_ms = 0
        """When the target was computed (wall clock); 0 when that is not known."""
        self.target: dict[str, TaskSet] = {}
        self.members: dict[str, StreamsMember] = {}
        self.configured: Configured | None = None
        self.metadata_stale = True
        """Something about a topic of the topology may have changed."""
        self.revocation_epochs: dict[str, int] = {}
        """The epoch in which a member was told to give something up, while the time for it runs."""
        self.endpoint_epoch = 0
        self.shutdown_by: str | None = None
        """The member that asked all to shut down."""
        self._topics: AbstractSet[str] = frozenset()
        self._sources: Mapping[str, str] = {}
        self._active: dict[TaskId, str] = {}
        self._standby: dict[TaskId, Counter[str]] = {}

    # Records

    def apply(self, record: StreamsRecord) -> None:
        """Take in a durable record."""
        key, value = record.key, record.value
        match type(key):
            case records.GroupKey:
                self._apply_epoch(value)
            case records.TopologyKey:
                self.topology = value
                self._topics = frozenset() if value is None else required_topics(value)
                self._sources = {} if value is None else source_topics(value)
                self.configured = None
            case records.TargetEpochKey:
                self.target_epoch, self.target_at_ms = (
                    (_GONE, 0) if value is None else (value.assignment_epoch, value.assignment_timestamp)
                )
            case records.TargetKey:
                if value is None:
                    self.target.pop(key.member_id, None)
                else:
                    self.target[key.member_id] = records.target_of(value)
            case records.MemberKey:
                self._apply_member(key.member_id, value)
            case records.CurrentKey:
                self._apply_current(key.member_id, value)

    def _apply_epoch(self, value: records.GroupValue | None) -> None:
        if value is None:
            self.epoch, self.metadata_hash, self.validated_topology_epoch = 1, 0, 0
            self.assignment_configs = {}
            return
        self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        self.validated_topology_epoch = value.validated_topology_epoch
        self.assignment_configs = {c.key: c.value for c in value.last_assignment_configs or ()}

    def _apply_member(self, member_id: str, value: records.MemberValue | None) -> None:
        old = self.members.get(member_id)
        if value is not None:
            member = old or StreamsMember(member_id=member_id)
            self._put(old, replace(member, **records.described_member(value)))
        elif old is not None:
            self._release(old)
            del self.members[member_id]
            if not self.members:
                self.shutdown_by = None

    def _apply_current(self, member_id: str, value: records.CurrentValue | None) -> None:
        old = self.members.get(member_id)
        if value is not None:
            member = old or StreamsMember(member_id=member_id)
            self._put(old, replace(member, **records.current_of(value)))
        elif old is not None:
            gone = replace(old, epoch=_GONE, previous_epoch=_GONE)
            self._put(old, replace(gone, assigned=NOTHING_OWNED, revoking=NOTHING_OWNED))

    def _put(self, old: StreamsMember | None, new: StreamsMember) -> None:
        """Replace a member, and the processes that hold its tasks."""
        if old is not None:
            self._release(old)
        self.members[new.member_id] = new
        if not new.process_id:
            return
        for owned in (new.assigned, new.revoking):
            self._active.update(dict.fromkeys(each(owned.active), new.process_id))
            for task in _others(owned):
                self._standby.setdefault(task, Counter())[new.process_id] += 1

    def _release(self, member: StreamsMember) -> None:
        process = member.process_id
        for owned in (member.assigned, member.revoking):
            for task in each(owned.active):
                if self._active.get(task) == process:
                    del self._active[task]
            for task in _others(owned):
                held = self._standby.get(task)
                if held is not None:
                    held[process] -= 1
                    self._standby[task] = +held
                    if not self._standby[task]:
                        del self._standby[task]

    # Holders of tasks (`reconcile.Holders`)

    def active_in(self, task: TaskId) -> str | None:
        return self._active.get(task)

    def standby_in(self, task: TaskId) -> AbstractSet[str]:
        return self._standby.get(task, Counter()).keys()

    # State

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.target_epoch:
            return StreamsGroupState.ASSIGNING
        if all(m.is_reconciled_to(self.target_epoch) for m in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_void(self) -> bool:
        return False  # it exists only with records

    def target_of(self, member_id: str) -> TaskSet:
        return self.target.get(member_id, NO_TASKS)

    # Topics

    def on_topics_changed(self, names: AbstractSet[str], *, created: bool) -> None:
        self.metadata_stale |= not self._topics.isdisjoint(names)

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and topic in self._sources

    # Offsets

    @property
    def may_lose_offsets(self) -> bool:
        return True

    def retention_starts(self) -> Clock | None:
        return _commit_time

    def validate_commit(self, request: CommitRequest) -> ErrorCode:
        epoch = request.generation_id
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        nobody = epoch == -1 and request.member_id == UNKNOWN_MEMBER_ID and request.group_instance_id is None
        if request.is_transactional and nobody:
            return ErrorCode.NONE
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not request.is_transactional and not request.reports_missing_group:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch == member.epoch:
            return ErrorCode.NONE
        # An older epoch is valid for tasks that were assigned in it or before: the member cannot have lost them since.
        since = [self._epoch_of(member, at.topic, at.partition) for at in request.offsets]
        if epoch < member.epoch and all(e is not None and epoch >= e for e in since):
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if request.is_transactional else ErrorCode.STALE_MEMBER_EPOCH

    def _epoch_of(self, member: StreamsMember, topic: str, partition: int) -> int | None:
        """Returns the epoch in which the active task of this partition was assigned."""
        subtopology = self._sources.get(topic, "")
        for owned in (member.assigned, member.revoking):
            found = owned.active.get(subtopology, {}).get(partition)
            if found is not None:
                return found
        return None

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member.epoch == member_epoch else ErrorCode.STALE_MEMBER_EPOCH


def tombstones(group: StreamsGroup) -> list[StreamsRecord]:
    """Returns the tombstones of all records of a group, except its offsets."""
    members = [r for member_id in group.members for r in records.member_tombstones(group.group_id, member_id)]
    return members + records.group_tombstones(group.group_id)


def _others(owned: OwnedTasks) -> list[TaskId]:
    return [*each(owned.standby), *each(owned.warmup)]


def _commit_time(committed: CommittedOffset) -> int:
    return committed.commit_timestamp_ms
