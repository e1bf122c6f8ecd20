"""Names of topics at the target that the file gives by pattern, in place of the replication policy's. Pure.

`topic.map=orders=sales.orders, (.*)_raw=raw.$1`: the first pattern that matches a whole name decides; `$1` is its first
group. Topics of heartbeats keep the policy's names. Everything asks `ReplicationPolicy.remote_topic`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm_base.configdef import invalid
from klamm_base.errors import ConfigError

KEY: Final = "topic.map"
_GROUP: Final = re.compile(r"\$(\d+)")
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern for names at the source, and the name at the target, with `$1` for groups."""

    pattern: re.Pattern[str]
    name: str


@dataclass(frozen=True, slots=True)
class TopicMap:
    """The rules in their order."""

    rules: tuple[Rule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)

    @property
    def literals(self) -> list[str]:
        """The patterns that are names of topics."""
        found = (rule.pattern.pattern for rule in self.rules)
        return [text for text in found if _LEGAL.fullmatch(text)]

    def name(self, topic: str) -> str | None:
        """Returns the target's name of a topic; None: no rule is about it. Raises ConfigError for no legal name."""
        for rule in self.rules:
            match = rule.pattern.fullmatch(topic)
            if match is None:
                continue
            found = _GROUP.sub(lambda group, m=match: m[int(group[1])] or "", rule.name)  # type: ignore[misc]
            if not _LEGAL.fullmatch(found) or found in {".", ".."}:
                raise ConfigError(
                    f"{KEY}: {topic} would become {found!r}, which is no name of a topic", key=KEY
                )
            return found
        return None


def parse_map(items: Sequence[str]) -> TopicMap:
    """Parses `pattern=name` items. Raises ConfigError."""
    return TopicMap(tuple(_rule(item) for item in items if item.strip()))


def _rule(item: str) -> Rule:
    text, equals, name = (part.strip() for part in item.rpartition("="))
    if not (equals and text and name):
        raise invalid(KEY, item, "Must be PATTERN=NAME, such as orders=sales.orders or (.*)_raw=raw.$1")
    try:
        pattern = re.compile(text)
    except re.error as e:
        raise invalid(KEY, item, f"{text} must be a name or a regular expression: {e}") from None
    for group in _GROUP.finditer(name):
        if not 1 <= int(group[1]) <= pattern.groups:
            raise invalid(KEY, item, f"{text} has no group {group[1]}, which {group[0]} means")
    if not _LEGAL.fullmatch(_GROUP.sub("x", name)):
        raise invalid(
            KEY,
            item,
            f"{name} must be the name of a topic: letters, digits, '.', '_', '-', and $1 for groups",
        )
    return Rule(pattern, name)


def check_named_once(parsed: Mapping[str, Any], wants: Callable[[str], bool]) -> None:
    """Raises ConfigError when two topics that the configuration names would have one name at the target. What patterns match
    is known only to the source.
    """
    topic_map = parse_map(parsed[KEY] or [])
    named = [topic for topic in parsed["topics"] or [] if _LEGAL.fullmatch(topic)]
    first: dict[str, str] = {}
    for topic in dict.fromkeys((*topic_map.literals, *named)):
        remote = topic_map.name(topic) if wants(topic) else None
        if remote is not None and first.setdefault(remote, topic) != topic:
            raise invalid(
                KEY,
                ",".join(parsed[KEY]),
                f"{first[remote]} and {topic} would both be copied to {remote}: give each a name of its own",
            )


def check_map(_name: str, value: Any) -> None:
    """Validates a list of rules, as a ConfigDef validator."""
    parse_map(value or [])
