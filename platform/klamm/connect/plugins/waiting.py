"""Connectors that started before their plugins were installed. They start again once the plugins are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from klamm.connect.plugins.catalog import PluginRegistry, PluginVersionNotFound
from klamm.connect.plugins.requirements import references
from klamm.connect.settings.connector_keys import NAME
from klamm.environments.versions import BadVersion

Config = Mapping[str, str]


class WaitingConnectors:
    """The waiting connectors by name, each with its configuration, the worker's, and the keys of its missing
    plugins.

    A plugin that stays missing is perhaps a Python path, which no list has, so a connector counts as found
    when fewer plugins are missing than before. It stays here until it has started with all of its plugins, so
    that a start which fails meanwhile is repeated.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Config, Config, frozenset[str]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def missing(self, registry: PluginRegistry, config: Config, worker: Config) -> None:
        """Note that a plugin in this configuration is missing."""
        if config.get(NAME):
            self._waiting[config[NAME]] = config, worker, _missing(registry, config, worker)

    def satisfied(self, config: Config) -> None:
        """Note that all plugins of this configuration are there."""
        self._waiting.pop(config.get(NAME, ""), None)

    def found(self, registry: PluginRegistry, connectors: Iterable[str]) -> list[str]:
        """Returns those of the existing connectors whose plugins are known now."""
        there = set(connectors)
        self._waiting = {name: each for name, each in self._waiting.items() if name in there}
        return [
            name
            for name, (config, worker, before) in self._waiting.items()
            if before - _missing(registry, config, worker)
        ]


def _missing(registry: PluginRegistry, config: Config, worker: Config) -> frozenset[str]:
    found = set()
    for key, name, types, version in references(config, worker):
        with contextlib.suppress(PluginVersionNotFound, BadVersion):
            if registry.choose(name, types, version=version) is not None:
                continue
        found.add(key)
    return frozenset(found)
