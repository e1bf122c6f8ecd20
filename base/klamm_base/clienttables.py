"""Tables that map Java's client properties to librdkafka's: the data behind `clientconfig`.

Security (`security.*`, `sasl.*`, `ssl.*`) is in `rdkafkasecurity`.
"""

from __future__ import annotations

from typing import Final, Literal

Kind = Literal["producer", "consumer", "admin"]

OF_KIND: Final[dict[Kind, frozenset[str]]] = {
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
            "allow.auto.create.topics",
        ]
    ),
    "admin": frozenset(),
}
"""Settings for one kind of client. They have no effect on another kind."""

SAME: Final = frozenset(
    [
        "bootstrap.servers",
        "client.id",
        "client.rack",
        "client.dns.lookup",
        "metadata.max.age.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "connections.max.idle.ms",
        "socket.connection.setup.timeout.ms",
        "enable.metrics.push",
    ]
) | frozenset().union(*OF_KIND.values())
"""Java's names that librdkafka has too, or that `RENAMED` and the value translations cover."""

RENAMED: Final[dict[str, str]] = {
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
}

_RECORDS: Final = "records are bytes here"
_CLASSES: Final = "Java classes cannot run here"
_STATISTICS: Final = "librdkafka keeps its own statistics"
_STICKY: Final = "librdkafka's sticky partitioning is used"
_SHARE: Final = "there are no share consumers here"
_REBOOTSTRAP: Final = "librdkafka asks the bootstrap servers again by itself"

NO_EFFECT: Final[dict[str, str]] = {
    "key.serializer": _RECORDS,
    "value.serializer": _RECORDS,
    "key.deserializer": _RECORDS,
    "value.deserializer": _RECORDS,
    "interceptor.classes": _CLASSES,
    "metric.reporters": _CLASSES,
    "partitioner.class": f"{_CLASSES}; records are partitioned as Java's default partitioner does it",
    "metrics.sample.window.ms": _STATISTICS,
    "metrics.num.samples": _STATISTICS,
    "metrics.recording.level": _STATISTICS,
    "max.block.ms": "producing waits while the queue is full",
    "max.poll.records": "the reader chooses how many records it takes at a time",
    "default.api.timeout.ms": "every call has its own time-out",
    "exclude.internal.topics": "internal topics are filtered by the reader",
    "internal.throw.on.fetch.stable.offset.unsupported": "librdkafka has nothing like it",
    "partitioner.ignore.keys": "keys choose the partition as in Java's default partitioner",
    "partitioner.adaptive.partitioning.enable": _STICKY,
    "partitioner.availability.timeout.ms": _STICKY,
    "auto.include.jmx.reporter": "there is no JMX here",
    "metadata.max.idle.ms": "librdkafka forgets unused topics by itself",
    "socket.connection.setup.timeout.max.ms": "the time to connect does not grow; see socket.connection.setup.timeout.ms",
    "transaction.two.phase.commit.enable": "librdkafka has no two-phase commit",
    "metadata.recovery.strategy": _REBOOTSTRAP,
    "metadata.recovery.rebootstrap.trigger.ms": _REBOOTSTRAP,
    "share.acknowledgement.mode": _SHARE,
    "share.acquire.mode": _SHARE,
    "bootstrap.controllers": "clients speak with brokers, not with controllers",
    "config.providers": "references are resolved before a client gets its settings",
}
"""Java's names without a counterpart in librdkafka, each with the reason."""

RANGES: Final[dict[str, tuple[int, int]]] = {
    "socket.send.buffer.bytes": (0, 100_000_000),
    "socket.receive.buffer.bytes": (0, 100_000_000),
    "connections.max.idle.ms": (0, 2_147_483_647),
    "fetch.wait.max.ms": (0, 300_000),
    "fetch.min.bytes": (1, 100_000_000),
    "fetch.max.bytes": (0, 2_147_483_135),
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "message.max.bytes": (1_000, 1_000_000_000),
    "max.poll.interval.ms": (1, 86_400_000),
    "session.timeout.ms": (1, 3_600_000),
    "heartbeat.interval.ms": (1, 3_600_000),
    "auto.commit.interval.ms": (0, 86_400_000),
    "metadata.max.age.ms": (1, 86_400_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "retry.backoff.ms": (1, 300_000),
    "retry.backoff.max.ms": (1, 300_000),
    "socket.connection.setup.timeout.ms": (1_000, 2_147_483_647),
    "socket.timeout.ms": (10, 300_000),
    "request.timeout.ms": (1, 900_000),
    "linger.ms": (0, 900_000),
    "transaction.timeout.ms": (1_000, 2_147_483_647),
    "queue.buffering.max.kbytes": (1, 2_147_483_647),
    "max.in.flight.requests.per.connection": (1, 1_000_000),
}
"""librdkafka's ranges, where Java's are wider. A value outside is replaced by the nearest value, and the user is
told.
"""

JAVAS: Final[dict[str, str]] = {
    **{theirs: java for java, theirs in RENAMED.items()},
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl.mechanism",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
}
"""A Java user's name for each librdkafka property that appears in librdkafka's errors."""
