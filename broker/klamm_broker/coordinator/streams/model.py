"""Questions and answers about Streams groups: plain values, free of protocol versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from klamm_broker.coordinator.streams.member import Endpoint, StreamsMember
from klamm_broker.coordinator.streams.tasks import OwnedTasks, Tasks, TaskSet
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.streams_group_records import StreamsGroupTopologyValue

PROTOCOL_TYPE = "streams"
Topology = StreamsGroupTopologyValue
"""A topology, as its record holds it. Never changed."""


class Status(IntEnum):
    """The conditions of a group that a heartbeat tells, beside its error."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class StatusDetail(NamedTuple):
    status: Status
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat:
    """StreamsGroupHeartbeat. None: unchanged since the last one."""

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active: Tasks | None = None
    standby: Tasks | None = None
    warmup: Tasks | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] | None = None
    has_task_offsets: bool = False
    has_task_end_offsets: bool = False
    shutdown: bool = False
    client_id: str = ""
    client_host: str = ""

    @property
    def owned(self) -> TaskSet | None:
        """Returns the tasks that the member claims to own; None when it named none."""
        if self.active is None or self.standby is None or self.warmup is None:
            return None
        return TaskSet(active=self.active, standby=self.standby, warmup=self.warmup)


class NamedPartitions(NamedTuple):
    topic: str
    partitions: Sequence[int]


class EndpointPartitions(NamedTuple):
    """The partitions whose state is found at an endpoint."""

    endpoint: Endpoint
    active: Sequence[NamedPartitions]
    standby: Sequence[NamedPartitions]


class NewTopic(NamedTuple):
    """An internal topic that is missing. A replication factor of -1 is the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsResult:
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    statuses: Sequence[StatusDetail] = ()
    assigned: OwnedTasks | None = None
    """None: unchanged."""
    endpoint_epoch: int = 0
    endpoints: Sequence[EndpointPartitions] | None = None
    """None: unchanged."""
    missing_topics: Sequence[NewTopic] = ()
    """Internal topics that the broker is to make."""


class TopicDescription(NamedTuple):
    name: str
    partitions: int
    replication_factor: int
    configs: Sequence[tuple[str, str]]


class SubtopologyDescription(NamedTuple):
    subtopology_id: str
    source_topics: Sequence[str]
    repartition_sink_topics: Sequence[str]
    repartition_source_topics: Sequence[TopicDescription]
    changelog_topics: Sequence[TopicDescription]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupDescription:
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    epoch: int = 0
    target_epoch: int = 0
    topology_epoch: int = -1
    """-1: there is no topology."""
    subtopologies: Sequence[SubtopologyDescription] = ()
    members: Sequence[tuple[StreamsMember, TaskSet]] = field(default_factory=list)
    """Each with its target."""
