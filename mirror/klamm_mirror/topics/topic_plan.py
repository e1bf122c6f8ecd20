"""Decides how topics at the target follow their sources: what to create, to extend and to configure. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from klamm_base.errors import ConfigError
from klamm_mirror.settings.keep_offsets import OWN_KEYS
from klamm_mirror.settings.topic_map import KEY as TOPIC_MAP

Configs = Mapping[str, Mapping[str, str | None]]
"""Topics' own settings by topic."""
NAMED_MAX: Final = 5
"""The most collisions that an error names."""


class Origin(IntEnum):
    """The wire's codes of places that a topic's setting may come from; `OTHER` stands for later ones."""

    OTHER = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5

    @classmethod
    def _missing_(cls, value: object) -> Origin:
        return cls.OTHER


class Setting(NamedTuple):
    """A topic's setting, as its cluster describes it."""

    name: str
    value: str | None
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create at the target."""

    name: str
    source: str
    partitions: int
    replicas: int
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MorePartitions:
    """A topic of the target that gets more partitions."""

    name: str
    source: str
    present: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """A setting of a topic at the target. `new` None: back to the cluster's default; `old` None: it is there now."""

    topic: str
    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Creations and changes of topics at the target."""

    create: tuple[NewTopic, ...] = ()
    grow: tuple[MorePartitions, ...] = ()
    configure: tuple[ConfigChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.create or self.grow or self.configure)


def remote_names(topics: Mapping[str, int], rename: Callable[[str], str]) -> dict[str, str]:
    """Returns the topics' names at the target. Raises ConfigError when two would become one."""
    sources: dict[str, list[str]] = {}
    for topic in sorted(topics):
        sources.setdefault(rename(topic), []).append(topic)
    twice = {remote: names for remote, names in sources.items() if len(names) > 1}
    if twice:
        named = [f"{' and '.join(names)} to {remote}" for remote, names in list(twice.items())[:NAMED_MAX]]
        more = f", and {len(twice) - NAMED_MAX} more" if len(twice) > NAMED_MAX else ""
        raise ConfigError(f"several topics would be copied into one: {', '.join(named)}{more}", key=TOPIC_MAP)
    return {names[0]: remote for remote, names in sources.items()}


def plan_partitions(
    topics: Mapping[str, int], present: Mapping[str, int], names: Mapping[str, str]
) -> tuple[dict[str, int], tuple[MorePartitions, ...]]:
    """Returns the source topics that the target lacks, with their numbers of partitions, and the topics that are too small.

    `present` holds the target's topics. Never takes partitions away.
    """
    missing = {topic: count for topic, count in topics.items() if names[topic] not in present}
    grow = tuple(
        MorePartitions(name=names[topic], source=topic, present=present[names[topic]], wanted=count)
        for topic, count in topics.items()
        if 0 < present.get(names[topic], 0) < count
    )
    return missing, grow


def target_configs(
    settings: Iterable[Setting], wants: Callable[[str], bool], wants_default: Callable[[str], bool]
) -> dict[str, str | None]:
    """Returns a source topic's settings for the target, as MirrorMaker does; None: the target's default.

    A setting from the source's server.properties is left out: the target keeps what it has. One that was set for the
    topic, or for brokers by their admins, is taken over, and a default where the filter wants it.
    """
    return {
        s.name: None if s.origin is Origin.DEFAULT and not wants_default(s.name) else s.value
        for s in settings
        if s.origin is not Origin.STATIC_BROKER and s.name not in OWN_KEYS and wants(s.name)
    }


def plan_configs(ours: Configs, theirs: Configs, names: Mapping[str, str]) -> tuple[ConfigChange, ...]:
    """Returns what makes the settings of topics at the target those of their sources.

    `ours` holds what `target_configs` makes of the source's topics by their names, `theirs` the own settings of the
    target's topics by their names; a topic that is missing in one of them may not be described, and keeps its settings.
    """
    changes = []
    for topic, wanted in ours.items():
        remote = names[topic]
        present = theirs.get(remote)
        if present is None:
            continue
        for name, new in sorted(wanted.items()):
            old = present.get(name)
            if old != new:
                changes.append(ConfigChange(topic=remote, name=name, old=old, new=new))
    return tuple(changes)
