"""The broker's properties of Streams groups (KIP-1071): `group.streams.…`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm_base.configdef import Type, between, invalid

_INT_MAX: Final = 2**31 - 1
_TIMES: Final = (
    ("session.timeout", 1, (45_000, 45_000, 60_000), "How long a member may be silent before it is taken for failed"),
    ("heartbeat.interval", 1, (5_000, 5_000, 15_000), "How often members should send their heartbeat"),
    ("assignment.interval", 0, (1_000, 0, 15_000), "The least time between two assignments of a group"),
)  # fmt: skip
STANDBYS: Final = "group.streams.num.standby.replicas"
STANDBYS_MAX: Final = "group.streams.max.standby.replicas"


def define(key: Any) -> None:
    """Define the properties with `key(name, type, default, validator, documentation)`."""
    for name, least, defaults, doc in _TIMES:
        for bound, default, about in zip(
            ("", "min.", "max."),
            defaults,
            (
                f"{doc}, in milliseconds. A group may have its own.",
                f"Least `streams.{name}.ms` of a group.",
                f"Largest `streams.{name}.ms` of a group.",
            ),
            strict=True,
        ):
            key(f"group.streams.{bound}{name}.ms", Type.INT, default, between(least), about)
    for name, default, least, about in (
        ("max.size", _INT_MAX, 1, "The most members in a Streams group."),
        ("num.standby.replicas", 0, 0, "The number of standby tasks for each task with state. A group may have its own."),
        ("max.standby.replicas", 2, 0, "Largest `streams.num.standby.replicas` of a group."),
        (
            "initial.rebalance.delay.ms",
            3_000,
            0,
            "The time that a new group waits for more members before its first assignment, in milliseconds. A group may have its own.",
        ),
    ):  # fmt: skip
        key(f"group.streams.{name}", Type.INT, default, between(least), about)


def check(values: Mapping[str, Any]) -> None:
    """Raises ConfigError for properties that contradict each other."""
    for name, *_ in _TIMES:
        key, low, high = (f"group.streams.{bound}{name}.ms" for bound in ("", "min.", "max."))
        if values[high] < values[low]:
            raise invalid(high, values[high], f"must be at least {low} ({values[low]})")
        if not values[low] <= values[key] <= values[high]:
            why = f"must be between {low} ({values[low]}) and {high} ({values[high]})"
            raise invalid(key, values[key], why)
    heartbeat, session = "group.streams.heartbeat.interval.ms", "group.streams.session.timeout.ms"
    if values[heartbeat] >= values[session]:
        raise invalid(heartbeat, values[heartbeat], f"must be less than {session} ({values[session]})")
    if values[STANDBYS] > values[STANDBYS_MAX]:
        why = f"must be at most {STANDBYS_MAX} ({values[STANDBYS_MAX]})"
        raise invalid(STANDBYS, values[STANDBYS], why)
