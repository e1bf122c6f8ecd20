"""The settings of `klamm_mirror.provenance.tracker`. `mirror.origin.ALIAS.topics.exclude` names topics whose records, where they
were first written at cluster ALIAS, come to the target by another flow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from klamm_base.configdef import invalid
from klamm_base.errors import ConfigError
from klamm_mirror.settings import filters

ORIGINS: Final = "mirror.origin."
ORIGIN: Final = ORIGINS + "{}.topics.exclude"
_ORIGIN_KEY: Final = re.compile(re.escape(ORIGIN).replace(r"\{\}", "(.+)"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowBack:
    """The traces of the opposite flow: its offset syncs at our target, and its names at our source if it renames."""

    syncs_topic: str
    topics: frozenset[str]
    """The topics that our task copies."""
    renamed: Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenanceSettings:
    """`left_out`: by an origin's alias, the topics whose records come to the target by another flow."""

    source_alias: str
    target_alias: str
    replication_factor: int
    left_out: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    flow_back: FlowBack | None = None
    """The traces of an opposite flow without marks; None: they are not looked for."""


def left_out(props: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    """Reads the topics to leave out, by the alias of their records' origin. Raises ConfigError."""
    found = {}
    for key in sorted(k for k in props if k.startswith(ORIGINS)):
        match = _ORIGIN_KEY.fullmatch(key)
        if match is None:
            raise ConfigError(f"{key} is no setting: {ORIGIN.format('ALIAS')} names topics", key=key)
        items = [item.strip() for item in props[key].split(",") if item.strip()]
        if not items:
            raise invalid(key, props[key], "Must be names or regular expressions of topics")
        found[match[1]] = filters.patterns(key, items)
    return found
