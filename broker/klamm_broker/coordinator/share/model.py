"""Values of share groups that several modules use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from klamm_broker.coordinator.consumer.model import NamedPartitions
from klamm_kafka.wire.errors import ErrorCode

NO_OFFSET: Final = -1


class State(IntEnum):
    """The state of a record, with its number in `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @classmethod
    def stored(cls, number: int) -> State:
        """Returns the state behind a stored number. Whoever had acquired the record is gone."""
        return {1: cls.AVAILABLE, 3: cls.ARCHIVED}.get(number) or cls(number)


TERMINAL: Final = frozenset({State.ACKNOWLEDGED, State.ARCHIVED})
"""Records in these states are never delivered again."""


class StateBatch(NamedTuple):
    """Neighbouring records in one state, after the same number of deliveries."""

    first: int
    last: int
    state: int
    deliveries: int


class ShareKey(NamedTuple):
    """A share partition: a partition as one group reads it."""

    group_id: str
    topic_id: bytes
    partition: int


class DeliverySettings(NamedTuple):
    """Settings of one group's deliveries."""

    lock_ms: int = 30_000
    delivery_limit: int = 5
    max_locks: int = 2_000
    renew_enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """ShareGroupHeartbeat. None: unchanged since the last one."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topics: Sequence[str] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeatResult:
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[bytes, Sequence[int]] | None = None
    """None: unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberDescription:
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: Sequence[str]
    assignment: Sequence[NamedPartitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescription:
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    epoch: int = 0
    target_epoch: int = 0
    members: Sequence[ShareMemberDescription] = field(default_factory=list)


class AlteredOffsets(NamedTuple):
    """The outcome of AlterShareGroupOffsets: an error of the whole, or one for each partition by topic name."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    topics: Mapping[str, Mapping[int, ErrorCode]] = {}


class DeletedOffsets(NamedTuple):
    """The outcome of DeleteShareGroupOffsets: an error of the whole, or error and message for each topic name."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    topics: Mapping[str, tuple[ErrorCode, str | None]] = {}
