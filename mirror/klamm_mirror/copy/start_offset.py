"""The place where a partition without a committed offset begins: earliest, latest, or a time. Pure.

A partition that was added to a topic that is copied already, and a topic that was found after the connector's first
look, begin at earliest: whoever skips the past does not mean to lose records that come while the mirror runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from klamm_base.configdef import invalid
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

KEY: Final = "mirror.start.offset"
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


def parse_start(text: str) -> int:
    """Returns EARLIEST, LATEST, or a time in ms. Raises ConfigError."""
    word = text.strip()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if word.isdecimal():
        return int(word)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise invalid(
            KEY,
            text,
            "Must be earliest, latest, a time such as 2026-01-31T08:00:00Z, or milliseconds since 1970",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(int(moment.timestamp() * 1000), 0)


def check_start(name: str, value: Any) -> None:
    """Validates a start, as a ConfigDef validator."""
    if value is not None:
        parse_start(value)


def start_of(
    topic: str, partition: int, start: int, *, found_later: Collection[str], committed: Mapping[str, bool]
) -> int:
    """Returns where a partition without a committed offset begins.

    `found_later` are partitions that were not there at the connector's first look; `committed` says of topics whether
    their first partition has a committed offset.
    """
    added = f"{topic}-{partition}" in found_later or (partition > 0 and committed.get(topic, False))
    return EARLIEST if added else start
