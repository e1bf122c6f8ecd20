"""librdkafka's configuration for a task's producer and consumer, made of Kafka's properties.

In rising precedence: the worker's own connection settings (`bootstrap.servers`, `security.*`, `sasl.*`,
`ssl.*`), its `producer.` or `consumer.` settings, the connector's `producer.override.` or
`consumer.override.`. Settings that the delivery guarantees rest on cannot be overridden.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from klamm.connect.model import TaskSpec, transactional_id
from klamm_base.clientconfig import Kind, javas_words, refuse_code, translate
from klamm_base.configdef import ConfigDef, Type, between, with_prefix
from klamm_base.errors import ConfigError
from klamm_base.refused_logins import LOGINS

log = logging.getLogger("librdkafka")

MAX_POLL_RECORDS: Final = "max.poll.records"

_CONNECTION: Final = ("bootstrap.servers", "client.dns.lookup", "client.rack")
_CONNECTION_PREFIXES: Final = ("security.", "sasl.", "ssl.")
# Java's producer waits for ever in Connect (delivery.timeout.ms = Integer.MAX_VALUE): tasks wait until the
# broker is back instead of failing.
_FOR_EVER_MS: Final = 2_147_483_647
# Errors of the client and of the broker for a broker or a coordinator that is unavailable at the moment.
_AWAY: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
# The most memory that one task may hold for records on their way to the broker.
PRODUCER_QUEUE_KIB: Final = 64 << 10


def producer_config(spec: TaskSpec, *, client_id: str | None = None) -> dict[str, Any]:
    """Returns the settings for a source task's records.

    All in-sync replicas acknowledge them; they arrive in order, retries make no duplicates, and the
    partitioner is Java's.
    """
    props = {
        "client.id": client_id or f"connector-producer-{spec.id}",
        **properties(spec, "producer"),
    }
    fixed: dict[str, Any] = {"enable.idempotence": True, "acks": "all", "message.timeout.ms": _FOR_EVER_MS}
    return {"queue.buffering.max.kbytes": PRODUCER_QUEUE_KIB} | _translated(props, "producer") | fixed


def source_producer_config(spec: TaskSpec) -> dict[str, Any]:
    """Returns the settings for the records of an at-least-once source task.

    A refused record stops the producer, so the acknowledgement of a record also covers all before it in its
    partition.
    """
    return producer_config(spec) | {"enable.gapless.guarantee": True}


def transactional_config(spec: TaskSpec) -> dict[str, Any]:
    """Returns the settings for the records and offsets of an exactly-once source task, with Kafka's
    transactional id.
    """
    config = producer_config(spec)
    del config["message.timeout.ms"]  # the transaction has a time-out
    if config.get("transactional.id") not in (None, transactional_id(spec.worker["group.id"], spec.id)):
        log.warning("transactional.id=%s is ignored: each task has its own id", config["transactional.id"])
    return config | {"transactional.id": transactional_id(spec.worker["group.id"], spec.id)}


def offset_producer_config(spec: TaskSpec) -> dict[str, Any] | None:
    """Returns the settings for source offsets that cannot go with the records; None if the record producer
    serves.

    The connector's own producer settings must not lead the offsets to another cluster.
    """
    if not with_prefix(spec.connector_config, "producer.override."):
        return None
    return workers_producer_config(spec)


def workers_producer_config(spec: TaskSpec) -> dict[str, Any]:
    """Returns the settings for source offsets in the workers' topic, without the connector's own producer
    settings.
    """
    config = producer_config(
        TaskSpec(id=spec.id, kind=spec.kind, connector_config={}, task_config={}, worker=spec.worker)
    )
    return config | {"client.id": f"connector-offsets-{spec.id}"}


def consumer_config(spec: TaskSpec) -> dict[str, Any]:
    """Returns the settings of a sink task: group `connect-NAME`, from the earliest record, committed by the
    task only.
    """
    session_ms = int(spec.worker.get("session.timeout.ms", "10000"))
    props = {
        "client.id": f"connector-consumer-{spec.id}",
        "group.id": f"connect-{spec.id.connector}",
        "auto.offset.reset": "earliest",
        # With Java's default of 45 s a killed task's partitions would go unread that long; its worker is
        # missed sooner.
        "session.timeout.ms": str(session_ms),
        "heartbeat.interval.ms": str(min(3_000, session_ms // 3)),
        "allow.auto.create.topics": "true",
        **properties(spec, "consumer"),
    }
    props.pop(MAX_POLL_RECORDS, None)  # the sink's loop follows it
    defaults = {
        "partition.assignment.strategy": "cooperative-sticky",
        # Bounds what librdkafka fetches ahead, so that records for a slow sink do not fill the memory.
        "queued.max.messages.kbytes": 32 << 10,
        # At that bound, librdkafka would otherwise pause fetching for a whole second.
        "fetch.queue.backoff.ms": 10,
        # A broker answers as soon as there is a record. Kafka's half second only makes thousands of idle tasks ask more
        # often.
        "fetch.wait.max.ms": 2_000,
        "enable.partition.eof": False,
        "statistics.interval.ms": 0,
    }
    fixed: dict[str, Any] = {"enable.auto.commit": False, "enable.auto.offset.store": False}
    return defaults | _translated(props, "consumer") | fixed


def max_poll_records(spec: TaskSpec, default: int) -> int:
    """Returns how many records `put` gets at most. Raises ConfigError."""
    definition = ConfigDef().define(MAX_POLL_RECORDS, Type.INT, default, validator=between(1))
    return int(definition.parse(properties(spec, "consumer"))[MAX_POLL_RECORDS])


def admin_config(spec: TaskSpec, client_id: str) -> dict[str, Any]:
    """Returns the settings for a task's requests to the cluster."""
    return _translated({"client.id": client_id, **properties(spec, "admin")}, "admin")


def properties(spec: TaskSpec, kind: Kind) -> dict[str, str]:
    """Returns settings by Kafka's own names, for a task that makes its clients itself. Raises ConfigError."""
    overrides = with_prefix(spec.connector_config, f"{kind}.override.")
    refuse_code(overrides, kind)
    return {
        **_connection(spec.worker),
        **with_prefix(spec.worker, f"{kind}."),
        **overrides,
    }


def is_cooperative(consumer: Mapping[str, Any]) -> bool:
    """Tells whether a consumer with these settings is assigned partitions step by step, not all of them each
    time.
    """
    strategy = str(consumer["partition.assignment.strategy"])
    return "cooperative" in strategy or consumer.get("group.protocol") == "consumer"


def make_producer(config: dict[str, Any]) -> Producer:
    """Makes a producer. Raises ConfigError that names the property librdkafka refuses."""
    with _refusals():
        return Producer(config, logger=_Log(log, config))


def make_consumer(config: dict[str, Any]) -> Consumer:
    """Makes a consumer. Raises ConfigError that names the property librdkafka refuses."""
    with _refusals():
        return Consumer(config, logger=_Log(log, config))


def make_admin(config: dict[str, Any]) -> AdminClient:
    """Makes an admin client. Raises ConfigError that names the property librdkafka refuses."""
    with _refusals():
        return AdminClient(config, logger=_Log(log, config))


class _Log(logging.LoggerAdapter[logging.Logger]):
    """The log of a client. `extra` are its settings: they tell who it is whose login is refused."""

    def log(self, level: int, msg: object, *args: object, **_: Any) -> None:
        text = str(msg) % args
        if not LOGINS.take(text, self.extra or {}):
            self.logger.log(level, "%s", text)


def _worth_telling(record: logging.LogRecord) -> bool:
    """Drops librdkafka's line that calls a setting experimental: each source task would log it at each start."""
    return "enable.gapless.guarantee is experimental" not in record.getMessage()


log.addFilter(_worth_telling)


def is_away(error: KafkaError) -> bool:
    """Tells whether a retry may succeed soon: the broker is unavailable or not ready."""
    return error.retriable() or error.code() in _AWAY


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as e:
        said = javas_words(e.args[0].str())
        raise ConfigError(f"The client cannot be made of its settings: {said}") from e


def _translated(props: Mapping[str, str], kind: Kind) -> dict[str, Any]:
    found = translate(props, kind, lenient=True)
    for name, why in found.ignored:
        log.debug("%s setting %s has no effect: %s", kind, name, why)  # the worker has already warned once
    return found.config


def _connection(worker: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in worker.items() if k in _CONNECTION or k.startswith(_CONNECTION_PREFIXES)}
