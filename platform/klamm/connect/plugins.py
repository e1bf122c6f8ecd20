"""What the worker knows of the installed plugins: names, kinds and versions, never the classes. No I/O.

The list comes from a child (the supervisor's "list_plugins"), because importing a plugin runs its code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klamm.connect.model import PluginInfo

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
        found = [p for p in self.connectors if p.plugin_class == name]
        found = found or [p for p in self.connectors if name in _aliases(p.plugin_class)]
        return found[0] if len(found) == 1 else self._learned.get(name)

    def plugin(self, name: str, type: str) -> PluginInfo | None:
        """The plugin of a kind with this full name."""
        return next((p for p in self._plugins if p.type == type and p.plugin_class == name), None)


def _aliases(plugin_class: str) -> tuple[str, str]:
    simple = plugin_class.rpartition(".")[2]
    return simple, simple.removesuffix("Connector")
