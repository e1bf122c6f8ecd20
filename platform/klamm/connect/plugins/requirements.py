"""The packages that a connector's configuration needs, and the entry points that its processes import.
Pure.

A configuration names a connector, converters, transforms and predicates, each perhaps in a version
(KIP-891). The connector's processes run in the environment made of the installed packages among them.
Plugins beside the worker are in every environment. A converter, transform or predicate without a
version comes from the connector's own package if that has it, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from klamm.connect.plugins.catalog import (
    CONNECTOR_TYPES,
    CONVERTER,
    HEADER_CONVERTER,
    MIRROR,
    PREDICATE,
    TRANSFORMATION,
    PluginRegistry,
    PluginVersionNotFound,
)
from klamm.connect.settings.connector_keys import CONNECTOR_CLASS, CONVERTERS, MIRROR_PLUGINS
from klamm.environments.versions import BadVersion
from klamm_base.errors import ConfigError

VERSION: Final = "plugin.version"
CONNECTOR_VERSION: Final = f"connector.{VERSION}"
_STAGES: Final = (("transforms", TRANSFORMATION), ("predicates", PREDICATE))
_OF_KAFKA: Final = frozenset(
    {
        "DefaultTopicFilter", "DefaultGroupFilter", "DefaultConfigPropertyFilter", "DefaultReplicationPolicy",
        "IdentityReplicationPolicy", "ForwardingAdmin",
    }
)  # fmt: skip
_DEFAULT_HEADER_CONVERTER: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnvironment:
    """The environment of a child: its folder `site`, None for the worker's own packages, and the
    `entry_points` that the configuration needs, as (name, module). The child looks for any other name in all
    entry points.
    """

    site: str | None = None
    entry_points: tuple[tuple[str, str], ...] = ()


class Requirements(NamedTuple):
    """The requirements of a configuration: installed packages (`name==version`, sorted) and entry points.
    `unknown`: the worker does not know one of its plugins.
    """

    packages: tuple[str, ...]
    entry_points: tuple[tuple[str, str], ...]
    unknown: bool = False


class Reference(NamedTuple):
    """A plugin that a configuration names: the key of its version, its name, kinds, and the version asked for."""

    key: str
    name: str
    types: tuple[str, ...]
    version: str | None


def requirements_of(
    registry: PluginRegistry, config: Mapping[str, str], worker: Mapping[str, str], *, strict: bool = True
) -> Requirements:
    """Returns the requirements of a connector. Raises PluginVersionNotFound, and ConfigError for a version
    that cannot be read.

    Without `strict`, missing versions are passed over, because validation reports them beside their keys.
    """
    packages: set[str] = set()
    entry_points: dict[tuple[str, str], None] = {}
    home: str | None = None
    unknown = False
    for reference in references(config, worker):
        try:
            plugin = registry.choose(
                reference.name, reference.types, version=reference.version, key=reference.key, prefer=home
            )
        except (PluginVersionNotFound, BadVersion) as e:
            if not strict:
                continue
            if isinstance(e, PluginVersionNotFound):
                raise
            raise ConfigError(
                f"Invalid value {reference.version} for configuration {reference.key}: {e}", key=reference.key
            ) from None
        if plugin is None:
            unknown = True  # a Python path, or an error that the child reports with what there is
            continue
        if reference.types == CONNECTOR_TYPES:
            home = plugin.package
        if plugin.package:
            packages.add(plugin.package)
        if plugin.entry_point:
            name, module = plugin.entry_point
            entry_points[name, module] = None
    return Requirements(tuple(sorted(packages)), tuple(entry_points), unknown)


def plugin_types(key: str) -> tuple[str, ...]:
    """Returns the types of the plugin that a key names in some connector's configuration; () when it names none.

    The mirror's plugins are left out: their names are looked up, and nothing is imported by a path. An alias is any text, so every `transforms.….type` counts, also one that `transforms` does not list yet.
    """
    if key == CONNECTOR_CLASS:
        return CONNECTOR_TYPES
    if key in CONVERTERS:
        return _converter_types(key)
    for listed, kind in _STAGES:
        if key.startswith(f"{listed}.") and key.endswith(".type"):
            return (kind,)
    return ()


def _converter_types(key: str) -> tuple[str, ...]:
    return (HEADER_CONVERTER if key == "header.converter" else CONVERTER,)


def references(config: Mapping[str, str], worker: Mapping[str, str]) -> Iterator[Reference]:
    """Yields every plugin that a connector's configuration names, the connector first; or the `plugin` in its
    `version`, when the call asks for a plugin's keys.
    """
    if "plugin" in config and CONNECTOR_CLASS not in config:
        yield Reference("version", config["plugin"], (), config.get("version"))
        return
    if config.get(CONNECTOR_CLASS):
        version = config.get(CONNECTOR_VERSION)
        yield Reference(CONNECTOR_VERSION, config[CONNECTOR_CLASS], CONNECTOR_TYPES, version)
    for key in CONVERTERS:
        types = _converter_types(key)
        level = config if config.get(key) else worker
        name = level.get(key) or (_DEFAULT_HEADER_CONVERTER if HEADER_CONVERTER in types else None)
        if name:
            yield Reference(f"{key}.{VERSION}", name, types, level.get(f"{key}.{VERSION}"))
    for listed, kind in _STAGES:
        for alias in (a.strip() for a in config.get(listed, "").split(",")):
            below = f"{listed}.{alias}"
            if alias and config.get(f"{below}.type"):
                yield Reference(
                    f"{below}.{VERSION}", config[f"{below}.type"], (kind,), config.get(f"{below}.{VERSION}")
                )
    for key in MIRROR_PLUGINS:
        if config.get(key) and not _comes_with_the_mirror(config[key]):
            yield Reference(key, config[key], (MIRROR,), None)


def _comes_with_the_mirror(name: str) -> bool:
    """Returns True for a name of Kafka's own classes, which are no plugins here."""
    package, _, cls = name.rpartition(".")
    return cls in _OF_KAFKA and (not package or package.startswith("org.apache.kafka."))
