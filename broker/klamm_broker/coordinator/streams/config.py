"""Settings of Streams groups, and the names of their states: all that a broker needs that has no such group."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class StreamsGroupState(StrEnum):
    """Kafka's states of a Streams group."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class StreamsSettings(NamedTuple):
    """The settings that each group may have of its own."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    num_standby_replicas: int = 0
    initial_rebalance_delay_ms: int = 3_000

    @property
    def assignment_configs(self) -> dict[str, str]:
        """Returns the settings of assignments as a group's record keeps them: a change begins a new epoch."""
        return {"num.standby.replicas": str(self.num_standby_replicas)}


def _broker_settings(_: str) -> StreamsSettings:
    return StreamsSettings()


def _enabled() -> bool:
    return True


class StreamsConfig(NamedTuple):
    """Kafka's properties of Streams groups."""

    enabled: Callable[[], bool] = _enabled
    """Returns whether group.coordinator.rebalance.protocols has `streams`, and streams.version is at least 1."""
    max_size: int = 2**31 - 1
    """group.streams.max.size."""
    settings: Callable[[str], StreamsSettings] = _broker_settings
    """Returns a group's settings: the broker's properties, overridden by the group's own."""
