"""Topic creation rules of a source connector (KIP-158): the settings for topics that its records need.

A config with `topic.creation.default.*` uses the rules. `topic.creation.groups` names further groups. A
topic takes the first group whose `include` matches its whole name and whose `exclude` does not. Keys of
a group other than Kafka's four are topic configurations. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.configdef import ConfigDef, ConfigKey, Importance, Type, Width, invalid

PREFIX: Final = "topic.creation."
GROUPS: Final = "topic.creation.groups"
DEFAULT: Final = "default"
_OWN: Final = frozenset({"include", "exclude", "partitions", "replication.factor"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of rules. `partitions` and `replication_factor` -1: the broker's default."""

    name: str
    include: re.Pattern[str]
    exclude: re.Pattern[str]
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)

    def matches(self, topic: str) -> bool:
        return self.include.fullmatch(topic) is not None and self.exclude.fullmatch(topic) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """The groups of a connector, in order; the default group takes the topics that no other group matches."""

    groups: tuple[Group, ...]
    default: Group

    def group_of(self, topic: str) -> Group:
        return next((group for group in self.groups if group.matches(topic)), self.default)


def uses_rules(config: Mapping[str, str]) -> bool:
    """Returns whether a connector config has any of the keys: then it must have those of the default group."""
    return any(key.startswith(PREFIX) for key in config)


def group_names(config: Mapping[str, str]) -> list[str]:
    """Returns the names in topic.creation.groups, each once; `default` always exists and need not be named."""
    names = (name.strip() for name in config.get(GROUPS, "").split(","))
    return [name for name in dict.fromkeys(names) if name and name != DEFAULT]


def rules(config: Mapping[str, str]) -> TopicRules | None:
    """Returns the rules of a connector config, None when it has none. Raises ConfigError."""
    if not uses_rules(config):
        return None
    values = group_keys(config).parse(config)
    return TopicRules(
        groups=tuple(_group(name, values, config) for name in group_names(config)),
        default=_group(DEFAULT, values, config),
    )


def group_keys(config: Mapping[str, str]) -> ConfigDef:
    """Returns the keys of a config's groups, in Kafka's order; none when it uses no rules."""
    if not uses_rules(config):
        return ConfigDef()
    default = _keys(DEFAULT, DEFAULT)
    given = {v.name: v for v in ConfigDef(default).validate(config)}
    prefix = f"{PREFIX}{DEFAULT}."
    factor = given[f"{prefix}replication.factor"].value
    partitions = given[f"{prefix}partitions"].value
    keys = default
    for name in group_names(config):
        keys = keys + _keys(name, f"Topic Creation: {name}", factor=factor, partitions=partitions)
    return ConfigDef(keys)


def _keys(name: str, group: str, *, factor: Any = None, partitions: Any = None) -> list[ConfigKey]:
    """Returns Kafka's four keys. Those of the default group have no default; other groups take its values."""
    of_default = name == DEFAULT
    numbers: dict[str, dict[str, Any]] = {
        "replication.factor": {} if of_default else {"default": factor},
        "partitions": {} if of_default else {"default": partitions},
    }
    common: dict[str, Any] = {"importance": Importance.LOW, "group": group, "width": Width.LONG}
    prefix = f"{PREFIX}{name}."
    return [
        ConfigKey(
            name=f"{prefix}include",
            type=Type.LIST,
            default=[".*"] if of_default else [],
            validator=_patterns,
            order_in_group=1,
            display_name=f"Inclusion Topic Pattern for {name}",
            documentation="Regular expressions for whole names of topics that are made with this group's settings.",
            **common,
        ),
        ConfigKey(
            name=f"{prefix}exclude",
            type=Type.LIST,
            default=[],
            validator=_patterns,
            order_in_group=2,
            display_name=f"Exclusion Topic Pattern for {name}",
            documentation="Regular expressions for topics that are not, whatever include says.",
            **common,
        ),
        ConfigKey(
            name=f"{prefix}replication.factor",
            type=Type.SHORT,
            validator=_factor,
            order_in_group=3,
            display_name=f"Replication Factor for Topics in {name}",
            documentation="The replication factor of topics that are made; -1 leaves it to the broker. Required for the "
            "default group, whose value the others have unless they set their own.",
            **common,
            **numbers["replication.factor"],
        ),
        ConfigKey(
            name=f"{prefix}partitions",
            type=Type.INT,
            validator=_partitions,
            order_in_group=4,
            display_name=f"Partition Count for Topics in {name}",
            documentation="The number of partitions of topics that are made; -1 leaves it to the broker. Required for "
            "the default group, whose value the others have unless they set their own.",
            **common,
            **numbers["partitions"],
        ),
    ]


def _group(name: str, values: Mapping[str, Any], config: Mapping[str, str]) -> Group:
    prefix = f"{PREFIX}{name}."
    others = {
        key.removeprefix(prefix): value
        for key, value in config.items()
        if key.startswith(prefix) and key.removeprefix(prefix) not in _OWN
    }
    return Group(
        name=name,
        include=_joined(values[f"{prefix}include"]),
        exclude=_joined(values[f"{prefix}exclude"]),
        partitions=values[f"{prefix}partitions"],
        replication_factor=values[f"{prefix}replication.factor"],
        configs=others,
    )


def _joined(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


def _patterns(name: str, value: Any) -> None:
    for pattern in value or ():
        try:
            re.compile(pattern)
        except re.error as e:
            raise invalid(name, value, f"Syntax error in regular expression: {e}") from None


def _partitions(name: str, value: Any) -> None:
    if value is not None and value != -1 and value < 1:
        raise invalid(name, value, "Number of partitions must be positive, or -1 to use the broker's default")


def _factor(name: str, value: Any) -> None:
    if value is not None and value != -1 and value < 1:
        raise invalid(
            name,
            value,
            "Replication factor must be positive and not larger than the number of brokers in the Kafka cluster, or "
            "-1 to use the broker's default",
        )
