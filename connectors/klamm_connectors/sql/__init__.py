"""SqlSink: records of topics to tables of SQL databases, under the keys of the JDBC sink."""

from __future__ import annotations

from klamm_connectors.sql.connector import SqlSinkConnector
from klamm_plugins.connector import SinkConnector, SourceConnector
from klamm_plugins.hookspecs import hookimpl


@hookimpl
def register_connectors() -> list[type[SourceConnector] | type[SinkConnector]]:
    return [SqlSinkConnector]
