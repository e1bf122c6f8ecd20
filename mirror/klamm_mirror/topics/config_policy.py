"""Decides which differences between the settings of a topic and its copy are mended: `sync.topic.configs.policy`. Pure.

| policy | a setting that differs at the target |
|---|---|
| `overwrite` | becomes that of the source, as with MirrorMaker |
| `keep` | stays, until it changes at the source while the mirror runs |
| `warn` | stays |

A difference that stays is named once. New topics get the settings of their sources under each policy.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from klamm_base.configdef import ConfigDef, Importance, Type, one_of
from klamm_mirror.topics.topic_plan import ConfigChange, Configs

log = logging.getLogger(__name__)

POLICY: Final = "sync.topic.configs.policy"
OVERWRITE, KEEP, WARN = "overwrite", "keep", "warn"
NAMED_MAX: Final = 20
"""The most differences that one look names."""


def policy_config() -> ConfigDef:
    """Returns the key of the policy."""
    return ConfigDef().define(
        POLICY, Type.STRING, OVERWRITE, validator=one_of(OVERWRITE, KEEP, WARN), importance=Importance.LOW,
        documentation="How to go on with a setting of a remote topic that differs from its source's: overwrite it, keep it until "
        "it changes at the source while the mirror runs, or only warn of it.",
    )  # fmt: skip


class ConfigPolicy:
    """Remembers the source's settings of the last look, and the differences that it has named."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._last: dict[str, Mapping[str, str | None]] = {}
        self._named: set[ConfigChange] = set()
        self._due: set[tuple[str, str]] = set()
        """Remote topics and settings that were chosen, and may not have been changed yet."""

    def chosen(
        self, ours: Configs, names: Mapping[str, str], changes: Sequence[ConfigChange]
    ) -> tuple[ConfigChange, ...]:
        """Returns the changes to make; names the others. `ours` and `names` are by topics of the source."""
        if self._policy == OVERWRITE:
            return tuple(changes)
        if self._policy == KEEP:
            self._due |= self._moved(ours, names)
            self._last |= ours
        done = tuple(change for change in changes if (change.topic, change.name) in self._due)
        self._name([change for change in changes if change not in done])
        return done

    def carried_out(self) -> None:
        """Notes that the chosen changes were made."""
        self._due.clear()

    def _moved(self, ours: Configs, names: Mapping[str, str]) -> set[tuple[str, str]]:
        """Returns the remote topics and settings that have changed at the source since the last look."""
        return {
            (names[topic], name)
            for topic, wanted in ours.items()
            if (last := self._last.get(topic)) is not None
            for name, value in wanted.items()
            if last.get(name) != value
        }

    def _name(self, kept: Sequence[ConfigChange]) -> None:
        news = [change for change in kept if change not in self._named]
        self._named = set(kept)
        for change in news[:NAMED_MAX]:
            log.warning(
                "%s: %s is %s at the target and %s at the source; it stays so (%s=%s)",
                change.topic,
                change.name,
                _shown(change.old),
                _shown(change.new),
                POLICY,
                self._policy,
            )
        if len(news) > NAMED_MAX:
            log.warning(
                "%d more settings differ from their sources: klamm mirror verify names them",
                len(news) - NAMED_MAX,
            )


def _shown(value: str | None) -> str:
    return "the default" if value is None else value
