"""A share group: epochs, members, target assignment, and the partitions whose state is stored.

Invariant: it changes by `apply` only, with durable records; `metadata_stale` is a hint that a restart may lose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from klamm_broker.coordinator.base import Clock, Group
from klamm_broker.coordinator.share import records
from klamm_broker.coordinator.share.member import LEAVE_EPOCH, ShareMember
from klamm_broker.coordinator.share.records import ShareRecord, TopicState
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.coordinator.model import CommitRequest


class ShareGroupState(StrEnum):
    """Kafka's states of a share group."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup(Group):
    """A share group. See the module's docstring."""

    kind = "share"
    protocol_type = "share"

    def __init__(self, group_id: str, *, partition: int) -> None:
        super().__init__(group_id, partition=partition)
        self.epoch = 1
        self.metadata_hash = 0
        self.target_epoch = 1
        self.target_at_ms = 0
        """When the target was computed (wall clock); 0 when that is not known."""
        self.target: dict[str, Mapping[bytes, AbstractSet[int]]] = {}
        self.members: dict[str, ShareMember] = {}
        self.initializing: dict[bytes, TopicState] = {}
        self.initialized: dict[bytes, TopicState] = {}
        self.deleting_topics: dict[bytes, str] = {}
        """Names of topics whose state is being deleted, by topic id."""
        self.has_state_record = False
        self.metadata_stale = True
        """Something about a subscribed topic may have changed."""
        self.topic_counts: Counter[str] = Counter()
        """How many members subscribe to a topic."""

    # Records

    def apply(self, record: ShareRecord, now_ms: int = 0) -> None:
        """Take in a durable record, at this time of the wall clock."""
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
            case records.StateKey:
                self._apply_state(value, now_ms)

    def _apply_member(self, member_id: str, value: records.MemberValue | None) -> None:
        old = self.members.get(member_id)
        self.topic_counts -= Counter(() if old is None else old.topics)
        if value is None:
            self.members.pop(member_id, None)
            return
        topics = frozenset(value.subscribed_topic_names)
        self.topic_counts += Counter(topics)
        self.members[member_id] = replace(
            old or ShareMember(member_id=member_id),
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=topics,
        )

    def _apply_current(self, member_id: str, value: records.CurrentValue | None) -> None:
        old = self.members.get(member_id)
        if value is not None:
            self.members[member_id] = replace(
                old or ShareMember(member_id=member_id),
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned={p.topic_id: frozenset(p.partitions) for p in value.assigned_partitions},
            )
        elif old is not None:
            gone = replace(old, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={})
            self.members[member_id] = gone

    def _apply_state(self, value: records.StateValue | None, now_ms: int) -> None:
        self.has_state_record = value is not None
        value = value or records.StateValue()
        self.initializing = records.topics_of(value.initializing_topics, now_ms)
        self.initialized = records.topics_of(value.initialized_topics, now_ms)
        self.deleting_topics = {t.topic_id: t.topic_name for t in value.deleting_topics}

    # State

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_void(self) -> bool:
        return False  # it exists only with records

    def topics_with(self, old: ShareMember | None, new: ShareMember | None) -> Counter[str]:
        """Returns how many members subscribe to each topic once this member is replaced (None: there is none)."""
        counts = self.topic_counts - Counter(() if old is None else old.topics)
        return counts + Counter(() if new is None else new.topics)

    def on_topics_changed(self, names: AbstractSet[str], *, created: bool) -> None:
        self.metadata_stale |= not self.topic_counts.keys().isdisjoint(names)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_counts

    # Offsets: it has none that are committed

    @property
    def may_lose_offsets(self) -> bool:
        return True

    def retention_starts(self) -> Clock | None:
        return None

    def validate_commit(self, request: CommitRequest) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND


def tombstones(group: ShareGroup) -> list[ShareRecord]:
    """Returns the tombstones of all its records."""
    made = [t for m in group.members for t in records.member_tombstones(group.group_id, m)]
    return made + records.group_tombstones(group.group_id)
