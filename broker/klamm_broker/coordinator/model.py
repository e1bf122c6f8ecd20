"""Questions and answers of the group coordinator: plain values, free of protocol versions.

The handlers in `api/` translate between these and the messages of each version.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from klamm_kafka.wire.errors import ErrorCode

UNKNOWN_MEMBER_ID: Final = ""
"""The member id of a member that has none yet."""
NO_GENERATION: Final = -1
"""The generation of a commit from outside group management."""
INVALID_OFFSET: Final = -1
"""The committed offset of a partition that has none."""
NO_TOPIC_ID: Final = bytes(16)
CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type whose subscriptions the coordinator can read."""


class GroupConfig(NamedTuple):
    """Kafka's properties of classic groups and offsets, and bounds that Kafka does not have."""

    offsets_topic_partitions: int = 50
    """offsets.topic.num.partitions."""
    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms."""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms."""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms."""
    max_size: int = 2**31 - 1
    """group.max.size."""
    new_member_join_timeout_ms: int = 300_000
    """A new member cannot send heartbeats while its JoinGroup is parked; after this it must ask again."""
    offset_metadata_max_bytes: int = 4_096
    """offset.metadata.max.bytes."""
    offsets_retention_ms: int = 10_080 * 60_000
    """offsets.retention.minutes."""
    offsets_retention_check_interval_ms: int = 600_000
    """offsets.retention.check.interval.ms."""
    max_groups: int = 100_000
    """Ten times the largest number of groups that a Kafka broker is known to serve well. At about 2 KB a group
    this bounds the coordinator at 200 MB, whatever clients do.
    """
    max_pending_members: int = 10_000
    """Members of one group that were given an id and have not come back with it. Groups in practice have hundreds of members;
    a client in a loop makes one with every request.
    """


class Protocol(NamedTuple):
    """An assignment protocol that a member supports, and the metadata that the leader needs for it."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    group_id: str
    member_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str | None = None
    requires_known_member_id: bool = True
    """From JoinGroup v4 on a new dynamic member is given its id first and must come back with it."""
    supports_skipping_assignment: bool = True
    """From JoinGroup v9 on a leader can be told that the assignment stands."""


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = UNKNOWN_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()


class SyncRequest(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = {}


class SyncResult(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveResult(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    members: tuple[tuple[LeavingMember, ErrorCode], ...] = ()


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """One committed offset, as it is stored."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """When set (OffsetCommit v2-4 with a retention time) it decides, not offsets.retention.minutes."""
    topic_id: bytes = NO_TOPIC_ID
    """The id of the topic at the time; zeros if the record names none (older records)."""


class OffsetToCommit(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: bytes = NO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None
    retention_ms: int | None = None
    reports_missing_group: bool = True
    """From OffsetCommit v9 on clients know GROUP_ID_NOT_FOUND and member epochs. Before, ILLEGAL_GENERATION stands for the
    former, and members of the consumer protocol cannot commit.
    """
    offsets: Mapping[TopicPartition, OffsetToCommit]

    @property
    def is_transactional(self) -> bool:
        return False


class CommitResult(NamedTuple):
    """An error of the whole request, or one per partition."""

    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[TopicPartition, ErrorCode] = {}


class FetchResult(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    offsets: Mapping[TopicPartition, CommittedOffset] = {}
    """Only partitions that have a committed offset. A view: read it before the coordinator goes on."""
    unstable: Container[TopicPartition] = ()
    """Partitions whose offset an open transaction may still change. A view as well."""


class MemberDescription(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[MemberDescription] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str = "classic"
