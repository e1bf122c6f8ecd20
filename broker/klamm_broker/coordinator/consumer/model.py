"""Questions and answers about consumer groups: plain values, free of protocol versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from klamm_broker.coordinator.consumer.assignment import Assignment
from klamm_kafka.wire.errors import ErrorCode

ASSIGNORS: Final = ("uniform", "range")
"""group.consumer.assignors; the first one is the default."""


class MigrationPolicy(Enum):
    """group.consumer.migration.policy: which changes of protocol a group with members may make."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class GroupSettings(NamedTuple):
    """The settings that each group may have of its own, in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


def _broker_settings(_: str) -> GroupSettings:
    return GroupSettings()


class ConsumerConfig(NamedTuple):
    """Kafka's properties of consumer groups."""

    enabled: bool = True
    """True if group.coordinator.rebalance.protocols has `consumer`."""
    assignors: Sequence[str] = ASSIGNORS
    max_size: int = 2**31 - 1
    """group.consumer.max.size."""
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
    """group.consumer.regex.refresh.interval.ms."""
    settings: Callable[[str], GroupSettings] = _broker_settings
    """Returns a group's settings: the broker's properties, overridden by the group's own."""


class HeartbeatRequest(NamedTuple):
    """ConsumerGroupHeartbeat. None: unchanged since the last one."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: Sequence[str] | None = None
    regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""
    brings_member_id: bool = True
    """From version 1 on members make up their own ids."""
    sees: Callable[[str], bool] | None = None
    """Decides whether the member may describe a topic. None: all."""

    @property
    def is_full(self) -> bool:
        """True if it tells everything, so that it must be told everything as well."""
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None


class HeartbeatResult(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[bytes, Sequence[int]] | None = None
    """None: unchanged."""


class NamedPartitions(NamedTuple):
    topic_id: bytes
    topic: str
    partitions: Sequence[int]


class ConsumerMemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: Sequence[str]
    regex: str
    assignment: Sequence[NamedPartitions]
    target_assignment: Sequence[NamedPartitions]
    is_classic: bool


class ConsumerGroupDescription(NamedTuple):
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: Sequence[ConsumerMemberDescription] = ()
