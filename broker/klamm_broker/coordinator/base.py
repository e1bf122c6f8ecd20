"""What every kind of group has: a name, a place in `__consumer_offsets`, and committed offsets.

Offsets belong to the name, not to the kind: when a group changes its protocol they stay (`take_offsets`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.coordinator.model import CommitRequest, CommittedOffset, TopicPartition

Clock = Callable[["CommittedOffset"], int]
"""From when (wall clock) the retention of a committed offset counts."""


class Group(ABC):
    """See the module's docstring."""

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

    def take_offsets(self, other: Group) -> None:
        """Go on with the offsets of a group that had this name; appends under way still find them."""
        self.offsets, self.pending_offsets = other.offsets, other.pending_offsets

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """It has no members (it may have offsets)."""

    @property
    @abstractmethod
    def is_void(self) -> bool:
        """Nothing is in it, nothing of it is in the log, nothing is on its way there."""

    @property
    @abstractmethod
    def may_lose_offsets(self) -> bool:
        """Whether OffsetDelete is possible at all in the state that it is in."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of `topic` are in use."""

    @abstractmethod
    def retention_starts(self) -> Clock | None:
        """From when the retention of its offsets counts; None when they do not expire now (KIP-211)."""

    @abstractmethod
    def validate_commit(self, request: CommitRequest) -> ErrorCode:
        """NONE when these offsets may be committed by who asks for it, within a transaction or not."""

    @abstractmethod
    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE when the offsets may be read by who asks for it (OffsetFetch from version 9 on says who)."""
