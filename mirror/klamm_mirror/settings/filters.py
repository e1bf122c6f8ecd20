"""Selects topics, groups and topic settings by names and regular expressions. Pure.

An item of a list is a regular expression that must match the whole name, as in MirrorMaker 2; a plain name
is also an expression. Excludes win. The defaults are those of MirrorMaker 2 4.3 (`DefaultTopicFilter`,
`DefaultGroupFilter`, `DefaultConfigPropertyFilter`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm_base.configdef import invalid

TOPICS: Final = [".*"]
TOPICS_EXCLUDE: Final = [r"mm2.*\.internal", r".*\.replica", "__.*"]
GROUPS: Final = [".*"]
GROUPS_EXCLUDE: Final = ["console-consumer-.*", "connect-.*", "__.*"]
CONFIG_PROPERTIES_EXCLUDE: Final = [
    r"follower\.replication\.throttled\.replicas",
    r"leader\.replication\.throttled\.replicas",
    r"message\.timestamp\.difference\.max\.ms",
    r"log\.message\.timestamp\.before\.max\.ms",
    r"log\.message\.timestamp\.after\.max\.ms",
    r"message\.timestamp\.type",
    r"unclean\.leader\.election\.enable",
    r"min\.insync\.replicas",
]


def patterns(key: str, items: Sequence[str]) -> re.Pattern[str]:
    """Joins a list into one expression. Raises ConfigError, which names an invalid item."""
    for item in items:
        try:
            re.compile(item)
        except re.error as e:
            raise invalid(key, item, f"Must be a name or a regular expression: {e}") from None
    found = [item for item in items if item]
    return re.compile("|".join(f"(?:{item})" for item in found) if found else r"(?!)")


def check_patterns(key: str, value: Any) -> None:
    """Validates a list of expressions, as a ConfigDef validator."""
    patterns(key, value or [])


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Accepts names that match `include` and do not match `exclude`."""

    include: re.Pattern[str]
    exclude: re.Pattern[str]

    def wants(self, name: str) -> bool:
        return bool(self.include.fullmatch(name)) and not self.exclude.fullmatch(name)

    @classmethod
    def of(cls, parsed: Mapping[str, Any], include: str, exclude: str) -> NameFilter:
        """Reads two keys of a parsed configuration. Raises ConfigError."""
        return cls(patterns(include, parsed[include]), patterns(exclude, parsed[exclude]))


def topic_filter(parsed: Mapping[str, Any]) -> NameFilter:
    return NameFilter.of(parsed, "topics", "topics.exclude")


def group_filter(parsed: Mapping[str, Any]) -> NameFilter:
    return NameFilter.of(parsed, "groups", "groups.exclude")


def config_filter(parsed: Mapping[str, Any]) -> NameFilter:
    """Returns the filter for the topic settings to copy."""
    key = "config.properties.exclude"
    return NameFilter(re.compile(".*"), patterns(key, parsed[key]))
