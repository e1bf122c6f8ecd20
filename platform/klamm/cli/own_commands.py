"""The commands of Klamm itself. A command's module is imported when the command runs, or when help lists them all."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import typer

from klamm.cli.context import Commands
from klamm.cli.plugin_commands import Group

COMMANDS: Final = {
    "up": "klamm.cli.up",
    "produce": "klamm.cli.produce",
    "consume": "klamm.cli.consume",
    "offsets": "klamm.cli.offsets",
    "apply": "klamm.cli.apply",
    "export": "klamm.cli.export",
    "reconcile": "klamm.cli.reconcile",
    "doctor": "klamm.cli.doctor",
    "top": "klamm.cli.top",
}
"""Modules with a function that has the name of its command."""
GROUPS: Final = {
    "broker": "klamm.cli.broker",
    "connect": "klamm.cli.connect",
    "console": "klamm.cli.console",
    "mirror": "klamm.cli.mirror",
    "registry": "klamm.cli.registry",
    "rest": "klamm.cli.rest",
    "schema": "klamm.cli.schema",
    "agent": "klamm.cli.agent",
    "bench": "klamm.cli.bench",
    "context": "klamm.cli.context_commands",
    "topic": "klamm.cli.topic",
    "group": "klamm.cli.group",
    "lag": "klamm.cli.lag",
    "config": "klamm.cli.config",
    "txn": "klamm.cli.txn",
    "user": "klamm.cli.user",
    "quota": "klamm.cli.quota",
    "security": "klamm.cli.security",
    "token": "klamm.cli.token",
    "acl": "klamm.cli.acl",
    "log": "klamm.cli.log",
    "connector": "klamm.cli.connector",
    "plugins": "klamm.cli.plugins",
    "dlq": "klamm.cli.dlq",
    "backup": "klamm.cli.backup",
    "spark": "klamm.cli.spark",
    "service": "klamm.cli.service",
    "demo": "klamm.cli.demo",
}
"""Modules with a group of commands as `app`."""
KAFKA: Final = ("kafka-", "connect-")
"""The beginnings of the names of Kafka's own commands."""


class OwnCommands(Mapping[str, Any]):
    """Commands by name, imported when they are looked up."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded |= _load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from (*COMMANDS, *_load(KAFKA[0]), *GROUPS)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _load(name: str) -> Mapping[str, Any]:
    """Imports a command, or all of Kafka's. Returns an empty dict for an unknown one."""
    commands = Commands(rich_markup_mode=None)
    if name.startswith(KAFKA):
        from klamm.cli import kafka

        kafka.register(commands)
    elif name in COMMANDS:
        commands.command(name)(getattr(importlib.import_module(COMMANDS[name]), name))
    elif name in GROUPS:
        commands.add_typer(importlib.import_module(GROUPS[name]).app, name=name)
    loaded: Mapping[str, Any] = typer.main.get_group(commands).commands
    return loaded


class Klamm(Group):
    """`klamm` itself."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = OwnCommands()  # type: ignore[assignment]  # nothing adds to it
