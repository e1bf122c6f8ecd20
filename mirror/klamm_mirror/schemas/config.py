"""The settings of schemas: keys of MirrorSource, and the clients of the registries at both sides.

`A.schema.registry.url` and its companions are settings of a cluster, so connectors get them as
`source.cluster.schema.registry.url`. They are those of the converters with a schema registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between, one_of
from klamm_base.errors import ConfigError
from klamm_mirror.schemas.names import SubjectNames
from klamm_mirror.settings import filters
from klamm_mirror.settings.common_config import Side
from klamm_mirror.settings.plugins import FlowPlugins
from klamm_plugins.converters.registry import URL, RegistryClient, client_config
from klamm_plugins.converters.registry_admin import RegistryAdmin

ENABLED: Final = "sync.schemas.enabled"
INTERVAL: Final = "sync.schemas.interval.seconds"
IDS: Final = "sync.schemas.ids"
KEEP, TRANSLATE = "keep", "translate"
RECORDS: Final = "sync.schemas.records"
UNKNOWN: Final = "sync.schemas.unknown.ids"
REFUSE, PASS = "refuse", "pass"
SIDES: Final[tuple[Side, Side]] = ("source", "target")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSettings:
    """The settings of a flow that copies schemas. `clients` are of the source's registry and of the target's."""

    clients: tuple[Mapping[str, Any], Mapping[str, Any]]
    names: SubjectNames
    plugins: FlowPlugins
    """The topic filter and policy that `names` ask. The one user of these settings closes them."""
    ids: str = KEEP
    interval_s: float = 30
    records: re.Pattern[str] = re.compile(r"(?!)")
    """Keys and values that have schemas under names of records, as `TOPIC-key`, `TOPIC-value`."""
    passes_unknown: bool = False

    @property
    def translates(self) -> bool:
        return self.ids == TRANSLATE

    def registries(self) -> tuple[RegistryAdmin, RegistryAdmin]:
        """Returns new clients of both registries, for one thread. Raises ConfigError."""
        source, target = (RegistryAdmin(RegistryClient.of(client)) for client in self.clients)
        return source, target


def schemas_config() -> ConfigDef:
    """Returns the keys of schemas."""
    keys = ConfigDef()
    define = keys.define
    define(
        ENABLED, Type.BOOLEAN, False, importance=Importance.MEDIUM,
        documentation="Whether to copy schemas from the source's schema registry to the target's "
        f"(source.cluster.{URL}, target.cluster.{URL}).",
    )  # fmt: skip
    define(
        INTERVAL, Type.LONG, 30, validator=between(1), importance=Importance.LOW,
        documentation="How often to look for new versions of subjects, seconds.",
    )  # fmt: skip
    define(
        "schemas", Type.LIST, [".*"], validator=filters.check_patterns, importance=Importance.MEDIUM,
        documentation="Subjects to copy: names and regular expressions. Subjects of topics that are not mirrored are left out.",
    )  # fmt: skip
    define(
        "schemas.exclude", Type.LIST, [], validator=filters.check_patterns, importance=Importance.MEDIUM,
        documentation="Subjects to leave out; wins over schemas.",
    )  # fmt: skip
    define(
        IDS, Type.STRING, KEEP, validator=one_of(KEEP, TRANSLATE), importance=Importance.MEDIUM,
        documentation="keep: a schema has the same id and version at both registries. translate: the target's registry gives ids, "
        "and those in keys, values and headers are replaced.",
    )  # fmt: skip
    define(
        RECORDS, Type.LIST, [], validator=filters.check_patterns, importance=Importance.LOW,
        documentation="translate: keys and values whose schemas have names of records (RecordNameStrategy), as TOPIC-key, "
        "TOPIC-value: names and regular expressions.",
    )  # fmt: skip
    define(
        UNKNOWN, Type.STRING, REFUSE, validator=one_of(REFUSE, PASS), importance=Importance.LOW,
        documentation="translate: how to go on with a record whose schema nobody knows: refuse it, as mirror.gap.policy says, "
        "or pass it as it is.",
    )  # fmt: skip
    for side in SIDES:
        for key in client_config(ConfigDef()):
            default = [] if key.name == URL else key.default
            keys.add(replace(key, name=f"{side}.cluster.{key.name}", default=default))
    return keys


def schema_settings(props: Mapping[str, str], parsed: Mapping[str, Any]) -> SchemaSettings | None:
    """Returns the settings, for one user; None for a flow that copies no schemas. Raises ConfigError."""
    if not parsed[ENABLED]:
        return None
    from klamm_mirror.topics.target import (
        wants_topic,  # brings asyncio, which a connector's process starts without
    )

    plugins = FlowPlugins(props, parsed)
    policy, wants = plugins.policy, plugins.wants_topic
    target = parsed["target.cluster.alias"]

    def mirrored(topic: str) -> bool:
        return wants_topic(topic, wants, policy, target, heartbeats=False)

    subjects = filters.NameFilter.of(parsed, "schemas", "schemas.exclude")
    return SchemaSettings(
        clients=(_client(props, parsed, "source"), _client(props, parsed, "target")),
        names=SubjectNames(subjects.wants, mirrored, policy.remote_topic),
        plugins=plugins,
        ids=parsed[IDS],
        interval_s=float(parsed[INTERVAL]),
        records=filters.patterns(RECORDS, parsed[RECORDS]),
        passes_unknown=parsed[UNKNOWN] == PASS,
    )


def check_registries(props: Mapping[str, str], parsed: Mapping[str, Any]) -> None:
    """Raises ConfigError for a flow that copies schemas and lacks a registry, or has settings that no client takes."""
    if not parsed[ENABLED]:
        return
    for side in SIDES:
        client = _client(props, parsed, side)
        try:
            RegistryClient.of(client)
        except ConfigError as e:
            raise ConfigError(f"{side}.cluster: {e}", key=f"{side}.cluster.{e.key}") from None
    urls = [set(parsed[f"{side}.cluster.{URL}"]) for side in SIDES]
    if urls[0] & urls[1]:
        raise ConfigError(
            f"target.cluster.{URL} has an address of the source's registry. One registry for both clusters needs no copies "
            f"of schemas: set {ENABLED}=false",
            key=f"target.cluster.{URL}",
        )


def _client(props: Mapping[str, str], parsed: Mapping[str, Any], side: Side) -> dict[str, Any]:
    """Returns a registry's settings under the client's names."""
    prefix = f"{side}.cluster."
    if not parsed[prefix + URL]:
        raise ConfigError(
            f"{ENABLED}=true needs {prefix}{URL}: the schema registry of cluster {props.get(f'{prefix}alias', side)}",
            key=prefix + URL,
        )
    return {key.name: parsed[prefix + key.name] for key in client_config(ConfigDef())}
