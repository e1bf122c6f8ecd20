"""The broker's properties of share groups (KIP-932): `group.share.…` and `share.coordinator.…`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm_base.configdef import Importance, Type, between, invalid, one_of

_SIMPLE: Final = "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"
_NUMBERS: Final = (
    ("session.timeout.ms", (1, None), (45_000, 45_000, 60_000), "How long a member may be silent before it is taken for failed, in milliseconds"),
    ("heartbeat.interval.ms", (1, None), (5_000, 5_000, 15_000), "How often members should send their heartbeat, in milliseconds"),
    ("assignment.interval.ms", (0, None), (1_000, 0, 15_000), "The least time between two assignments of a group, in milliseconds"),
    ("record.lock.duration.ms", (1_000, 3_600_000), (30_000, 15_000, 60_000), "How long a delivered record is locked for its reader, in milliseconds"),
    ("delivery.count.limit", (2, 10), (5, 2, 10), "How often a record is delivered before it is given up"),
    ("partition.max.record.locks", (100, 10_000), (2_000, 100, 4_000), "The most records in flight in a partition"),
)  # fmt: skip
_BOUNDS_OF: Final = {
    "min.record.lock.duration.ms": (1_000, 30_000),
    "max.record.lock.duration.ms": (30_000, 3_600_000),
    "min.delivery.count.limit": (2, 5),
    "max.delivery.count.limit": (5, 25),
    "min.partition.max.record.locks": (100, 2_000),
    "max.partition.max.record.locks": (2_000, 10_000),
}
NAMES: Final = tuple(name for name, *_ in _NUMBERS)
"""The names behind `group.share.` of the numbers that a group may have of its own, as `share.…`."""


def define(key: Any) -> None:
    """Define the properties with `key(name, type, default, validator, documentation)`."""
    for name, range_, defaults, doc in _NUMBERS:
        texts = (f"{doc}. A group may have its own.", f"Least `share.{name}`.", f"Largest `share.{name}`.")
        for bound, default, about in zip(("", "min.", "max."), defaults, texts, strict=True):
            low, high = _BOUNDS_OF.get(bound + name, range_)
            valid = between(low) if high is None else between(low, high)
            key(f"group.share.{bound}{name}", Type.INT, default, valid, about)
    number, importance = between(1), Importance.LOW
    key("group.share.max.size", Type.INT, 200, between(1, 1_000), "The most members in a share group.")
    key("group.share.max.share.sessions", Type.INT, 2_000, number, "The most share sessions of all readers.")
    key(
        "group.share.assignors", Type.LIST, ["simple"], one_of("simple", _SIMPLE),
        "The assignor of share groups; there is one.",
    )  # fmt: skip
    key(
        "group.share.initialize.retry.interval.ms", Type.INT, 30_000, number,
        "The time after which a partition that was not initialized is tried again, in milliseconds.",
        importance=importance,
    )  # fmt: skip
    key(
        "share.coordinator.state.topic.num.partitions", Type.INT, 50, number,
        "Partitions of `__share_group_state` when it is created.",
    )  # fmt: skip
    key(
        "share.coordinator.state.topic.replication.factor", Type.SHORT, 3, number,
        "Accepted; one node holds one replica of `__share_group_state`.",
    )  # fmt: skip
    key(
        "share.coordinator.state.topic.min.isr", Type.SHORT, 2, number,
        "Accepted; one node holds one replica of `__share_group_state`, which is enough.",
    )  # fmt: skip
    key(
        "share.coordinator.state.topic.segment.bytes", Type.INT, 104_857_600, number,
        "Segment size of `__share_group_state` when it is created.",
    )  # fmt: skip
    key(
        "share.coordinator.snapshot.update.records.per.snapshot", Type.INT, 500, between(0, 500),
        "Updates of a share partition's state that are written between two snapshots.",
    )  # fmt: skip
    key(
        "share.coordinator.state.topic.prune.interval.ms", Type.INT, 300_000, number,
        "How often records of `__share_group_state` that are not needed are hidden, in milliseconds.",
        importance=importance,
    )  # fmt: skip
    key(
        "share.coordinator.cold.partition.snapshot.interval.ms", Type.INT, 300_000, number,
        "The time after which the state of a share partition that rests is written as a snapshot, in milliseconds.",
        importance=importance,
    )  # fmt: skip


def check(values: Mapping[str, Any]) -> None:
    """Raises ConfigError for properties that contradict each other."""
    for name in NAMES:
        key, low, high = (f"group.share.{bound}{name}" for bound in ("", "min.", "max."))
        if values[high] < values[low]:
            raise invalid(high, values[high], f"must be at least {low} ({values[low]})")
        if not values[low] <= values[key] <= values[high]:
            why = f"must be between {low} ({values[low]}) and {high} ({values[high]})"
            raise invalid(key, values[key], why)
    heartbeat, session = "group.share.heartbeat.interval.ms", "group.share.session.timeout.ms"
    if values[heartbeat] >= values[session]:
        raise invalid(heartbeat, values[heartbeat], f"must be less than {session} ({values[session]})")
    sessions, size = "group.share.max.share.sessions", "group.share.max.size"
    if values[sessions] < values[size]:
        raise invalid(sessions, values[sessions], f"must be at least {size} ({values[size]})")
