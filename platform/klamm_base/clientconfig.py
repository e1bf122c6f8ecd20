"""Java client property names and values in librdkafka's terms: the one translation table.

Worker files, connector overrides and `--command-config` files are written for the Java clients; our tasks and
the CLI use librdkafka. Every name is the same there, renamed, translated by value, or named in `ignored` with
the reason: nothing vanishes. Names that only librdkafka knows pass through. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from klamm_base.errors import ConfigError

Kind = Literal["producer", "consumer", "admin"]


@dataclass(frozen=True, slots=True)
class Translated:
    """`config` goes to librdkafka; `ignored` are (property, why) of what has no effect there."""

    config: dict[str, Any] = field(default_factory=dict)
    ignored: list[tuple[str, str]] = field(default_factory=list)


# Settings of one kind of client: given to another kind they have no effect.
_OF_KIND: Final[dict[Kind, frozenset[str]]] = {
    "producer": frozenset(
        [
            "acks",
            "linger.ms",
            "batch.size",
            "compression.type",
            "compression.gzip.level",
            "compression.lz4.level",
            "compression.zstd.level",
            "retries",
            "enable.idempotence",
            "transactional.id",
            "transaction.timeout.ms",
            "delivery.timeout.ms",
            "max.in.flight.requests.per.connection",
            "max.request.size",
            "buffer.memory",
        ]
    ),
    "consumer": frozenset(
        [
            "group.id",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "auto.offset.reset",
            "enable.auto.commit",
            "auto.commit.interval.ms",
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "fetch.min.bytes",
            "fetch.max.bytes",
            "fetch.max.wait.ms",
            "max.partition.fetch.bytes",
            "isolation.level",
            "check.crcs",
            "partition.assignment.strategy",
        ]
    ),
    "admin": frozenset(),
}
_RENAMED: Final[dict[str, str]] = {
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_NO_EFFECT: Final[dict[str, str]] = {
    "key.serializer": "records are bytes here",
    "value.serializer": "records are bytes here",
    "key.deserializer": "records are bytes here",
    "value.deserializer": "records are bytes here",
    "interceptor.classes": "Java classes cannot run here",
    "metric.reporters": "Java classes cannot run here",
    "metrics.sample.window.ms": "librdkafka keeps its own statistics",
    "metrics.num.samples": "librdkafka keeps its own statistics",
    "metrics.recording.level": "librdkafka keeps its own statistics",
    "max.block.ms": "producing waits while the queue is full",
    "max.poll.records": "the reader chooses how many records it takes at a time",
    "default.api.timeout.ms": "every call has its own time-out",
    "exclude.internal.topics": "internal topics are filtered by the reader",
    "partitioner.ignore.keys": "keys choose the partition as in Java's default partitioner",
    "partitioner.adaptive.partitioning.enable": "librdkafka's sticky partitioning is used",
    "partitioner.availability.timeout.ms": "librdkafka's sticky partitioning is used",
    "ssl.protocol": "OpenSSL agrees on the highest version of both sides",
    "ssl.enabled.protocols": "OpenSSL agrees on the highest version of both sides",
    "ssl.provider": "OpenSSL is used",
    "ssl.keymanager.algorithm": "OpenSSL is used",
    "ssl.trustmanager.algorithm": "OpenSSL is used",
    "ssl.secure.random.implementation": "OpenSSL is used",
    "auto.include.jmx.reporter": "there is no JMX here",
    "metadata.max.idle.ms": "librdkafka forgets unused topics by itself",
    "security.providers": "OpenSSL is used",
    "socket.connection.setup.timeout.max.ms": "the time to connect does not grow; see socket.connection.setup.timeout.ms",
    "transaction.two.phase.commit.enable": "librdkafka has no two-phase commit",
    "metadata.recovery.strategy": "librdkafka asks the bootstrap servers again by itself",
    "metadata.recovery.rebootstrap.trigger.ms": "librdkafka asks the bootstrap servers again by itself",
}
_LEVELS: Final = {f"compression.{codec}.level": codec for codec in ("gzip", "lz4", "zstd")}
_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "cooperative-sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_JAAS: Final = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))')


def translate(props: Mapping[str, str], kind: Kind) -> Translated:
    """Librdkafka's configuration for a `kind` of client from Java's property names.

    Where the defaults differ, Java's count: producers get its partitioner (`murmur2_random`), so that keys land where
    Java puts them, consumers its isolation level. Raises ConfigError for a value that cannot work in librdkafka (a JKS trust store, an unknown login module).
    """
    result = Translated()
    if kind == "producer":
        result.config["partitioner"] = "murmur2_random"
    elif kind == "consumer":
        result.config["isolation.level"] = "read_uncommitted"
    for name, value in props.items():
        _one(name, value, kind, result)
    if kind == "producer":
        _compression_level(props, result)
    return result


def _compression_level(props: Mapping[str, str], result: Translated) -> None:
    """Java has a level for each codec, librdkafka one for the codec in use."""
    codec = props.get("compression.type", "none").lower()
    for name in sorted(props.keys() & _LEVELS.keys()):
        if _LEVELS[name] == codec:
            result.config["compression.level"] = props[name]
        else:
            result.ignored.append((name, f"compression.type is {codec}"))


def _one(name: str, value: str, kind: Kind, result: Translated) -> None:
    if kind == "producer" and name in _LEVELS:
        return  # depends on compression.type
    if name in _NO_EFFECT:
        result.ignored.append((name, _NO_EFFECT[name]))
    elif name not in _OF_KIND[kind] and any(name in names for names in _OF_KIND.values()):
        result.ignored.append((name, f"it is not a setting of a {kind}"))
    elif name in _VALUES:
        result.config.update(_VALUES[name](name, value))
    elif name == "request.timeout.ms":
        result.config[name if kind == "producer" else "socket.timeout.ms"] = value
    else:  # the same name in both, or librdkafka's own: librdkafka refuses by name what it does not know
        result.config[_RENAMED.get(name, name)] = value


def _jaas(name: str, value: str) -> dict[str, str]:
    module = value.split(None, 1)[0] if value.strip() else ""
    if not module.endswith(("PlainLoginModule", "ScramLoginModule")):
        raise ConfigError(
            f"{name} names the login module {module or '(none)'}; PlainLoginModule and ScramLoginModule can be used",
            key=name,
        )
    options = {m[1]: (m[2] if m[2] is not None else m[3]) for m in _JAAS.finditer(value)}
    absent = [o for o in ("username", "password") if o not in options]
    if absent:
        raise ConfigError(f"{name} has no {' and no '.join(absent)}", key=name)
    plain = {k: re.sub(r"\\(.)", r"\1", v) for k, v in options.items()}
    return {"sasl.username": plain["username"], "sasl.password": plain["password"]}


def _truststore(name: str, value: str) -> dict[str, str]:
    if value.endswith((".jks", ".p12", ".pfx")):
        raise ConfigError(
            f"{name}={value}: librdkafka reads PEM files; export the certificates with keytool -exportcert -rfc",
            key=name,
        )
    return {"ssl.ca.location": value}


def _keystore(name: str, value: str) -> dict[str, str]:
    suffix = value.rpartition(".")[2].lower()
    if suffix == "jks":
        raise ConfigError(
            f"{name}={value}: librdkafka reads PEM and PKCS12; convert it with keytool -importkeystore "
            "-deststoretype PKCS12",
            key=name,
        )
    if suffix in {"p12", "pfx"}:
        return {name: value}
    # Java's PEM key store: private key and certificates in one file
    return {"ssl.key.location": value, "ssl.certificate.location": value}


def _endpoint_identification(name: str, value: str) -> dict[str, str]:
    return {name: value or "none"}  # empty switches it off in Java


def _offset_reset(name: str, value: str) -> dict[str, str]:
    if value.lower().startswith("by_duration"):
        raise ConfigError(f"{name}={value}: use earliest, latest or none", key=name)
    return {name: "error" if value.lower() == "none" else value}


def _batch_size(name: str, value: str) -> dict[str, str]:
    # 0 is Java's way to say: every record in a batch of its own
    return {"batch.num.messages": "1"} if value.strip() == "0" else {name: value}


def _store_type(name: str, value: str) -> dict[str, str]:
    if value.upper() not in {"PEM", "PKCS12"}:
        raise ConfigError(f"{name}={value}: use PEM (or PKCS12 for a key store)", key=name)
    return {}


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


def _nothing(name: str, value: str) -> dict[str, str]:
    return {}


_VALUES: Final[dict[str, Callable[[str, str], dict[str, str]]]] = {
    "sasl.jaas.config": _jaas,
    "ssl.truststore.location": _truststore,
    "ssl.keystore.location": _keystore,
    "ssl.endpoint.identification.algorithm": _endpoint_identification,
    "ssl.truststore.type": _store_type,
    "ssl.keystore.type": _store_type,
    "ssl.truststore.password": _nothing,  # PEM certificates have none
    "partition.assignment.strategy": _assignors,
    "auto.offset.reset": _offset_reset,
    "batch.size": _batch_size,
    "delivery.timeout.ms": _timeout_ms,
    "buffer.memory": _buffer_memory,
}
