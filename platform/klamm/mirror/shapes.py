"""The JSON of `klamm mirror status`, as types. Times are epoch ms, ages seconds; null is not known, or does not apply."""

from __future__ import annotations

from enum import StrEnum
from typing import TypedDict


class FlowState(StrEnum):
    """The states of a flow, from the worst to the best."""

    NOT_RUNNING = "NOT RUNNING"
    SILENT = "SILENT"
    """Its process is there, and does not answer."""
    RESTARTING = "RESTARTING"
    """Its process died; `klamm mirror start` starts it again."""
    FAILED = "FAILED"
    DEGRADED = "DEGRADED"
    """Some partitions are stopped."""
    WAITING = "WAITING"
    """A cluster does not answer."""
    THROTTLED = "THROTTLED"
    """A limit holds the partition back."""
    STARTING = "STARTING"
    STOPPED = "STOPPED"
    """A connector was stopped, over REST."""
    PAUSED = "PAUSED"
    RUNNING = "RUNNING"
    PROMOTED = "PROMOTED"
    """(Partitions) The copy is an ordinary topic of the target now, and is left alone."""


class PartitionStatus(TypedDict):
    """A partition of the source. `offset` is the next one to copy. `why`: the reason of a stop or a wait."""

    topic: str
    partition: int
    remote_topic: str
    state: str
    offset: int
    lag: int | None
    lag_seconds: float | None
    record_rate: float
    byte_rate: float
    catch_up_seconds: float | None
    caught_up: float | None
    gap_records: int
    why: str | None


class TaskStatus(TypedDict):
    """A task of a connector."""

    id: int
    state: str
    waiting_for: str | None
    why: str | None


class UpkeepStatus(TypedDict):
    """The state of schemas, quotas or users: since when it is whole, figures, what conflicts, why the present pass fails."""

    age_seconds: float | None
    figures: dict[str, int]
    conflicts: dict[str, str]
    examples: list[str]
    why: str | None


class ConnectorStatus(TypedDict):
    """A connector of a flow."""

    name: str
    state: str
    why: str | None
    tasks: list[TaskStatus]


class FlowStatus(TypedDict):
    """A flow: sums over its partitions, the age of its other work, and its parts.

    `lag` and `lag_seconds` are over the partitions whose lag is known: all but `partitions_unknown`. `caught_up` is
    the share of the lag, since it was largest, that is copied by now.
    """

    flow: str
    source: str
    target: str
    enabled: bool
    state: str
    why: str | None
    pid: int | None
    started_ms: int | None
    partitions_total: int
    partitions_unknown: int
    partitions_stopped: int
    lag: int | None
    lag_seconds: float | None
    record_rate: float | None
    byte_rate: float | None
    catch_up_seconds: float | None
    caught_up: float | None
    gap_records: int
    checkpoint_age_seconds: float | None
    group_offset_age_seconds: float | None
    heartbeat_age_seconds: float | None
    upkeep: dict[str, UpkeepStatus]
    """By name: schemas, quotas, users; without those that the flow does not look after."""
    groups_left_out: dict[str, str]
    """Groups whose offsets are not followed at the source, or not set at the target, and why."""
    connectors: list[ConnectorStatus]
    partitions: list[PartitionStatus]


class MirrorStatus(TypedDict):
    """All flows of a file."""

    at_ms: int
    flows: list[FlowStatus]
