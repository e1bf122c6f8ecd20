"""The common part of every kind of group: a name, a partition of `__consumer_offsets`, and committed offsets.

Offsets belong to the name, not to the kind: when a group changes its protocol they stay (`take_offsets`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, ClassVar

from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.coordinator.model import CommitRequest, CommittedOffset, TopicPartition

Clock = Callable[["CommittedOffset"], int]
"""Returns the time (wall clock) from which the retention of a committed offset counts."""


class Group(ABC):
    """A group of any kind."""

    kind: ClassVar[str]
    """The type of group, as ListGroups tells it."""
    protocol_type: str | None
    members: Mapping[str, Any]
    """By member id."""

    def __init__(self, group_id: str, *, partition: int) -> None:
        self.group_id = group_id
        self.partition = partition
        """Where in `__consumer_offsets` its records are."""
        self.deleting = False
        """Tombstones were handed to the log and their fate is not known yet."""
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        """What is committed and durable."""
        self.pending_offsets: Counter[TopicPartition] = Counter()
        """Commits and deletions that were handed to the log and whose fate is not known yet."""

    def apply(self, record: Any) -> None:
        """Take in a durable record of its kind. Not for a classic group, whose record is the whole of it."""
        raise NotImplementedError(f"a {self.kind} group takes in no {type(record).__name__}")

    def take_offsets(self, other: Group) -> None:
        """Take over the offsets of a group that had this name; appends under way still find them."""
        self.offsets, self.pending_offsets = other.offsets, other.pending_offsets

    def on_topics_changed(self, names: AbstractSet[str], *, created: bool) -> None:  # noqa: B027  # a kind may not care
        """Note topics that were created, deleted or have more partitions."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state, as DescribeGroups and ListGroups tell it."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """True while it has no members (it may have offsets)."""

    @property
    @abstractmethod
    def is_void(self) -> bool:
        """True if nothing is in it, nothing of it is in the log, and nothing is on its way there."""

    @property
    @abstractmethod
    def may_lose_offsets(self) -> bool:
        """Decides whether its present state permits OffsetDelete at all."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Decides whether offsets of `topic` are in use."""

    @abstractmethod
    def retention_starts(self) -> Clock | None:
        """Returns the start of its offsets' retention; None when they do not expire now (KIP-211)."""

    @abstractmethod
    def validate_commit(self, request: CommitRequest) -> ErrorCode:
        """Returns NONE if the sender may commit these offsets, within a transaction or not; otherwise the error."""

    @abstractmethod
    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Returns NONE if the sender may read the offsets; otherwise the error. From version 9 on OffsetFetch names its sender."""
