"""The broker's properties of consumer groups (KIP-848): `group.consumer.…`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm_base.configdef import Importance, Type, between, invalid, one_of

_INT_MAX: Final = 2**31 - 1
_TIMES: Final = (
    ("session.timeout", 1, (45_000, 45_000, 60_000), "How long a member may be silent before it is taken for failed"),
    ("heartbeat.interval", 1, (5_000, 5_000, 15_000), "How often members should send their heartbeat"),
    ("assignment.interval", 0, (1_000, 0, 15_000), "The least time between two assignments of a group"),
)  # fmt: skip
_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
TIMES: Final = tuple(name for name, *_ in _TIMES)
"""The names in the order of `GroupSettings`."""
POLICIES: Final = ("bidirectional", "upgrade", "downgrade", "disabled")


def define(key: Any) -> None:
    """Define the properties with `key(name, type, default, validator, documentation)`."""
    for name, least, defaults, doc in _TIMES:
        for bound, default, about in zip(
            ("", "min.", "max."),
            defaults,
            (
                f"{doc}, in milliseconds. A group may have its own.",
                f"Least `{name}.ms`.",
                f"Largest `{name}.ms`.",
            ),
            strict=True,
        ):
            key(f"group.consumer.{bound}{name}.ms", Type.INT, default, between(least), about)
    key(
        "group.consumer.max.size",
        Type.INT,
        _INT_MAX,
        between(1),
        "The most members in a group of the consumer protocol.",
    )
    key(
        "group.consumer.assignors",
        Type.LIST,
        ["uniform", "range"],
        one_of("uniform", "range", *_CLASSES),
        "Assignors that members may ask for. The first one is the default.",
    )
    key(
        "group.consumer.migration.policy",
        Type.STRING,
        "bidirectional",
        _policy,
        "The changes between the classic and the consumer protocol that groups with members may make: bidirectional, upgrade, downgrade or disabled.",
    )
    key(
        "group.consumer.regex.refresh.interval.ms",
        Type.INT,
        600_000,
        between(10_000),
        "The time after which a regular expression is matched again although no topic was created.",
        importance=Importance.LOW,
    )


def assignor_name(text: str) -> str:
    """Returns the name of an assignor that is given by its name or by its class in Kafka."""
    return _CLASSES.get(text, text)


def _policy(name: str, value: Any) -> None:
    one_of(*POLICIES)(name, value.lower())


def check(values: Mapping[str, Any]) -> None:
    """Raises ConfigError for properties that contradict each other."""
    for name in TIMES:
        key, low, high = (f"group.consumer.{bound}{name}.ms" for bound in ("", "min.", "max."))
        if values[high] < values[low]:
            raise invalid(high, values[high], f"must be at least {low} ({values[low]})")
        if not values[low] <= values[key] <= values[high]:
            why = f"must be between {low} ({values[low]}) and {high} ({values[high]})"
            raise invalid(key, values[key], why)
    heartbeat, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
    if values[heartbeat] >= values[session]:
        raise invalid(heartbeat, values[heartbeat], f"must be less than {session} ({values[session]})")
