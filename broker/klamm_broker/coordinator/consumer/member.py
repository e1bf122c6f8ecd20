"""A member of a consumer group, and its progress towards its target assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from klamm_broker.coordinator.model import Protocol

JOIN_EPOCH: Final = 0
"""The epoch of a member that wants to join, or to join again after it was fenced."""
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member that goes and will be back: nobody gets its partitions until its session ends."""

Owned = Mapping[bytes, Mapping[int, int]]
"""The epoch of the assignment, by topic id and partition. Never changed in place."""


class MemberState(IntEnum):
    """Kafka's MemberState; the values are in the records."""

    STABLE = 0
    """It has all partitions that its epoch gives it."""
    UNREVOKED_PARTITIONS = 1
    """It was told to give up partitions and has not confirmed that yet."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """A newer Kafka wrote a state that is unknown here: the member has to start over."""

    @classmethod
    def of(cls, value: int) -> MemberState:
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSide:
    """The data that a member of the classic protocol sent when it joined."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member, as two records hold it: its own description, and the partitions that it owns in which epoch."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    """The regular expression of its subscription; empty for none."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicSide | None = None
    """None for a member of the consumer protocol."""

    epoch: int = 0
    previous_epoch: int = -1
    """The epoch before the last answer, which may have been lost."""
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)
    """The partitions that it was told to give up."""

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """Returns the epoch in which this partition was assigned; None if the member neither owns nor revokes it."""
        for owned in (self.assigned, self.revoking):
            found = owned.get(topic_id, {}).get(partition)
            if found is not None:
                return found
        return None

    @property
    def all_owned(self) -> dict[bytes, list[int]]:
        """Returns all partitions that it is responsible for, also those that it has not given up yet."""
        result: dict[bytes, list[int]] = {}
        for owned in (self.assigned, self.revoking):
            for topic_id, partitions in owned.items():
                result.setdefault(topic_id, []).extend(partitions)
        return result
