"""MySqlSource: tables of MySQL and MariaDB to topics, by snapshot and binlog."""

from __future__ import annotations

from klamm_connectors.mysql.connector import MariaDbSourceConnector, MySqlSourceConnector
from klamm_plugins.connector import SinkConnector, SourceConnector
from klamm_plugins.hookspecs import hookimpl


@hookimpl
def register_connectors() -> list[type[SourceConnector] | type[SinkConnector]]:
    return [MariaDbSourceConnector, MySqlSourceConnector]
