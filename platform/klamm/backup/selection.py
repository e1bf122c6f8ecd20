r"""Chooses the topics that a command is about, and the names that they get: pure.

A pattern is a glob (`orders-*`), or a regular expression between slashes (`/orders-\d+/`).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from klamm.backup.errors import BackupError
from klamm_base.errors import ConfigError
from klamm_base.internal_topics import INTERNAL_TOPICS

TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Topics by patterns. Without `include` all topics; those that brokers make for themselves never."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Return the chosen names, sorted. Raises BackupError for a pattern of `include` that chooses nothing."""
        there = sorted(set(names) - INTERNAL_TOPICS)
        out = [_matcher(p) for p in self.exclude]
        if not self.include:
            return [n for n in there if not any(m(n) for m in out)]
        found: set[str] = set()
        for pattern in self.include:
            match = _matcher(pattern)
            hit = {n for n in there if match(n)}
            if not hit:
                raise BackupError(f"there is no topic {pattern}")
            found |= hit
        return sorted(n for n in found if not any(m(n) for m in out))


def _matcher(pattern: str) -> Callable[[str], bool]:
    if len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
        try:
            found = re.compile(pattern[1:-1])
        except re.error as e:
            raise ConfigError(f"{pattern}: no regular expression ({e})") from None
        return lambda name: found.fullmatch(name) is not None
    return lambda name: fnmatch.fnmatchcase(name, pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names that restored topics get: those of `renames`, others with the prefix."""

    renames: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""

    def target(self, name: str) -> str:
        return self.renames.get(name, self.prefix + name)

    def check(self, topics: Collection[str]) -> None:
        """Raises BackupError for a rename of no topic, a name that Kafka refuses, or two topics of one name."""
        for name in self.renames:
            if name not in topics:
                raise BackupError(f"--rename {name}: the backup restores no such topic")
        seen: dict[str, str] = {}
        for name in topics:
            target = self.target(name)
            if not TOPIC_NAME.fullmatch(target) or target in (".", "..") or target in INTERNAL_TOPICS:
                raise BackupError(f"{name} cannot be restored as {target!r}: that is no name for a topic")
            if target in seen:
                raise BackupError(f"{seen[target]} and {name} would both be restored as {target}")
            seen[target] = name
