"""The plugin's hooks: Klamm calls them because the entry point in pyproject.toml names this module."""

from __future__ import annotations

from klamm_example.datagen import DatagenSourceConnector
from klamm_example.sqlite_sink import SqliteSinkConnector
from klamm_plugins.hookspecs import hookimpl


@hookimpl
def register_connectors() -> list[type]:
    return [DatagenSourceConnector, SqliteSinkConnector]
