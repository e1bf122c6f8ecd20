"""[producer]: Java's property names, as the agent's own producer understands them.

No name vanishes: the agent uses it, refuses it with the reason, or lists it in `ignored` with the reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from klamm_base.clienttables import NO_EFFECT as JAVAS_NO_EFFECT
from klamm_base.clienttables import OF_KIND, RENAMED, SAME
from klamm_base.errors import ConfigError
from klamm_base.rdkafkasecurity import NO_EFFECT as SECURITY_NO_EFFECT
from klamm_base.rdkafkasecurity import TRANSLATED as SECURITY
from klamm_base.security import ClientSecurity
from klamm_kafka.wire.compression import Compression

OURS: Final = {
    "bootstrap.servers": "it is bootstrap_servers at the top of the file",
    "acks": "checkpoints count on acks=all",
    "enable.idempotence": "it is always on: records keep their order and come once while the agent runs",
    "transactional.id": "the agent delivers at least once, without transactions",
    "delivery.timeout.ms": "the agent waits for the broker for as long as it takes",
    "message.timeout.ms": "the agent waits for the broker for as long as it takes",
    "buffer.memory": "it is queue_bytes at the top of the file",
    "queue.buffering.max.kbytes": "it is queue_bytes at the top of the file",
    "queue.buffering.max.messages": "it is queue_bytes at the top of the file",
}
"""Names that cannot be set, each with the reason."""

_ALIASES: Final = {
    "compression.codec": "compression.type",
    "queue.buffering.max.ms": "linger.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
}
"""librdkafka's other names of settings that the agent uses."""
_LEVELS: Final = {
    Compression.GZIP: (1, 9, None),
    Compression.LZ4: (1, 12, 1),  # the fastest; from 3 on it costs several times as much
    Compression.ZSTD: (-131_072, 22, 3),
}
"""Least and greatest level, and the default."""
_NUMBERS: Final = {
    "linger.ms": (20, 0, 900_000),
    "batch.size": (256 * 1024, 1_024, 64 * 1024 * 1024),
    "max.in.flight.requests.per.connection": (5, 1, 5),
    "request.timeout.ms": (30_000, 1_000, 900_000),
    "metadata.max.age.ms": (300_000, 1_000, 86_400_000),
    "socket.connection.setup.timeout.ms": (10_000, 1_000, 900_000),
}
"""Default, least, greatest."""
_NO_EFFECT: Final = {
    "max.request.size": "batch.size bounds what is sent together",
    "message.max.bytes": "batch.size bounds what is sent together",
    "batch.num.messages": "batch.size bounds a batch",
    "retries": "what is not acknowledged is sent again until it is",
    "retry.backoff.ms": "the agent tries again after 0.1 s, then ever more rarely, at least every 5 s",
    "retry.backoff.max.ms": "the agent tries again at least every 5 s",
    "reconnect.backoff.ms": "the agent tries again after 0.1 s, then ever more rarely, at least every 5 s",
    "reconnect.backoff.max.ms": "the agent tries again at least every 5 s",
    "partitioner.class": "Java classes cannot run here; keys are partitioned as Java's default partitioner does it",
}
_NONE: Final = "the agent's producer has nothing like it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The settings of the agent's producer; times are in seconds."""

    codec: Compression = Compression.LZ4
    level: int | None = 1
    linger: float = 0.02
    batch_bytes: int = 256 * 1024
    in_flight: int = 5
    request_timeout_ms: int = 30_000
    metadata_max_age: float = 300.0
    connect_timeout: float = 10.0
    client_id: str = ""
    security: ClientSecurity = field(default_factory=ClientSecurity)


def producer_settings(props: Mapping[str, str]) -> tuple[ProducerSettings, list[tuple[str, str]]]:
    """Returns the settings, and (name, reason) for each name without an effect. Raises ConfigError with the name as key."""
    used: dict[str, str] = {}
    security: dict[str, str] = {}
    ignored: list[tuple[str, str]] = []
    for name, value in props.items():
        own = _ALIASES.get(name, name)
        if name in OURS:
            raise ConfigError(f"{name} cannot be set: {OURS[name]}", key=name)
        if own in _NUMBERS or own in {"client.id", "compression.type"} or _is_level(own):
            used[own] = value.strip()
        elif name in SECURITY:
            security[name] = value
        else:
            ignored.append((name, _why_not(name)))
    codec, level = _compression(used, ignored)
    numbers = {name: _number(used, name) for name in _NUMBERS}
    settings = ProducerSettings(
        codec=codec,
        level=level,
        linger=numbers["linger.ms"] / 1000,
        batch_bytes=numbers["batch.size"],
        in_flight=numbers["max.in.flight.requests.per.connection"],
        request_timeout_ms=numbers["request.timeout.ms"],
        metadata_max_age=numbers["metadata.max.age.ms"] / 1000,
        connect_timeout=numbers["socket.connection.setup.timeout.ms"] / 1000,
        client_id=used.get("client.id", ""),
        security=ClientSecurity.from_properties(security),
    )
    return settings, ignored


def _is_level(name: str) -> bool:
    return name == "compression.level" or (name.startswith("compression.") and name.endswith(".level"))


def _why_not(name: str) -> str:
    """Returns the reason why a name has no effect. Raises ConfigError for an unknown name."""
    for table in (_NO_EFFECT, JAVAS_NO_EFFECT, SECURITY_NO_EFFECT):
        if name in table:
            return table[name]
    if any(name in names and kind != "producer" for kind, names in OF_KIND.items()):
        return "it is not a setting of a producer"
    if name in SAME or name in RENAMED or name.startswith(("ssl.", "sasl.", "socket.")):
        return _NONE
    near = difflib.get_close_matches(name, [*_NUMBERS, *OF_KIND["producer"], *SAME, *SECURITY], 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"{name} is not a setting of a producer{hint}", key=name)


def _compression(used: Mapping[str, str], ignored: list[tuple[str, str]]) -> tuple[Compression, int | None]:
    text = used.get("compression.type", "lz4").lower()
    try:
        codec = Compression[text.upper()]
    except KeyError:
        names = ", ".join(c.name.lower() for c in Compression)
        raise ConfigError(
            f"compression.type = {text!r}: one of {names} is expected", key="compression.type"
        ) from None
    name = f"compression.{text}.level"
    ignored += [
        (other, f"compression.type is {text}")
        for other in used
        if _is_level(other) and other not in {name, "compression.level"}
    ]
    if codec not in _LEVELS:
        if "compression.level" in used:
            ignored.append(("compression.level", f"{text} has no levels"))
        return codec, None
    least, most, default = _LEVELS[codec]
    given = name if name in used else "compression.level"
    if given not in used:
        return codec, default
    return codec, _whole(given, used[given], least, most)


def _number(used: Mapping[str, str], name: str) -> int:
    default, least, most = _NUMBERS[name]
    return _whole(name, used[name], least, most) if name in used else default


def _whole(name: str, text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ConfigError(f"{name} = {text}: a whole number from {least} to {most} is expected", key=name)
    return value
