"""What DescribeConfigs and CreateTopics share: configuration entries as Kafka answers them.

Pure: values in, entries out, each with every place that gives it a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from klamm_base.configdef import ConfigKey, Password, Type, to_string
from klamm_broker.log.topic_config import TOPIC_CONFIGS
from klamm_broker.server.config_keys import BROKER_CONFIG
from klamm_broker.server.dynamic_config import DYNAMIC
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
    """Where a value comes from: Kafka's ConfigSource."""

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


@dataclass(frozen=True, slots=True)
class Synonym:
    """A place that gives a key a value; the first of several decides."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Entry:
    """One key with its effective value and every place that gives it one, the deciding one first."""

    key: ConfigKey
    synonyms: tuple[Synonym, ...]
    read_only: bool

    @property
    def sensitive(self) -> bool:
        return self.key.type is Type.PASSWORD

    @property
    def value(self) -> str | None:
        """A secret is never told."""
        return None if self.sensitive else self.synonyms[0].value

    @property
    def source(self) -> Source:
        return self.synonyms[0].source


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[Entry]:
    """Every key of a topic with these own properties."""
    return [Entry(key, tuple(_topic_synonyms(key, config, overrides)), False) for key in TOPIC_CONFIGS]


def _topic_synonyms(key: ConfigKey, config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[Synonym]:
    if key.name in overrides:
        yield Synonym(key.name, overrides[key.name], Source.DYNAMIC_TOPIC_CONFIG)
    names = SYNONYMS.get(key.name)
    if names is not None:
        yield from _dynamic(names[0][0], config)
    static = deciding_synonym(key.name, config.originals)
    if static is not None:
        yield Synonym(static, config.static_topic_defaults[key.name], Source.STATIC_BROKER_CONFIG)
    default = to_string(key.default, key.type)
    yield Synonym(names[0][0] if names else key.name, default, Source.DEFAULT_CONFIG)


def broker_entries(config: BrokerConfig) -> list[Entry]:
    """Every key of the broker. Those that are read-only change with `server.properties` and a restart."""
    return [
        Entry(key, tuple(_broker_synonyms(key, config)), key.name not in DYNAMIC)
        for key in BROKER_CONFIG
        if not key.internal
    ]


def _broker_synonyms(key: ConfigKey, config: BrokerConfig) -> Iterator[Synonym]:
    yield from _dynamic(key.name, config)
    if key.name in config.originals:
        yield Synonym(key.name, _static_text(key, config), Source.STATIC_BROKER_CONFIG)
    yield Synonym(key.name, to_string(key.default, key.type), Source.DEFAULT_CONFIG)


def default_broker_entries(config: BrokerConfig) -> list[Entry]:
    """What was changed for all brokers."""
    return [
        Entry(BROKER_CONFIG[name], (Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),), False)
        for name, value in config.dynamic_defaults.items()
    ]


def group_entries(config: BrokerConfig, own: Mapping[str, str]) -> list[Entry]:
    """Every key of a group with these own configurations."""
    return [Entry(key, tuple(_group_synonyms(key, config, own)), False) for key in GROUP_CONFIGS]


def _group_synonyms(key: ConfigKey, config: BrokerConfig, own: Mapping[str, str]) -> Iterator[Synonym]:
    if key.name in own:
        yield Synonym(key.name, own[key.name], Source.GROUP_CONFIG)
    synonym = broker_synonym(key.name)
    if synonym in config.originals:
        yield Synonym(synonym, str(group_default(config, key.name)), Source.STATIC_BROKER_CONFIG)
    yield Synonym(synonym, to_string(key.default, key.type), Source.DEFAULT_CONFIG)


def client_metrics_entries(own: Mapping[str, str]) -> list[Entry]:
    """Every key of a client metrics subscription with these own configurations."""
    return [Entry(key, tuple(_metrics_synonyms(key, own)), False) for key in METRICS_CONFIGS]


def _metrics_synonyms(key: ConfigKey, own: Mapping[str, str]) -> Iterable[Synonym]:
    if key.name in own:
        yield Synonym(key.name, own[key.name], Source.CLIENT_METRICS_CONFIG)
    yield Synonym(key.name, to_string(key.default, key.type), Source.DEFAULT_CONFIG)


def _dynamic(name: str, config: BrokerConfig) -> Iterator[Synonym]:
    if name in config.dynamic:
        yield Synonym(name, config.dynamic[name], Source.DYNAMIC_BROKER_CONFIG)
    if name in config.dynamic_defaults:
        yield Synonym(name, config.dynamic_defaults[name], Source.DYNAMIC_DEFAULT_BROKER_CONFIG)


def _static_text(key: ConfigKey, config: BrokerConfig) -> str | None:
    if key.name in config.dynamic or key.name in config.dynamic_defaults:
        return config.originals[key.name]
    value = config[key.name]
    return None if isinstance(value, Password) else to_string(value, key.type)
