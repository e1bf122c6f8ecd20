"""The plugin's hooks: Klamm calls them because the entry point in pyproject.toml names this module.

Imports stand in the hooks: every task of the package, and `klamm --help`, import this module.
"""

from __future__ import annotations

from klamm_plugins.command import Command
from klamm_plugins.hookspecs import hookimpl


@hookimpl
def register_connectors() -> list[type]:
    from klamm_example.datagen import DatagenSourceConnector
    from klamm_example.sqlite_sink import SqliteSinkConnector

    return [DatagenSourceConnector, SqliteSinkConnector]


@hookimpl
def register_transforms() -> list[type]:
    from klamm_example.hide import HideFields

    return [HideFields]


@hookimpl
def register_rest_extensions() -> list[type]:
    from klamm_example.failed_tasks import FailedTasks

    return [FailedTasks]


@hookimpl
def register_commands() -> list[Command]:
    said = "Print orders as the example's generator makes them."
    return [Command(name="example", help=said, target="klamm_example.commands:app")]
