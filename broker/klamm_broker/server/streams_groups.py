"""The group coordinator's view of the broker for Streams groups: properties, and what became of internal topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from klamm_broker.coordinator.streams.config import StreamsConfig, StreamsSettings
from klamm_broker.server import features
from klamm_broker.server.cluster_config import ResourceType

if TYPE_CHECKING:
    from klamm_broker.server.cluster_config import ClusterConfig
    from klamm_broker.server.config import BrokerConfig

_KEYS = (
    "session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms", "num.standby.replicas",
    "initial.rebalance.delay.ms",
)  # fmt: skip
"""In the order of `StreamsSettings`."""


def streams_config(config: Callable[[], BrokerConfig], cluster_config: ClusterConfig) -> StreamsConfig:
    """The coordinator's settings. `config` returns the present properties, as some change while the broker runs."""

    def enabled() -> bool:
        served = "streams" in config()["group.coordinator.rebalance.protocols"]
        return served and cluster_config.features.get(features.STREAMS, 0) >= 1

    def settings(group_id: str) -> StreamsSettings:
        values, own = config(), cluster_config.get(ResourceType.GROUP, group_id)
        return StreamsSettings(
            *(int(own.get(f"streams.{name}", values[f"group.streams.{name}"])) for name in _KEYS)
        )

    return StreamsConfig(enabled=enabled, max_size=config()["group.streams.max.size"], settings=settings)


class InternalTopics:
    """The internal topics that are being made, and those that could not be, with the reason, for a while."""

    def __init__(self) -> None:
        self._making: set[str] = set()
        self._failed: dict[str, tuple[str, int]] = {}

    def begin(self, names: Iterable[str], now_ms: int) -> set[str]:
        """Returns the topics that nobody makes now and that did not just fail; the caller makes them, and ends with `end`."""
        self._failed = {name: found for name, found in self._failed.items() if found[1] > now_ms}
        wanted = {name for name in names if name not in self._making and name not in self._failed}
        self._making |= wanted
        return wanted

    def end(self, names: Iterable[str], errors: Mapping[str, str], until_ms: int) -> None:
        """Take note of the outcome; no further attempt is made before `until_ms`."""
        self._making.difference_update(names)
        self._failed |= {name: (text, until_ms) for name, text in errors.items()}

    def errors(self, names: Iterable[str], now_ms: int) -> dict[str, str]:
        """Returns why topics could not be made."""
        found = ((name, self._failed.get(name)) for name in names)
        return {name: known[0] for name, known in found if known is not None and known[1] > now_ms}
