"""The one translation table from Java client properties to librdkafka's: names and values.

Worker files, connector overrides and `--command-config` files are written for the Java clients; our tasks and the
CLI use librdkafka. Every Java name has the same name there, or is renamed, or is translated by value, or stands
in `ignored` with the reason: nothing vanishes. Names that only librdkafka knows pass through. This module reads
the key stores that properties name, and does no other I/O.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.clienttables import JAVAS, NO_EFFECT, OF_KIND, RANGES, RENAMED, SAME, Kind
from klamm_base.errors import ConfigError
from klamm_base.properties import suggestion
from klamm_base.rdkafkasecurity import NO_EFFECT as SECURITY_NO_EFFECT
from klamm_base.rdkafkasecurity import TRANSLATED as SECURITY
from klamm_base.rdkafkasecurity import rdkafka_security

__all__ = [
    "LOADS_CODE",
    "Kind",
    "Translated",
    "javas_words",
    "refusal",
    "refuse_code",
    "translate",
    "warn_once",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Translated:
    """A translated configuration: `config` is for librdkafka; `ignored` holds (property, why) for settings without their
    full effect.
    """

    config: dict[str, Any] = field(default_factory=dict)
    ignored: list[tuple[str, str]] = field(default_factory=list)


_LEVELS: Final = {f"compression.{codec}.level": codec for codec in ("gzip", "lz4", "zstd")}
_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "cooperative-sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
LOADS_CODE: Final = frozenset({"plugin.library.paths", "ssl.engine.location", "ssl.providers"})
"""The settings with which librdkafka loads a shared library: the first as soon as it reads the setting."""
_PROBE: Final = "klamm.is.not.a.property"
_QUOTED: Final = re.compile(r'"([a-z.]+)"')
NO_CODE: Final = "it loads native code, which only the worker's own properties may do"
_warned: set[str] = set()


def translate(props: Mapping[str, str], kind: Kind, *, lenient: bool = False) -> Translated:
    """Returns librdkafka's configuration for a `kind` of client, given Java's property names.

    A name that neither Java's clients nor librdkafka know is ignored where `lenient` (for files written for Java,
    whose clients only warn); else librdkafka gets it and refuses it. Where the defaults differ, Java's count:
    producers get its partitioner (`murmur2_random`), so that keys land where Java puts them; consumers get its
    isolation level. Raises ConfigError for a value that cannot work in librdkafka (an unknown login module, a store
    that cannot be opened).
    """
    props = {name: value.strip() for name, value in props.items()}  # as Java does
    result = Translated()
    if kind == "producer":
        result.config["partitioner"] = "murmur2_random"
    elif kind == "consumer":
        result.config["isolation.level"] = "read_uncommitted"
    config, ignored = rdkafka_security(props)
    result.config.update(config)
    result.ignored.extend(ignored)
    for name, value in props.items():
        if name not in SECURITY and name not in SECURITY_NO_EFFECT:
            _one(name, value, kind, result, lenient=lenient)
    if kind == "producer":
        _compression_level(props, result)
    return result


def warn_once(ignored: Iterable[tuple[str, str]], *, prefix: str = "", level: int = logging.WARNING) -> None:
    """Logs the settings that have no effect, each property once in the life of the process."""
    for name, why in ignored:
        if prefix + name not in _warned:
            _warned.add(prefix + name)
            log.log(level, "%s%s has no effect: %s", prefix, name, why)


def _compression_level(props: Mapping[str, str], result: Translated) -> None:
    """Sets the compression level: Java has a level for each codec, librdkafka a single level for the codec in use."""
    codec = props.get("compression.type", "none").lower()
    for name in sorted(props.keys() & _LEVELS.keys()):
        if _LEVELS[name] == codec:
            result.config["compression.level"] = props[name]
        else:
            result.ignored.append((name, f"compression.type is {codec}"))


def _one(name: str, value: str, kind: Kind, result: Translated, *, lenient: bool) -> None:
    if kind == "producer" and name in _LEVELS:
        return  # depends on compression.type
    if name in NO_EFFECT:
        result.ignored.append((name, NO_EFFECT[name]))
    elif name not in OF_KIND[kind] and any(name in names for names in OF_KIND.values()):
        result.ignored.append((name, f"it is not a setting of a {kind}"))
    elif name in _VALUES:
        _put(name, _VALUES[name](name, value), result)
    elif name == "request.timeout.ms":
        _put(name, {name if kind == "producer" else "socket.timeout.ms": value}, result)
    elif name in SAME or name in RENAMED or not lenient or _librdkafka_has(name):
        _put(name, {RENAMED.get(name, name): value}, result)
    else:
        hint = suggestion(name, sorted(OF_KIND[kind]))
        result.ignored.append((name, f"neither Java's clients nor librdkafka know it{hint}"))


def _put(name: str, found: Mapping[str, str], result: Translated) -> None:
    """Copies settings. A number outside librdkafka's range becomes the nearest number inside it."""
    for own, text in found.items():
        low, high = RANGES.get(own, (None, None))
        number = _integer(text)
        value = text
        if low is not None and high is not None and number is not None:
            nearest = min(max(number, low), high)
            if nearest != number:
                value = str(nearest)
            if number not in {nearest, -1}:  # -1 is Java's way to leave it to the system
                result.ignored.append((name, f"librdkafka takes {low} to {high}; {nearest} is used"))
        result.config[own] = value


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


@functools.lru_cache(maxsize=1024)
def _librdkafka_has(name: str) -> bool:
    """Returns whether the installed librdkafka knows a property."""
    if name in {"logger", "error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_delivery"}:
        return True
    said = _asked({name: ""})
    return f'No such configuration property: "{name}"' not in said


def refusal(config: Mapping[str, str]) -> tuple[str, str] | None:
    """Returns (property, why) of the first setting that librdkafka refuses by itself; None when it takes all."""
    for name, value in config.items():
        said = _asked({name: value})
        if _PROBE not in said:
            return name, javas_words(said)
    return None


def refuse_code(overrides: Mapping[str, str], kind: Kind) -> None:
    """Raises ConfigError when a connector's overrides for its `kind` of clients would load native code."""
    for name in sorted(LOADS_CODE & overrides.keys()):
        raise ConfigError(f"{kind}.override.{name}: {NO_CODE}", key=f"{kind}.override.{name}")


def javas_words(said: str) -> str:
    """Returns a sentence of librdkafka about a property, with the name that a Java user knows put before its own."""
    return _QUOTED.sub(lambda m: f'"{JAVAS[m[1]]}" ({m[1]})' if m[1] in JAVAS else m[0], said)


def _asked(config: Mapping[str, str]) -> str:
    """Returns librdkafka's error for these settings.

    Asks for a client with an unknown property besides, so that librdkafka never makes one.
    """
    from confluent_kafka import KafkaException, Producer

    try:
        Producer({**config, _PROBE: ""})
    except KafkaException as e:
        return str(e.args[0].str())
    except (TypeError, ValueError) as e:
        return f"{e} ({_PROBE})"  # known, and of another type
    raise AssertionError(f"librdkafka knows {_PROBE}")


def _offset_reset(name: str, value: str) -> dict[str, str]:
    if value.lower().startswith("by_duration"):
        raise ConfigError(f"{name}={value}: use earliest, latest or none", key=name)
    return {name: "error" if value.lower() == "none" else value}


def _batch_size(name: str, value: str) -> dict[str, str]:
    # In Java 0 means that every record has a batch of its own
    return {"batch.num.messages": "1"} if value == "0" else {name: value}


def _assignors(name: str, value: str) -> dict[str, str]:
    names = [item.strip() for item in value.split(",") if item.strip()]
    # librdkafka refuses a mix of eager and cooperative; Java's default list means cooperative in the end.
    found = [_ASSIGNORS.get(n, n) for n in names]
    if "cooperative-sticky" in found:
        return {name: "cooperative-sticky"}
    return {name: ",".join(found)}


def _timeout_ms(name: str, value: str) -> dict[str, str]:
    return {"message.timeout.ms": value}


def _buffer_memory(name: str, value: str) -> dict[str, str]:
    try:
        kib = max(1, int(value) // 1024)
    except ValueError:
        raise ConfigError(
            f"Invalid value {value} for configuration {name}: Not a number of type LONG", key=name
        ) from None
    return {"queue.buffering.max.kbytes": str(kib)}


_VALUES: Final[dict[str, Callable[[str, str], dict[str, str]]]] = {
    "partition.assignment.strategy": _assignors,
    "auto.offset.reset": _offset_reset,
    "batch.size": _batch_size,
    "delivery.timeout.ms": _timeout_ms,
    "buffer.memory": _buffer_memory,
}
