"""What the worker knows of the installed plugins: names, kinds and versions, never the classes. No I/O.

The list comes from a child (the supervisor's "list_plugins"), because importing a plugin runs its code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klamm.connect.config import WorkerConfig
from klamm.connect.definitions import CONVERTERS
from klamm.connect.model import PluginInfo
from klamm_base.configdef import invalid
from klamm_base.errors import ConfigError

CONNECTOR_TYPES: Final = ("source", "sink")
CONVERTER: Final = "converter"
HEADER_CONVERTER: Final = "header_converter"


class PluginRegistry:
    """Finds plugins by full name, by simple name, and by simple name without "Connector" (Kafka's aliases)."""

    def __init__(self, plugins: Iterable[PluginInfo] = ()) -> None:
        self._plugins = list(plugins)
        self._learned: dict[str, PluginInfo] = {}

    @property
    def all(self) -> list[PluginInfo]:
        return list(self._plugins)

    @property
    def connectors(self) -> list[PluginInfo]:
        return [p for p in self._plugins if p.type in CONNECTOR_TYPES]

    def of_type(self, type: str) -> list[PluginInfo]:
        return [p for p in self._plugins if p.type == type]

    def learn(self, name: str, plugin: PluginInfo) -> None:
        """Note what a child found under a name that the list does not have (a Python path)."""
        if self.connector(name) is None:
            self._learned[name] = plugin

    def connector(self, name: str) -> PluginInfo | None:
        """The connector that `connector.class` means; None when there is none or several."""
        return _only(name, self.connectors) or self._learned.get(name)

    def plugin(self, name: str, type: str) -> PluginInfo | None:
        """The plugin of a kind that this name means; None when there is none or several."""
        return _only(name, self.of_type(type))


def check_converters(config: WorkerConfig, plugins: PluginRegistry) -> None:
    """Raise ConfigError for a converter of the worker that is not installed: its connectors could not run."""
    for key in CONVERTERS:
        kind = HEADER_CONVERTER if key == "header.converter" else CONVERTER
        name = config[key]
        if plugins.plugin(name, kind) is None:
            known = ", ".join(p.plugin_class for p in plugins.of_type(kind))
            why = f"Class {name} could not be found. Available are: {known}"
            raise ConfigError(str(invalid(key, name, why)), key=key, source=config.source(key))


def _only(name: str, known: Iterable[PluginInfo]) -> PluginInfo | None:
    """The one of this full name, else the only one of this short name."""
    plugins = list(known)
    found = [p for p in plugins if p.plugin_class == name] or [p for p in plugins if name in p.names]
    return found[0] if len(found) == 1 else None
