"""The broker's properties of quotas: the windows that rates are measured over, and the limits of connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm_base.configdef import Importance, Type, between, invalid
from klamm_broker.quota.connections import UNLIMITED

OVERRIDES: Final = "max.connections.per.ip.overrides"
RATE: Final = "max.connection.creation.rate"
BURST: Final = "klamm.quota.burst.seconds"
PER_LISTENER: Final = frozenset({"max.connections", RATE})
"""Properties that one listener may have of its own, beside the broker's."""


def define(key: Any) -> None:
    """Define the properties with `key(name, type, default, validator, documentation)`."""
    low = Importance.LOW
    for prefix, what in (("quota", "client quotas"), ("controller.quota", "controller_mutation_rate")):
        key(
            f"{prefix}.window.num", Type.INT, 11, between(1),
            f"Windows over which {what} are measured, the current one included.", importance=low,
        )  # fmt: skip
        key(
            f"{prefix}.window.size.seconds", Type.INT, 1, between(1), f"Length of a window of {what}, in seconds.",
            importance=low,
        )  # fmt: skip
    key(
        BURST, Type.INT, 1, between(1),
        "What a client may send or fetch at once after a rest, as seconds of its `producer_byte_rate` or "
        "`consumer_byte_rate`. 10 is Kafka's burst.", importance=low,
    )  # fmt: skip
    key(
        "max.connections",
        Type.INT,
        UNLIMITED,
        between(0),
        "The most client connections at a time. Further ones wait until one of them ends. "
        "`listener.name.<name>.max.connections` limits one listener.",
    )
    key(
        RATE,
        Type.INT,
        UNLIMITED,
        between(0),
        "The most new connections per second; further ones wait. `listener.name.<name>.max.connection.creation.rate` limits one "
        "listener.",
    )
    key(
        "max.connections.per.ip",
        Type.INT,
        UNLIMITED,
        between(0),
        "The most client connections from one address. A further connection is closed at once.",
    )
    key(
        OVERRIDES, Type.LIST, [], _check_overrides,
        "`max.connections.per.ip` of single addresses or hosts: `host:number`, comma separated.",
    )  # fmt: skip


def read_overrides(items: Sequence[str]) -> Mapping[str, int]:
    """Returns numbers by host of `host:number` texts. Raises ConfigError."""
    found = {}
    for item in items:
        host, colon, most = item.strip().rpartition(":")
        if not colon or not host or not most.strip().isdecimal():
            raise invalid(OVERRIDES, item, "must look like host:number")
        found[host.strip()] = int(most)
    return found


def _check_overrides(name: str, value: Any) -> None:
    read_overrides(value)
