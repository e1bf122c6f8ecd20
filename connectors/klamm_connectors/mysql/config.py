"""The MySQL source's configuration; keys have Debezium's names where they mean the same. `keys` has them by idea."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klamm_base.configdef import ConfigDef
from klamm_connectors.mysql.keys import capture, connection, events, signals, snapshots, tombstones
from klamm_connectors.mysql.keys.capture import Capture
from klamm_connectors.mysql.keys.connection import Connection
from klamm_connectors.mysql.keys.events import Events
from klamm_connectors.mysql.keys.signals import Signals
from klamm_connectors.mysql.keys.snapshots import Reading, Snapshots
from klamm_connectors.mysql.keys.tombstones import Tombstones


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A task's settings."""

    connection: Connection
    events: Events
    capture: Capture
    snapshots: Snapshots
    reading: Reading
    signals: Signals
    tombstones: Tombstones | None


def config_def() -> ConfigDef:
    """Returns the configuration keys."""
    d = ConfigDef()
    for part in (connection, events, capture, snapshots, signals, tombstones):
        part.define(d)
    return d


def parse(props: Mapping[str, str]) -> Settings:
    """Returns typed settings. Raises ConfigError, also for keys that exclude each other."""
    values = config_def().parse(props)
    return Settings(
        connection=connection.read(values, props.get("name", "")),
        events=events.read(values, props),
        capture=capture.read(values, props),
        snapshots=snapshots.read(values, props),
        reading=snapshots.read_reading(values),
        signals=signals.read(values, props),
        tombstones=tombstones.read(values, props),
    )
