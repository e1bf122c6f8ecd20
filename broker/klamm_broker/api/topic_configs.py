"""What DescribeConfigs, CreateTopics and IncrementalAlterConfigs share: configuration entries as Kafka answers them.

Pure: values in, message structs out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from klamm_base.configdef import ConfigKey, Password, Type, to_string
from klamm_broker.log.topic_config import TOPIC_CONFIGS
from klamm_broker.server.config_keys import BROKER_CONFIG
from klamm_broker.server.topic_config import SYNONYMS, deciding_synonym

if TYPE_CHECKING:
    from klamm_broker.server.config import BrokerConfig


class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type, those of them that we answer."""

    TOPIC = 2
    BROKER = 4


class Source(IntEnum):
    """Where a value comes from: Kafka's ConfigSource."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


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


def _topic_synonyms(key: ConfigKey, config: BrokerConfig, overrides: Mapping[str, str]) -> list[Synonym]:
    found = []
    if key.name in overrides:
        found.append(Synonym(key.name, overrides[key.name], Source.DYNAMIC_TOPIC_CONFIG))
    broker_key = deciding_synonym(key.name, config.originals)
    if broker_key is not None:
        found.append(Synonym(broker_key, config.topic_defaults[key.name], Source.STATIC_BROKER_CONFIG))
    names = SYNONYMS.get(key.name)
    default = to_string(key.default, key.type)
    found.append(Synonym(names[0][0] if names else key.name, default, Source.DEFAULT_CONFIG))
    return found


def broker_entries(config: BrokerConfig) -> list[Entry]:
    """Every key of the broker. All are read-only: they change with `server.properties` and a restart."""
    return [
        Entry(key, tuple(_broker_synonyms(key, config)), True) for key in BROKER_CONFIG if not key.internal
    ]


def _broker_synonyms(key: ConfigKey, config: BrokerConfig) -> list[Synonym]:
    found = []
    if key.name in config.originals:
        value = config[key.name]
        text = None if isinstance(value, Password) else to_string(value, key.type)
        found.append(Synonym(key.name, text, Source.STATIC_BROKER_CONFIG))
    found.append(Synonym(key.name, to_string(key.default, key.type), Source.DEFAULT_CONFIG))
    return found
