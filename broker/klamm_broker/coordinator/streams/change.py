"""A change of one Streams group while it is being computed, and its steps.

Nothing here touches the group: a step reads the present group and adds records. Order and conditions are Kafka's,
because they decide which epochs members see.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.consumer.topics import MetadataHashes, Topics
from klamm_broker.coordinator.effects import KeyValue, Now
from klamm_broker.coordinator.group import ClassicGroup
from klamm_broker.coordinator.streams import records, sticky_assignor
from klamm_broker.coordinator.streams.config import StreamsSettings
from klamm_broker.coordinator.streams.group import StreamsGroup
from klamm_broker.coordinator.streams.member import StreamsMember
from klamm_broker.coordinator.streams.model import Topology
from klamm_broker.coordinator.streams.reconcile import Situation, reconcile
from klamm_broker.coordinator.streams.records import StreamsRecord
from klamm_broker.coordinator.streams.sticky_assignor import MemberSpec, SubtopologySpec
from klamm_broker.coordinator.streams.tasks import NO_TASKS, TaskSet
from klamm_broker.coordinator.streams.topology import Configured, configure, required_topics
from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_NOT_VALIDATED = -1


@dataclass(slots=True, kw_only=True)
class Change:
    """A change: the records that a request makes, in order."""

    group: StreamsGroup
    """The group before the change. A new group is not in the coordinator's table yet."""
    now: Now
    prelude: list[KeyValue] = field(default_factory=list)
    """Records that end the classic group of this name: written first."""
    replaces: ClassicGroup | None = None
    records: list[StreamsRecord] = field(default_factory=list)
    configured: Configured | None = None
    """The topology, if it was configured anew."""
    refreshed: bool = False
    """True once the hash of its topics was computed anew."""

    def encoded(self) -> list[KeyValue]:
        return [*self.prelude, *(r.encode() for r in self.records)]

    def commit(self) -> None:
        """Apply the records to the group, as they are durable."""
        for record in self.records:
            self.group.apply(record)


class Steps:
    """The steps of changes. They keep no state but the hashes of topics."""

    def __init__(self, topics: Topics, hashes: MetadataHashes) -> None:
        self.topics = topics
        self._hashes = hashes

    def describe_member(self, change: Change, member: StreamsMember, updated: StreamsMember) -> bool:
        """Store a member's new description, if it differs. Returns whether it does."""
        if updated == member:
            return False
        change.records.append(records.member(change.group.group_id, updated))
        return True

    def update_topology(self, change: Change, topology: Topology | None) -> Topology:
        """Store the topology of the first member. Returns the group's. Raises GroupError for another one of that epoch."""
        group = change.group
        if group.topology is None:
            if topology is None:
                text = "The topology is null and the group topology is also null."
                raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
            log.info("group %s: topology with epoch %d", group.group_id, topology.epoch)
            change.records.append(records.topology(group.group_id, topology))
            return topology
        if topology is None or topology.epoch < group.topology.epoch:
            return group.topology
        if _by_id(topology) != _by_id(group.topology) or topology.epoch != group.topology.epoch:
            raise GroupError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return group.topology

    def configure(self, change: Change, topology: Topology) -> tuple[Configured, int]:
        """Returns the topology against the present topics, and the hash of these. Raises GroupError."""
        group = change.group
        configured, hashed = group.configured, group.metadata_hash
        if group.topology is None or configured is None or group.metadata_stale:
            hashed = self._hashes.of(required_topics(topology))
            change.refreshed = True
            if group.topology is None or configured is None or hashed != group.metadata_hash:
                configured = change.configured = configure(topology, self.partitions_of)
        return configured, hashed

    def partitions_of(self, topic: str) -> int | None:
        """Returns the partitions of a topic; None if there is none of that name."""
        found = self.topics.by_name(topic)
        return None if found is None else found.partitions

    def update_epoch(
        self, change: Change, configured: Configured, hashed: int, settings: StreamsSettings, *, bump: bool
    ) -> int:
        """Begin a new epoch with `bump`, or if topics, topology or settings have changed. Returns the epoch."""
        group, configs = change.group, settings.assignment_configs
        validated = configured.topology_epoch if configured.is_ready else _NOT_VALIDATED
        changed = (hashed, validated, configs) != (
            group.metadata_hash, group.validated_topology_epoch, group.assignment_configs,
        )  # fmt: skip
        if not bump and not changed:
            return group.epoch
        change.records.append(
            records.group_epoch(group.group_id, group.epoch + 1, hashed, validated, configs)
        )
        return group.epoch + 1

    def may_assign(self, change: Change, interval_ms: int) -> bool:
        """Decides whether enough time has passed since the last assignment."""
        last_ms = change.group.target_at_ms
        return not last_ms or not interval_ms or change.now.wall_ms >= last_ms + interval_ms

    def assign(
        self, change: Change, epoch: int, configured: Configured, standbys: int, updated: StreamsMember | None
    ) -> TaskSet:
        """Compute the target assignment of this epoch. Returns the part of the member that is being updated."""
        group = change.group
        members = dict(group.members)
        if updated is not None:
            members[updated.member_id] = updated
        result: dict[str, TaskSet] = dict.fromkeys(members, NO_TASKS)
        if configured.is_ready:
            result = sticky_assignor.assign(
                {m: MemberSpec(it.process_id, group.target_of(m)) for m, it in members.items()},
                [SubtopologySpec(*s) for s in configured.stateful],
                standbys,
            )
        for member_id, tasks in result.items():
            if group.target.get(member_id) != tasks:
                change.records.append(records.target(group.group_id, member_id, tasks))
        change.records.append(records.target_epoch(group.group_id, epoch, change.now.wall_ms))
        return NO_TASKS if updated is None else result[updated.member_id]

    def reconcile(
        self, change: Change, member: StreamsMember, target: tuple[int, TaskSet], owned: TaskSet | None
    ) -> StreamsMember:
        """Move the member towards its target, and store where it is now. Raises GroupError."""
        epoch, tasks = target
        if member.is_reconciled_to(epoch):
            return member
        at = Situation(target_epoch=epoch, target=tasks, holders=change.group, owned=owned)
        result = reconcile(member, at)
        if result != member:
            change.records.append(records.current(change.group.group_id, result))
        return result


def _by_id(topology: Topology) -> dict[str, object]:
    return {s.subtopology_id: s for s in topology.subtopologies}
