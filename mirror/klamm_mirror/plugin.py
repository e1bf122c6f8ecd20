"""Registers the mirror's connectors, as any plugin package registers its own."""

from __future__ import annotations

from typing import Final

from klamm_mirror.checkpoint.connector import MirrorCheckpointConnector
from klamm_mirror.heartbeat.connector import MirrorHeartbeatConnector
from klamm_mirror.source.connector import MirrorSourceConnector
from klamm_plugins.connector import SinkConnector, SourceConnector
from klamm_plugins.hookspecs import hookimpl

CONNECTORS: Final[tuple[type[SourceConnector], ...]] = (
    MirrorCheckpointConnector,
    MirrorHeartbeatConnector,
    MirrorSourceConnector,
)


@hookimpl
def register_connectors() -> list[type[SourceConnector] | type[SinkConnector]]:
    return [*CONNECTORS]
