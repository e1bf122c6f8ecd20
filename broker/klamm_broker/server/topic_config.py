"""Derives the defaults of topics from the broker's properties, for the log and for DescribeConfigs.

`log.topic_config` defines the topic keys themselves. `SYNONYMS` lists the broker keys that give a topic key its
default (the first one that is set wins), with the factor from the broker key's unit to milliseconds. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm_base.configdef import to_string
from klamm_broker.log.topic_config import SERVER_DEFAULTS, TOPIC_CONFIGS

HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000

_MORE: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "flush.ms": (("log.flush.scheduler.interval.ms", 1),),
    "retention.ms": (("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.hours", HOUR_MS),),
    "segment.ms": (("log.roll.hours", HOUR_MS),),
}

SYNONYMS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    topic_key: ((broker_key, 1), *_MORE.get(topic_key, ()))
    for topic_key, broker_key in SERVER_DEFAULTS.items()
}


def defaults(originals: Mapping[str, str], typed: Mapping[str, Any]) -> dict[str, str]:
    """Returns the topic keys whose default the broker's properties change, as texts.

    `originals` are the broker keys that were set, `typed` their parsed values.
    """
    result = {}
    for topic_key in SYNONYMS:
        broker_key = deciding_synonym(topic_key, originals)
        if broker_key is not None:
            value = (
                typed[broker_key] * factor
                if (factor := _factor(topic_key, broker_key)) > 1
                else typed[broker_key]
            )
            text = to_string(max(value, -1) if factor > 1 else value, TOPIC_CONFIGS[topic_key].type)
            if text is not None:
                result[topic_key] = text
    return result


def deciding_synonym(topic_key: str, originals: Mapping[str, str]) -> str | None:
    """Returns the broker key that was set and determines a topic key's default."""
    return next((name for name, _ in SYNONYMS.get(topic_key, ()) if name in originals), None)


def _factor(topic_key: str, broker_key: str) -> int:
    return next(factor for name, factor in SYNONYMS[topic_key] if name == broker_key)
