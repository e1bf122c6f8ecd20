"""A group of the consumer protocol: epochs, members, target assignment, subscriptions.

Invariant: it changes by `apply` only, with durable records; everything else here is derived from them
(`metadata_stale`, `regexes_stale` and the epochs of pending revocations are hints that a restart may lose). At most one
member holds a partition; `holders` names it. Only an outside cause may give it to several (the assignor of a classic
group, a damaged log): then it is `contested` until all but one have given it up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from enum import StrEnum

from klamm_broker.coordinator.base import Clock, Group
from klamm_broker.coordinator.consumer import records
from klamm_broker.coordinator.consumer.assignment import Assignment
from klamm_broker.coordinator.consumer.member import LEAVE_EPOCH, ConsumerMember, MemberState
from klamm_broker.coordinator.consumer.records import ConsumerRecord, ResolvedRegex
from klamm_broker.coordinator.model import (
    CONSUMER_PROTOCOL_TYPE,
    UNKNOWN_MEMBER_ID,
    CommitRequest,
    CommittedOffset,
)
from klamm_kafka.wire.errors import ErrorCode

Replaced = tuple[ConsumerMember | None, ConsumerMember | None]
"""A member before and after; None where there is none."""


class ConsumerGroupState(StrEnum):
    """Kafka's states of a group; ConsumerGroupDescribe and ListGroups show the values."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment is older than the group's epoch."""
    RECONCILING = "Reconciling"
    """Members are on their way to the target assignment."""
    STABLE = "Stable"


class ConsumerGroup(Group):
    """A group of the consumer protocol. See the module's docstring."""

    kind = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str, *, partition: int) -> None:
        super().__init__(group_id, partition=partition)
        self.epoch = 1
        self.metadata_hash = 0
        self.target_epoch = 1
        self.target_at_ms = 0
        """When the target was computed (wall clock); 0 when that is not known."""
        self.target: dict[str, Assignment] = {}
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.holders: dict[bytes, dict[int, str]] = {}
        self.contested: set[tuple[bytes, int]] = set()
        self.has_partition_metadata = False
        """There is a record as Kafka 4.0 wrote it, which has to go."""
        self.metadata_stale = True
        """Something about a subscribed topic may have changed."""
        self.regexes_stale = True
        """There may be topics that its regular expressions were not matched against."""
        self.revocation_epochs: dict[str, int] = {}
        """The epoch in which a member was told to give something up, while the time for it runs."""
        self.topic_counts: Counter[str] = Counter()
        """How many members subscribe to a topic by name."""
        self.regex_counts: Counter[str] = Counter()
        """How many members subscribe to a regular expression."""

    # Records

    def apply(self, record: ConsumerRecord) -> None:
        """Take in a durable record."""
        key, value = record.key, record.value
        match type(key):
            case records.GroupKey:
                self.epoch, self.metadata_hash = (
                    (1, 0) if value is None else (value.epoch, value.metadata_hash)
                )
            case records.TargetEpochKey:
                self.target_epoch, self.target_at_ms = (
                    (-1, 0) if value is None else (value.assignment_epoch, value.assignment_timestamp)
                )
            case records.TargetKey:
                if value is None:
                    self.target.pop(key.member_id, None)
                else:
                    parts = value.topic_partitions
                    self.target[key.member_id] = {p.topic_id: frozenset(p.partitions) for p in parts}
            case records.MemberKey:
                self._apply_member(key.member_id, value)
            case records.CurrentKey:
                self._apply_current(key.member_id, value)
            case records.RegexKey:
                self._apply_regex(key.regular_expression, value)
            case records.PartitionMetadataKey:
                self.has_partition_metadata = value is not None

    def _apply_member(self, member_id: str, value: records.MemberValue | None) -> None:
        old = self.members.get(member_id)
        if value is None:
            if old is not None:
                self._put(old, None)
            return
        member = old or ConsumerMember(member_id=member_id)
        self._put(old, replace(member, **records.described_member(member, value)))

    def _apply_current(self, member_id: str, value: records.CurrentValue | None) -> None:
        old = self.members.get(member_id)
        if value is not None:
            member = old or ConsumerMember(member_id=member_id)
            self._put(old, replace(member, **records.current_of(value)))
        elif old is not None:
            gone = replace(old, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, revoking={})
            self._put(old, gone)

    def _apply_regex(self, expression: str, value: records.RegexValue | None) -> None:
        if value is None:
            self.regexes.pop(expression, None)
        else:
            self.regexes[expression] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)

    def _put(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        """Replace a member (None: there is none) and the state that is derived from it."""
        if old is None or new is None or (old.topics, old.regex) != (new.topics, new.regex):
            self.topic_counts, self.regex_counts = self.counts_with([(old, new)])
        if old is not None:
            if old.instance_id is not None and self.static_members.get(old.instance_id) == old.member_id:
                del self.static_members[old.instance_id]
            self._release(old)
            if new is None:
                del self.members[old.member_id]
        if new is not None:
            self.members[new.member_id] = new
            if new.instance_id is not None:
                self.static_members[new.instance_id] = new.member_id
            for topic_id, partitions in new.all_owned.items():
                held = self.holders.setdefault(topic_id, {})
                if not held.keys().isdisjoint(partitions):
                    self.contested |= {(topic_id, p) for p in held.keys() & partitions}
                held.update(dict.fromkeys(partitions, new.member_id))

    def _release(self, member: ConsumerMember) -> None:
        for topic_id, partitions in member.all_owned.items():
            held = self.holders.get(topic_id, {})
            for partition in partitions:
                if held.get(partition) == member.member_id:
                    del held[partition]
                    if (topic_id, partition) in self.contested:
                        self._pass_on(topic_id, partition, member)
            if not held:
                self.holders.pop(topic_id, None)

    def _pass_on(self, topic_id: bytes, partition: int, member: ConsumerMember) -> None:
        """Pass a partition that a member gives up to the others that hold it as well: it is not free yet."""
        members = (m for m in self.members.values() if m.member_id != member.member_id)
        others = [m.member_id for m in members if m.epoch_of(topic_id, partition) is not None]
        if others:
            self.holders[topic_id][partition] = others[0]
        if len(others) < 2:
            self.contested.discard((topic_id, partition))

    # State

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(m.is_reconciled_to(self.target_epoch) for m in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_void(self) -> bool:
        return False  # it exists only with records

    def is_held(self, topic_id: bytes, partition: int) -> bool:
        return partition in self.holders.get(topic_id, ())

    def waits_for_release(self, member: ConsumerMember) -> bool:
        """Decides whether another member still holds a partition that this member is to get."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, ()) and self.is_held(topic_id, partition)
            for topic_id, partitions in self.target.get(member.member_id, {}).items()
            for partition in partitions
        )

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str, instance_id: str | None) -> Assignment:
        """Returns the target of a member, or of its predecessor under its instance id."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, "")
        return self.target.get(member_id, {})

    # Subscriptions

    def on_topics_changed(self, names: AbstractSet[str], *, created: bool) -> None:
        self.regexes_stale |= created
        self.metadata_stale |= any(self.is_subscribed_to(name) for name in names)

    @property
    def subscribed_topics(self) -> set[str]:
        return set(self.topic_counts).union(*(r.topics for r in self.regexes.values()))

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_counts or any(topic in r.topics for r in self.regexes.values())

    def topics_with(self, replaced: Sequence[Replaced]) -> set[str]:
        """Returns the subscribed topics once these members have been replaced."""
        names, regexes = self.counts_with(replaced)
        gone = set(self.regex_counts) - set(regexes)
        resolved = (r.topics for expression, r in self.regexes.items() if expression not in gone)
        return set(names).union(*resolved)

    def counts_with(self, replaced: Sequence[Replaced]) -> tuple[Counter[str], Counter[str]]:
        """Returns subscribers by topic name and by regular expression once these members have been replaced."""
        names, regexes = self.topic_counts.copy(), self.regex_counts.copy()
        for old, new in replaced:
            for member, sign in ((old, -1), (new, 1)):
                if member is not None:
                    names.update(dict.fromkeys(member.topics, sign))
                    if member.regex:
                        regexes[member.regex] += sign
        return +names, +regexes

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
        nobody = request.member_id == UNKNOWN_MEMBER_ID and request.group_instance_id is None
        if request.is_transactional and epoch == -1 and nobody:
            return ErrorCode.NONE
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not request.is_transactional and member.classic is None and not request.reports_missing_group:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch == member.epoch:
            return ErrorCode.NONE
        # An older epoch is valid for partitions that were assigned in it or before: the member cannot have lost them since.
        since = [member.epoch_of(o.topic_id, at.partition) for at, o in request.offsets.items()]
        if epoch < member.epoch and all(e is not None and epoch >= e for e in since):
            return ErrorCode.NONE
        stale = member.classic is None and not request.is_transactional
        return ErrorCode.STALE_MEMBER_EPOCH if stale else ErrorCode.ILLEGAL_GENERATION

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.epoch == member_epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _commit_time(committed: CommittedOffset) -> int:
    return committed.commit_timestamp_ms
