"""The worker's knowledge of the installed plugins: names, kinds and versions, never the classes. No I/O.

The list comes from child processes (`plugins.beside`), because importing a plugin runs its code. A
plugin may be there in several versions (KIP-891): where a configuration asks for none, the newest
counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from klamm.connect.model import PluginInfo
from klamm.connect.settings.connector_keys import CONVERTERS
from klamm.environments.versions import BadVersion, sort_key, version_range
from klamm_base.configdef import invalid
from klamm_base.errors import ConfigError
from klamm_plugins.discovery import unknown_class, unknown_connector

if TYPE_CHECKING:  # every child imports this module, and none the worker's configuration
    from klamm.connect.config import WorkerConfig
    from klamm.environments.inspection import Broken

CONNECTOR_TYPES: Final = ("source", "sink")
CONVERTER: Final = "converter"
HEADER_CONVERTER: Final = "header_converter"
TRANSFORMATION: Final = "transformation"
PREDICATE: Final = "predicate"
MIRROR: Final = "mirror"


class PluginVersionNotFound(ConfigError):
    """A plugin is there, but in no version that the configuration allows."""


class PluginRegistry:
    """Finds plugins by full name, by simple name, and by simple name without "Connector" (Kafka's aliases)."""

    def __init__(self, plugins: Iterable[PluginInfo] = (), broken: Iterable[Broken] = ()) -> None:
        self._plugins = list(plugins)
        self._broken = list(broken)
        self._learned: dict[str, PluginInfo] = {}

    @property
    def all(self) -> list[PluginInfo]:
        return list(self._plugins)

    @property
    def connectors(self) -> list[PluginInfo]:
        return [p for p in self._plugins if p.type in CONNECTOR_TYPES]

    def of_type(self, type: str) -> list[PluginInfo]:
        return [p for p in self._plugins if p.type == type]

    def not_found(self, name: str, type: str) -> str:
        """Returns the sentence about a class that nobody has: with a suggestion, and what may have it but is broken."""
        said = unknown_class(name, {each for p in self.of_type(type) for each in (p.plugin_class, *p.names)})
        return said + _listed(self._broken)

    def learn(self, name: str, plugin: PluginInfo) -> None:
        """Note what a child found under a name that the list does not have (a Python path)."""
        if self.connector(name) is None:
            self._learned[name] = plugin

    def inherit(self, other: PluginRegistry) -> None:
        """Keep what another registry has learned."""
        for name, plugin in other._learned.items():
            self.learn(name, plugin)

    def connector(self, name: str, version: str | None = None) -> PluginInfo | None:
        """Returns the connector that `connector.class` means; None when there is none or several, or none of that
        version.
        """
        return _newest(self._allowed(name, CONNECTOR_TYPES, version)) or self._learned.get(name)

    def plugin(self, name: str, type: str, version: str | None = None) -> PluginInfo | None:
        """Returns the plugin of a kind that this name means; None when there is none or several, or none of that
        version.
        """
        return _newest(self._allowed(name, (type,), version))

    def versions(self, name: str, *types: str) -> list[str]:
        """Returns the installed versions of a plugin, the newest last."""
        return sorted({p.version for p in self._called(name, types)}, key=sort_key)

    def choose(
        self,
        name: str,
        types: tuple[str, ...],
        *,
        version: str | None,
        key: str | None = None,
        prefer: str | None = None,
    ) -> PluginInfo | None:
        """Returns the plugin to use: from the package `prefer` if it has the plugin and no version is asked for,
        else the newest.

        Returns None when there is none or several. Raises PluginVersionNotFound (Kafka's words), BadVersion.
        """
        fitting = self._allowed(name, types, version)
        if not fitting and (why := self.version_error(name, types, version)):
            raise PluginVersionNotFound(why, key=key)
        if version is None and prefer is not None:
            fitting = [p for p in fitting if p.package == prefer] or fitting
        return _newest(fitting)

    def version_error(self, name: str, types: tuple[str, ...], version: str | None) -> str | None:
        """Returns Kafka's words for a plugin that is there, but not in this version; None otherwise. Raises
        BadVersion.
        """
        found = self._called(name, types)
        if not found or self._allowed(name, types, version):
            return None
        versions = ", ".join(self.versions(name, *types))
        return (
            f"Plugin {found[0].plugin_class} not found that matches the version range {version_range(version)}, "
            f"available versions: [{versions}]"
            + _listed(each for each in self._broken if each.name.partition("==")[0] in _packages(found))
        )

    def unknown_connector(self, name: str, message: str) -> str:
        """Returns a child's sentence about an unknown connector with a suggestion that counts installed packages, too, which
        the child does not have. Other sentences stay as they are.
        """
        said = unknown_connector(name, ())
        if not message.startswith(said):
            return message
        aliases = {
            alias for p in self.connectors for alias in p.names if "." not in alias and ":" not in alias
        }
        return unknown_connector(name, aliases) + message.removeprefix(said)

    def _allowed(self, name: str, types: tuple[str, ...], version: str | None) -> list[PluginInfo]:
        asked = version_range(version)
        return [p for p in self._called(name, types) if asked is None or p.version in asked]

    def _called(self, name: str, types: tuple[str, ...]) -> list[PluginInfo]:
        """Returns every version of the plugin of this full name, else of the only plugin of this short name."""
        known = [p for p in self._plugins if not types or p.type in types]
        found = [p for p in known if p.plugin_class == name] or [p for p in known if name in p.names]
        return found if len({p.plugin_class for p in found}) == 1 else []


def check_converters(config: WorkerConfig, plugins: PluginRegistry) -> None:
    """Raise ConfigError for a converter of the worker that is not installed: its connectors could not run."""
    for key in CONVERTERS:
        kind = HEADER_CONVERTER if key == "header.converter" else CONVERTER
        name, version_key = config[key], f"{key}.plugin.version"
        try:
            found = plugins.choose(name, (kind,), version=config.raw.get(version_key))
        except (PluginVersionNotFound, BadVersion) as e:
            raise ConfigError(str(e), key=version_key, source=config.source(version_key)) from None
        if found is None:
            why = str(invalid(key, name, plugins.not_found(name, kind)))
            raise ConfigError(why, key=key, source=config.source(key))


def _packages(plugins: Iterable[PluginInfo]) -> set[str]:
    """Returns the names of the packages that have these plugins."""
    return {p.package.partition("==")[0] for p in plugins if p.package}


def _listed(broken: Iterable[Broken]) -> str:
    """Returns the end of a sentence that says what may have a plugin, but is broken."""
    each = ", ".join(f"{one.name} ({one.error})" for one in broken)
    return f"; these plugin packages could not be loaded: {each}" if each else ""


def _newest(found: list[PluginInfo]) -> PluginInfo | None:
    """Returns the newest plugin. Of equal versions it is that of the newest installed package, which can be
    removed, unlike a plugin beside the worker.
    """
    return max(found, key=lambda p: (sort_key(p.version), *_package_key(p)), default=None)


def _package_key(plugin: PluginInfo) -> tuple[object, ...]:
    name, _, version = plugin.package.partition("==")
    return bool(name), sort_key(version), name
