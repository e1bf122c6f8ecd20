"""The dead letter topic of a task (KIP-298; here also of sources): unusable records, each with its error.

It has a producer of its own. Invariant: its records are acknowledged (`settle`) before offsets past them are
committed. So each record is in the target, in the dead letter topic, or is delivered again. A dead letter
that the broker refuses fails the task. Any thread may call `send`; only the task's thread calls the rest.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.connect.child import clients, failure
from klamm.connect.child.control import Control
from klamm.connect.child.offset_writer import Producer
from klamm.connect.child.retry import Stopped
from klamm.connect.model import TaskId, TaskSpec
from klamm.connect.validation.definitions import DEAD_LETTERS, REPLICATION, SINK
from klamm_base.configdef import parse_key
from klamm_plugins.discovery import python_name
from klamm_plugins.errors import ConfigError, ConnectError, DataError, RetriableError
from klamm_plugins.records import SinkRecord

CONTEXT: Final = "errors.deadletterqueue.context.headers.enable"
_HEADER: Final = "__connect.errors."
_STEP_S: Final = 0.05
_ADMIN_S: Final = 10.0
_RETRY_S: Final = 0.5
# Tools for dead letters look for these Java names; an error class of a plugin's own keeps its own name.
_KAFKA_NAMES: Final[Mapping[type[Exception], str]] = {
    ConnectError: "org.apache.kafka.connect.errors.ConnectException",
    DataError: "org.apache.kafka.connect.errors.DataException",
    RetriableError: "org.apache.kafka.connect.errors.RetriableException",
    ConfigError: "org.apache.kafka.common.config.ConfigException",
}

RawHeaders = list[tuple[str, bytes | None]]


class Raw(NamedTuple):
    """A record as it was in its topic; `timestamp` in epoch ms, None without one.

    A source's record was in no topic: its offset is -1, and the headers in `source` say where it came from.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: RawHeaders
    source: Mapping[str, str] = {}


@dataclass(slots=True)
class KeptRecord(SinkRecord):
    """A SinkRecord that knows its message, so that a reported record goes to the dead letter topic unchanged."""

    message: Message | None = field(default=None, repr=False, compare=False)

    def copy(self) -> KeptRecord:
        return KeptRecord(
            self.topic,
            self.partition,
            self.key_schema,
            self.key,
            self.value_schema,
            self.value,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.headers,
            self.origin or (self.topic, self.partition, self.offset),
            self.message,
        )


def raw_of(message: Message) -> Raw:
    """Returns what a dead letter needs of a consumed message."""
    kind, timestamp = message.timestamp()
    return Raw(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp if kind else None,
        message.key(),
        message.value(),
        cast("RawHeaders", list(message.headers() or ())),
    )


class DeadLetters:
    """Writes a task's dead letters. `producer` may be a fake; values in `secrets` are hidden in the headers."""

    def __init__(
        self,
        control: Control,
        producer: Producer,
        topic: str,
        *,
        task: TaskId,
        with_context: bool,
        secrets: Iterable[str] = (),
    ) -> None:
        self._control = control
        self._producer = producer
        self._topic = topic
        self._task = task
        self._with_context = with_context
        self._secrets = secrets
        self._lock = threading.Lock()
        self._pending = 0
        self._failure: ConnectError | None = None
        self._kept: deque[Callable[[], None]] = deque()  # to be called in the task's thread
        self._figures = control.vitals.errors

    def send(
        self,
        raw: Raw,
        error: Exception,
        *,
        stage: str,
        executing: str,
        kept: Callable[[], None] | None = None,
    ) -> None:
        """Writes a dead letter. `stage` and `executing` are Kafka's names of the failed step and of the class
        that did it.

        `serve` or `settle` calls `kept` once the topic has the record.
        """
        headers = raw.headers
        if self._with_context:
            headers = [*headers, *self._context(raw, error, stage, executing)]
        with self._lock:
            self._pending += 1
            self._figures.dead_letters += 1

        def delivered(failure: KafkaError | None, _: object) -> None:
            self._delivered(failure, kept)

        while True:
            try:
                # 0 is librdkafka's "none": it takes the time of sending.
                self._producer.produce(
                    self._topic,
                    raw.value,
                    raw.key,
                    -1,
                    delivered,
                    delivered,
                    raw.timestamp or 0,
                    headers,
                )
            except BufferError:
                self._must_go_on()
                self._wait()
            except KafkaException as e:
                with self._lock:
                    self._pending -= 1
                    self._figures.dead_letter_failures += 1
                raise self._refused(e.args[0]) from e
            else:
                return

    def serve(self) -> None:
        """Takes acknowledgements. Raises the error of a dead letter that was refused."""
        self._producer.poll(0)
        while self._kept:
            self._kept.popleft()()
        if self._failure is not None:
            raise self._failure

    def settle(self, within_s: float) -> bool:
        """Waits until all are acknowledged; returns False when that took too long. Raises as `serve` does."""
        until = time.monotonic() + within_s
        self.serve()
        while self._pending and time.monotonic() < until:
            self._wait()
            self.serve()
        return not self._pending

    def _must_go_on(self) -> None:
        """Raises Stopped when the time for a graceful stop is over; the record is then delivered again."""
        if self._control.stopping.is_set() and self._control.stop_remaining_s() <= 0:
            with self._lock:
                self._pending -= 1
            raise Stopped

    def _wait(self) -> None:
        self._control.vitals.enter("broker")
        self._producer.poll(_STEP_S)
        if self._failure is not None:
            raise self._failure

    def _delivered(self, error: KafkaError | None, kept: Callable[[], None] | None) -> None:
        with self._lock:
            self._pending -= 1
            if error is None:
                if kept is not None:
                    self._kept.append(kept)
                return
            self._figures.dead_letter_failures += 1
            if self._failure is None:
                self._failure = self._refused(error)

    def _refused(self, error: KafkaError) -> ConnectError:
        text = f"A record could not be written to the dead letter topic {self._topic}: {error.str()} ({error.name()})"
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return DataError(
                f"{text}; larger ones need producer.override.max.request.size and the topic's max.message.bytes"
            )
        return ConnectError(text)

    def _context(self, raw: Raw, error: Exception, stage: str, executing: str) -> list[tuple[str, bytes]]:
        said = failure.notice(error, self._secrets)
        facts: dict[str, Any] = {
            "topic": raw.topic,
            "partition": raw.partition,
            "offset": raw.offset,
            "connector.name": self._task.connector,
            "task.id": self._task.task,
            "stage": stage,
            "class.name": executing,
            "exception.class.name": _KAFKA_NAMES.get(type(error)) or python_name(type(error)),
            "exception.message": said["message"],
            "exception.stacktrace": said["trace"],
            **raw.source,
        }
        return [(_HEADER + name, str(value).encode("utf-8", "replace")) for name, value in facts.items()]


def open_dead_letters(control: Control, spec: TaskSpec, secrets: Iterable[str]) -> DeadLetters | None:
    """Makes the topic if need be, and its producer; returns None when the connector has no dead letter topic."""
    topic = spec.connector_config.get(DEAD_LETTERS, "").strip()
    if not topic:
        return None
    _ensure_topic(control, spec, topic)
    return DeadLetters(
        control,
        clients.make_producer(clients.producer_config(spec, client_id=f"connector-dlq-producer-{spec.id}")),
        topic,
        task=spec.id,
        with_context=bool(parse_key(SINK[CONTEXT], spec.connector_config)),
        secrets=secrets,
    )


def _ensure_topic(control: Control, spec: TaskSpec, topic: str) -> None:
    """Makes the topic as Kafka does, with one partition and the configured replication factor. Waits for an
    absent broker.
    """
    admin = clients.make_admin(clients.admin_config(spec, f"connector-dlq-adminclient-{spec.id.connector}"))
    replication = int(parse_key(SINK[REPLICATION], spec.connector_config))
    while True:
        control.vitals.enter("broker")
        try:
            if topic not in admin.list_topics(timeout=_ADMIN_S).topics:
                _create(admin, topic, replication)
        except KafkaException as e:
            error: KafkaError = e.args[0]
        else:
            return
        text = f"The dead letter topic {topic} could not be set up: {error.str()} ({error.name()})"
        if error.code() == KafkaError.INVALID_REPLICATION_FACTOR:
            raise ConfigError(f"{text}; set {REPLICATION}, which is {replication}", key=REPLICATION)
        if not clients.is_away(error) or control.stopping.is_set():
            raise ConnectError(text)
        control.stopping.wait(_RETRY_S)


def _create(admin: AdminClient, topic: str, replication: int) -> None:
    new = NewTopic(topic, num_partitions=1, replication_factor=replication)
    try:
        admin.create_topics([new], request_timeout=_ADMIN_S)[topic].result()
    except KafkaException as e:
        if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
