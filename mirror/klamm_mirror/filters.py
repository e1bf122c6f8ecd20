"""What is mirrored: names and regular expressions that include and exclude topics, groups and topic configs. Pure.

A list's items are regular expressions that must match the whole name, as in MirrorMaker 2; a plain name is one
too. Excludes win. Defaults: those of MirrorMaker 2 4.3 (`DefaultTopicFilter`, `DefaultGroupFilter`,
`DefaultConfigPropertyFilter`).
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
    """One expression for a list. Raises ConfigError that names the item that is none."""
    for item in items:
        try:
            re.compile(item)
        except re.error as e:
            raise invalid(key, item, f"Must be a name or a regular expression: {e}") from None
    found = [item for item in items if item]
    return re.compile("|".join(f"(?:{item})" for item in found) if found else r"(?!)")


def check_patterns(key: str, value: Any) -> None:
    """Validator of a ConfigDef."""
    patterns(key, value or [])


@dataclass(frozen=True, slots=True)
class NameFilter:
    """What matches `include` and does not match `exclude`."""

    include: re.Pattern[str]
    exclude: re.Pattern[str]

    def wants(self, name: str) -> bool:
        return bool(self.include.fullmatch(name)) and not self.exclude.fullmatch(name)

    @classmethod
    def of(cls, parsed: Mapping[str, Any], include: str, exclude: str) -> NameFilter:
        """From two keys of a parsed configuration. Raises ConfigError."""
        return cls(patterns(include, parsed[include]), patterns(exclude, parsed[exclude]))


def topic_filter(parsed: Mapping[str, Any]) -> NameFilter:
    return NameFilter.of(parsed, "topics", "topics.exclude")


def group_filter(parsed: Mapping[str, Any]) -> NameFilter:
    return NameFilter.of(parsed, "groups", "groups.exclude")


def config_filter(parsed: Mapping[str, Any]) -> NameFilter:
    """Which of a topic's settings are taken over."""
    key = "config.properties.exclude"
    return NameFilter(re.compile(".*"), patterns(key, parsed[key]))
