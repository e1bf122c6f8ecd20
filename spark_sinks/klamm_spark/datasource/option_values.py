"""Parses values of options as Spark does. Errors name the option, the value and what is right. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from klamm_base.errors import ConfigError
from klamm_spark.datasource.offsets import Partition, flat

EARLIEST: Final = -2
LATEST: Final = -1

_DURATION: Final = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

Bound = Literal["earliest", "latest"] | dict[Partition, int]
"""One bound of a read: a word, or offsets by partition (-2 earliest, -1 latest)."""


Times = int | dict[Partition, int]
"""Epoch ms, for all partitions or for each."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics to read. Exactly one of the fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[Partition, ...] = ()


def subscription(found: Mapping[str, str]) -> Subscription:
    given = [n for n in ("subscribe", "subscribePattern", "assign") if found.get(n, "").strip()]
    if len(given) != 1:
        said = "are all set" if given else "are missing"
        raise ConfigError(
            f"{', '.join(given) or 'subscribe, subscribePattern and assign'} {said}: set exactly one of "
            "subscribe, subscribePattern and assign",
            key="subscribe",
        )
    match given[0]:
        case "subscribe":
            topics = tuple(dict.fromkeys(t.strip() for t in found["subscribe"].split(",") if t.strip()))
            return Subscription(topics=topics)
        case "subscribePattern":
            return Subscription(pattern=pattern(found["subscribePattern"]))
        case _:
            return Subscription(partitions=assigned(found["assign"]))


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as e:
        raise ConfigError(
            f"subscribePattern={text} is no regular expression: {e}", key="subscribePattern"
        ) from None
    return text


def assigned(text: str) -> tuple[Partition, ...]:
    example = 'use JSON like {"orders": [0, 1]}'
    try:
        data = json.loads(text)
        pairs = [(t, p) for t, numbers in data.items() for p in numbers]
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(f"assign={text}: {example}", key="assign") from None
    if not pairs or not all(type(p) is int and p >= 0 for _, p in pairs):
        raise ConfigError(f"assign={text}: {example}", key="assign")
    return tuple(pairs)


def bound(found: Mapping[str, str], name: str) -> Bound | None:
    text = found.get(name)
    if text is None:
        return None
    if (word := text.strip().lower()) in {"earliest", "latest"}:
        return "earliest" if word == "earliest" else "latest"
    try:
        offsets = flat(json.loads(text))
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(
            f'{name}={text}: use earliest, latest or JSON like {{"orders": {{"0": 23, "1": -2}}}} (-2 earliest, -1 latest)',
            key=name,
        ) from None
    if bad := [o for o in offsets.values() if o < EARLIEST]:
        raise ConfigError(f"{name}: {bad[0]} is no offset: 0 and above, -2 earliest, -1 latest", key=name)
    return offsets


def number(found: Mapping[str, str], name: str, least: int) -> int | None:
    text = found.get(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ConfigError(f"{name}={text}: use a number, at least {least}", key=name)
    return value


def flag(found: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = found.get(name, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise ConfigError(f"{name}={found[name]}: use true or false", key=name)
    return text == "true"


def word(found: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """Returns one of the allowed words, the first by default."""
    given = found.get(name, allowed[0]).strip().lower().replace("_", "-")
    if given not in allowed:
        raise ConfigError(f"{name}={found[name]}: use {' or '.join(allowed)}", key=name)
    return given


def times(found: Mapping[str, str], side: str) -> Times | None:
    name = f"{side}OffsetsByTimestamp"
    text = found.get(name)
    if text is None:
        return number(found, f"{side}Timestamp", 0)
    try:
        found_times = flat(json.loads(text))
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(
            f'{name}={text}: use JSON like {{"orders": {{"0": 1700000000000}}}}, epoch ms', key=name
        ) from None
    if bad := [t for t in found_times.values() if t < 0]:
        raise ConfigError(f"{name}: {bad[0]} is no time: epoch ms", key=name)
    return found_times


def duration_s(name: str, text: str) -> float:
    """Parses a duration as Spark writes it: a whole number and us, ms, s, m, min, h or d; ms without. Raises
    ConfigError.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ConfigError(f"{name}={text}: use a time such as 15m, 30s or 500ms", key=name)
    return int(match[1]) * _UNITS[match[2] or "ms"]
