"""Connectors that were started before their plugins were there: they start again when these appear."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from klamm.connect.plugins.catalog import PluginRegistry, PluginVersionNotFound
from klamm.connect.plugins.requirements import references
from klamm.connect.settings.connector_keys import NAME
from klamm.environments.versions import BadVersion

Config = Mapping[str, str]


class WaitingConnectors:
    """By name, with the configuration that something was missing for, the worker's own, and what that was: the keys.

    What stays missing is perhaps a Python path, which no list has; a connector is found when less is missing than was. It
    stays until it was placed again: a start that is still on its way to its failure is met, too.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Config, Config, frozenset[str]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def missing(self, registry: PluginRegistry, config: Config, worker: Config) -> None:
        """Something that this configuration names is not there."""
        if config.get(NAME):
            self._waiting[config[NAME]] = config, worker, _missing(registry, config, worker)

    def satisfied(self, config: Config) -> None:
        """All is there."""
        self._waiting.pop(config.get(NAME, ""), None)

    def found(self, registry: PluginRegistry, connectors: Iterable[str]) -> list[str]:
        """Those of the connectors that there are whose plugins are known now."""
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
