"""A change of one group while it is being computed, and the steps that requests of both protocols share.

Nothing here touches the group: a step reads the present group and adds records. Order and conditions are Kafka's,
because they decide which epochs members see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from klamm_broker.coordinator import java_order
from klamm_broker.coordinator.consumer import (
    range_assignor,
    reconcile,
    records,
    regex,
    uniform_assignor,
)
from klamm_broker.coordinator.consumer.assignment import Assignment, Assignor, GroupSpec, MemberSpec, combined
from klamm_broker.coordinator.consumer.group import ConsumerGroup, Replaced
from klamm_broker.coordinator.consumer.member import ConsumerMember
from klamm_broker.coordinator.consumer.model import ConsumerConfig
from klamm_broker.coordinator.consumer.records import ConsumerRecord
from klamm_broker.coordinator.consumer.topics import MetadataHashes, Topics
from klamm_broker.coordinator.effects import KeyValue, Now
from klamm_broker.coordinator.group import ClassicGroup

ASSIGNORS: dict[str, Assignor] = {"uniform": uniform_assignor.assign, "range": range_assignor.assign}
_REGEX_PAUSE_MS = 10_000
"""The pause before regular expressions of a group are matched again, in milliseconds."""


@dataclass(slots=True, kw_only=True)
class Change:
    """A change: the records that a request makes, in order."""

    group: ConsumerGroup
    """The group before the change. New or converted groups are not in the coordinator's table yet."""
    now: Now
    prelude: list[KeyValue] = field(default_factory=list)
    """Records that turn a classic group into this one: written first, applied already."""
    replaces: ClassicGroup | None = None
    records: list[ConsumerRecord] = field(default_factory=list)
    refreshed: bool = False
    """True once the hash of its topics was computed anew."""
    resolve: frozenset[str] = frozenset()
    """Regular expressions that must be matched after this change."""
    sees: Callable[[str], bool] | None = None
    """Decides which topics regular expressions may match: those that the asking member may describe. None: all."""

    def encoded(self) -> list[KeyValue]:
        return [*self.prelude, *(r.encode() for r in self.records)]

    def commit(self) -> None:
        """Apply the records to the group, as they are durable."""
        for record in self.records:
            self.group.apply(record)


class Steps:
    """The shared steps of changes. They keep no state but the hashes of topics."""

    def __init__(self, config: ConsumerConfig, topics: Topics) -> None:
        self._config = config
        self.topics = topics
        self.hashes = MetadataHashes(topics)

    # Subscriptions

    def describe_member(self, change: Change, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Store a member's new description, if it differs. Returns whether its topic names differ."""
        if updated == member:
            return False
        change.records.append(records.member(change.group.group_id, updated))
        return updated.topics != member.topics

    def update_regexes(
        self, change: Change, member: ConsumerMember, updated: ConsumerMember
    ) -> tuple[bool, bool]:
        """Returns whether the member's regular expression is new, and whether its topics are known already.

        Raises GroupError (INVALID_REGULAR_EXPRESSION).
        """
        group, old, new = change.group, member.regex, updated.regex
        changed, known, needed = old != new, False, False
        if changed:
            if old and group.regex_counts[old] == 1:
                change.records.append(records.regex_tombstone(group.group_id, old))
            if not new:
                known = True
            elif not group.regex_counts[new]:
                regex.compiled(new)
                needed = True
            else:
                known = new in group.regexes
        if needed or group.regex_counts:
            _, wanted = group.counts_with([(member, updated)])
            if self._must_resolve(change, len(wanted), needed=needed):
                change.resolve = frozenset(wanted)
        return changed, known

    def _must_resolve(self, change: Change, wanted: int, *, needed: bool) -> bool:
        group = change.group
        resolved = next(iter(group.regexes.values()), None)
        if wanted == 0 or resolved is None:
            return wanted > 0
        age_ms = change.now.wall_ms - resolved.timestamp_ms
        if age_ms <= _REGEX_PAUSE_MS:
            return False
        return (
            needed
            or wanted != len(group.regexes)
            or group.regexes_stale
            or age_ms > self._config.regex_refresh_interval_ms
        )

    def refresh_metadata(self, change: Change, replaced: Sequence[Replaced], *, bump: bool) -> int:
        """Hash the subscribed topics. Returns the group's epoch, which rises when the hash has changed or with `bump`."""
        group = change.group
        epoch = group.epoch
        hashed = self.hashes.of(group.topics_with(replaced))
        if bump or hashed != group.metadata_hash:
            epoch += 1
            change.records.append(records.group_epoch(group.group_id, epoch, hashed))
        change.refreshed = True
        if group.has_partition_metadata:
            change.records.append(records.partition_metadata_tombstone(group.group_id))
        return epoch

    # Assignment

    def assign(
        self, change: Change, epoch: int, member: ConsumerMember, updated: ConsumerMember
    ) -> tuple[int, Assignment]:
        """Compute the target assignment if it is behind. Returns its epoch, and the member's part of it."""
        group = change.group
        if group.target_epoch >= epoch or not self._may_assign(change):
            return group.target_epoch, group.target_of(updated.member_id, updated.instance_id)
        spec = self._spec(group, member, updated)
        result = ASSIGNORS[self.assignor_of(group, [(member, updated)])](spec)
        for member_id in spec.members:
            target = result.get(member_id, {})
            if group.target.get(member_id) != target:
                change.records.append(records.target(group.group_id, member_id, target))
        change.records.append(records.target_epoch(group.group_id, epoch, change.now.wall_ms))
        return epoch, result.get(updated.member_id, {})

    def _may_assign(self, change: Change) -> bool:
        """Decides whether the assignment interval is over (KIP-1263); otherwise the next heartbeat tries again."""
        group = change.group
        interval_ms = self._config.settings(group.group_id).assignment_interval_ms
        if group.target_at_ms == 0 or interval_ms == 0:
            return True
        return change.now.wall_ms >= group.target_at_ms + interval_ms

    def assignor_of(self, group: ConsumerGroup, replaced: Sequence[Replaced] = ()) -> str:
        """Returns the assignor that most members ask for, else the default."""
        votes = Counter(m.server_assignor for m in group.members.values())
        for old, new in replaced:
            votes.subtract([None if old is None else old.server_assignor])
            votes.update([None if new is None else new.server_assignor])
        names = java_order.strings(name for name, count in votes.items() if name is not None and count > 0)
        best = max(names, key=votes.__getitem__, default=self._config.assignors[0])
        return best if best in self._config.assignors else self._config.assignors[0]

    def _spec(self, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember) -> GroupSpec:
        members = dict(group.members)
        previous = group.static_member(updated.instance_id)
        last = group.target.get(updated.member_id, {})
        if previous is not None and previous.member_id != updated.member_id:
            del members[previous.member_id]
            last = group.target.get(previous.member_id, {})
        members[updated.member_id] = updated
        specs = {}
        topic_ids: dict[tuple[frozenset[str], str], tuple[bytes, ...]] = {}
        for member_id in java_order.strings(members):
            it = members[member_id]
            subscription = it.topics, it.regex
            if subscription not in topic_ids:
                topic_ids[subscription] = tuple(self.topic_ids(group, it))
            specs[member_id] = MemberSpec(
                topic_ids=topic_ids[subscription],
                instance_id=it.instance_id,
                rack_id=it.rack_id,
                assignment=last if it is updated else group.target.get(member_id, {}),
            )
        counts = {}
        for topic_id in {topic_id for ids in topic_ids.values() for topic_id in ids}:
            topic = self.topics.by_id(topic_id)
            assert topic is not None, "it was found by its name"
            counts[topic_id] = topic.partitions
        return GroupSpec(
            members=specs,
            homogeneous=self._is_homogeneous(group, [(member, updated)], len(members)),
            partition_counts=counts,
            assigned=combined(group.target.values()),
        )

    def _is_homogeneous(self, group: ConsumerGroup, replaced: Sequence[Replaced], members: int) -> bool:
        names, regexes = group.counts_with(replaced)
        if not regexes:
            return all(count == members for count in names.values())
        return not names and len(regexes) == 1 and next(iter(regexes.values())) == members

    def topic_ids(self, group: ConsumerGroup, member: ConsumerMember) -> list[bytes]:
        """Returns the existing topics that a member subscribes to, in the order in which Kafka walks over them."""
        names = java_order.strings(sorted(member.topics))
        if member.regex in group.regexes:
            matched = java_order.strings(sorted(group.regexes[member.regex].topics))
            names += [name for name in matched if name not in member.topics]
        found = (self.topics.by_name(name) for name in names)
        return [topic.id for topic in found if topic is not None]

    # Reconciliation

    def reconcile(
        self,
        change: Change,
        updated: ConsumerMember,
        target: tuple[int, Assignment],
        owned: Assignment | None,
        *,
        subscription_changed: bool,
    ) -> ConsumerMember:
        """Bring the member a step nearer to the target. Raises GroupError (FENCED_MEMBER_EPOCH)."""
        group = change.group
        if not subscription_changed and updated.is_reconciled_to(target[0]):
            return updated
        situation = reconcile.Situation(
            target_epoch=target[0],
            target=target[1],
            subscribed=lambda: frozenset(self.topic_ids(group, updated)),
            is_held=group.is_held,
            owned=owned,
            subscription_changed=subscription_changed,
        )
        result = reconcile.reconcile(updated, situation)
        if result != updated:
            change.records.append(records.current(group.group_id, result))
        return result

    # Replacing

    def replace_static(self, change: Change, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Let a static member that comes back under another id take over its state, and join."""
        group = change.group
        new = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        change.records += records.member_tombstones(group.group_id, old.member_id)
        change.records += [
            records.member(group.group_id, new),
            records.target(group.group_id, member_id, group.target.get(old.member_id, {})),
            records.current(group.group_id, new),
        ]
        return new
