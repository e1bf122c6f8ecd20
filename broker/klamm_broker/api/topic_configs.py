"""Configuration entries as Kafka answers them, for DescribeConfigs and CreateTopics.

Pure: values in, entries out, each with every place that gives it a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import dropwhile
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm_base.configdef import ConfigKey, Password, Type, parse_type, to_string
from klamm_broker.log.topic_config import TOPIC_CONFIGS
from klamm_broker.server.config_keys import BROKER_CONFIG
from klamm_broker.server.dynamic_config import (
    DYNAMIC,
    PER_LISTENER,
    WITHOUT_EFFECT,
    is_of_listener,
    key_of,
)
from klamm_broker.server.group_config import GROUP_CONFIGS, METRICS_CONFIGS, broker_synonym, group_default
from klamm_broker.server.topic_config import SYNONYMS, deciding_synonym

if TYPE_CHECKING:
    from klamm_broker.server.config import BrokerConfig


class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """The origin of a value: Kafka's ConfigSource."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


TYPE_CODES: Final[Mapping[Type, int]] = {
    Type.BOOLEAN: 1,
    Type.STRING: 2,
    Type.INT: 3,
    Type.SHORT: 4,
    Type.LONG: 5,
    Type.DOUBLE: 6,
    Type.LIST: 7,
    Type.CLASS: 8,
    Type.PASSWORD: 9,
}


class Synonym(NamedTuple):
    """A place that gives a key a value; the first of several decides."""

    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """One key with its effective value, the value's origin, and all places that give it a value, as Kafka lists them.

    Kafka does not list a key's own default if no property of the broker is behind it.
    """

    key: ConfigKey
    text: str | None
    source: Source
    synonyms: Sequence[Synonym]
    read_only: bool

    @property
    def sensitive(self) -> bool:
        return self.key.type is Type.PASSWORD

    @property
    def value(self) -> str | None:
        """The value as it is told; a secret is never told."""
        return None if self.sensitive else self.text


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[Entry]:
    """Returns every key of a topic with these own properties; those that are Klamm's own only where they are set.

    These are told as read-only, so that Apache's MirrorMaker does not copy them to a cluster that does not know them.
    """
    return [
        _topic_entry(key, config, overrides)
        for key in TOPIC_CONFIGS if not key.internal or key.name in overrides
    ]  # fmt: skip


def _topic_entry(key: ConfigKey, config: BrokerConfig, overrides: Mapping[str, str]) -> Entry:
    name = key.name
    names = [broker_key for broker_key, _ in SYNONYMS.get(name, ())]
    synonyms = _broker_synonyms(names, config)
    text = config.topic_defaults.get(name, to_string(key.default, key.type))
    if not synonyms:  # the property in another unit: Kafka skips it and gives the values in that unit
        static = deciding_synonym(name, config.originals)
        if static is not None:
            synonyms = _broker_synonyms(names[names.index(static) :], config)
    if name in overrides:
        text = overrides[name]
        synonyms = [Synonym(name, text, Source.DYNAMIC_TOPIC_CONFIG), *synonyms]
    return Entry(key, text, _source(synonyms), synonyms, key.internal)


def broker_entries(config: BrokerConfig) -> list[Entry]:
    """Returns every key of the broker. Read-only keys change with `server.properties` and a restart."""
    entries = []
    for key in BROKER_CONFIG:
        if key.internal:
            continue
        synonyms = _broker_synonyms(_OTHER_UNITS.get(key.name, [key.name]), config)
        value = config[key.name]
        text = None if isinstance(value, Password) else to_string(value, key.type)
        fixed = key.name not in DYNAMIC and key.name not in PER_LISTENER
        entries.append(Entry(key, text, _source(synonyms), synonyms, fixed))
    for name in config.dynamic:
        if is_of_listener(name):
            synonyms = _dynamic_synonyms([name], config)
            entries.append(Entry(key_of(name), synonyms[0].value, _source(synonyms), synonyms, False))
    for key in WITHOUT_EFFECT:
        synonyms = _dynamic_synonyms([key.name], config)
        if synonyms:
            entries.append(Entry(key, synonyms[0].value, _source(synonyms), synonyms, False))
    return entries


def default_broker_entries(config: BrokerConfig) -> list[Entry]:
    """Returns the changes that hold for all brokers."""
    source = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        Entry(key_of(name), value, source, [Synonym(name, value, source)], False)
        for name, value in config.dynamic_defaults.items()
    ]


def group_entries(config: BrokerConfig, own: Mapping[str, str]) -> list[Entry]:
    """Returns every key of a group with these own configurations."""
    entries = []
    for key in GROUP_CONFIGS:
        synonym, text = broker_synonym(key.name), to_string(group_default(config, key.name), key.type)
        name = key.name if synonym is None else synonym
        synonyms = [Synonym(name, to_string(key.default, key.type), Source.DEFAULT_CONFIG)]
        if synonym is not None and synonym in config.originals:
            synonyms.insert(0, Synonym(synonym, text, Source.STATIC_BROKER_CONFIG))
        if key.name in own:
            text = own[key.name]
            synonyms.insert(0, Synonym(key.name, text, Source.GROUP_CONFIG))
        entries.append(Entry(key, text, _source(synonyms), synonyms, False))
    return entries


def client_metrics_entries(own: Mapping[str, str]) -> list[Entry]:
    """Returns every key of a client metrics subscription with these own configurations."""
    entries = []
    for key in METRICS_CONFIGS:
        text = own.get(key.name, to_string(key.default, key.type))
        synonyms = [Synonym(key.name, text, Source.CLIENT_METRICS_CONFIG)] if key.name in own else []
        entries.append(Entry(key, text, _source(synonyms), synonyms, False))
    return entries


_OTHER_UNITS: Final = {names[0][0]: [name for name, _ in names] for names in SYNONYMS.values()}
"""Broker keys, each with the keys that set the same property in another unit; the key itself comes first."""


def _broker_synonyms(names: Sequence[str], config: BrokerConfig) -> list[Synonym]:
    """Returns the places that give these broker keys a value, strongest first, from the first place of `names[0]` on."""
    found = _dynamic_synonyms(names, config)
    static = Source.STATIC_BROKER_CONFIG
    found += [_synonym(name, config.originals[name], static) for name in names if name in config.originals]
    for name in names:
        key = BROKER_CONFIG[name]
        if key.default is not None:
            found.append(_synonym(name, to_string(key.default, key.type), Source.DEFAULT_CONFIG))
    return list(dropwhile(lambda synonym: synonym.name != names[0], found))


def _dynamic_synonyms(names: Sequence[str], config: BrokerConfig) -> list[Synonym]:
    found: list[Synonym] = []
    for texts, source in (
        (config.dynamic, Source.DYNAMIC_BROKER_CONFIG),
        (config.dynamic_defaults, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
    ):
        found += [_synonym(name, texts[name], source) for name in names if name in texts]
    return found


def _synonym(name: str, text: str | None, source: Source) -> Synonym:
    """Returns a synonym whose text is the typed value's, however the file writes it."""
    key = key_of(name)
    if key.type is Type.PASSWORD:
        text = None
    elif text is not None:
        text = to_string(parse_type(name, text, key.type), key.type)
    return Synonym(name, text, source)


def _source(synonyms: Sequence[Synonym]) -> Source:
    return synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
