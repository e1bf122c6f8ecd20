"""A driver task's offsets: a source's in the offset topic, a sink's in its consumer group.

A commit returns when the broker has the offsets. Like a source task, it waits for an absent broker until the
task must stop; then it raises, and also when the broker refuses. Any thread may call it. The worker writes a source's
offsets: its producer is there already, where a new one of librdkafka's asks for its producer id only after half a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from klamm.connect.child import clients
from klamm.connect.child.control import Control
from klamm.connect.child.offset_writer import encode_key, encode_offset
from klamm.connect.model import TaskSpec
from klamm_plugins.errors import ConfigError, ConnectError, DataError, RetriableError

OWN_TOPIC: Final = "offsets.storage.topic"

Commit = Sequence[tuple[dict[str, Any], dict[str, Any] | None]]
Ask = Callable[[Consumer], list[TopicPartition]]

_STEP_S: Final = 0.1
_RETRY_S: Final = 0.5
_CLOSE_S: Final = 2.0
# A request for committed offsets is repeated after this long.
_READ_S: Final = 10.0


class DriverOffsets(Protocol):
    """The offset operations that a driver task's context uses."""

    def read(self, partitions: list[dict[str, Any]]) -> list[dict[str, Any] | None]: ...
    def commit(self, offsets: Commit) -> None: ...
    def close(self) -> None: ...


class TopicOffsets:
    """A source's offsets: records of the offset topic, which the worker reads and writes."""

    def __init__(self, control: Control, spec: TaskSpec) -> None:
        if spec.connector_config.get(OWN_TOPIC, "").strip():
            raise ConfigError(
                f"{OWN_TOPIC} cannot be set: tasks of this connector move their data themselves and keep their offsets in "
                f"the workers' topic {spec.worker['offset.storage.topic']}",
                key=OWN_TOPIC,
            )
        self._control = control
        self._connector = spec.id.connector
        self._topic = spec.worker["offset.storage.topic"]
        self._lock = threading.Lock()

    def read(self, partitions: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        found: list[dict[str, Any] | None] = self._control.call(
            "read_offsets", {"connector": self._connector, "partitions": partitions}
        )
        return found

    def commit(self, offsets: Commit) -> None:
        records = [
            (
                encode_key(self._connector, partition).decode(),
                None if offset is None else encode_offset(offset).decode(),
            )
            for partition, offset in offsets
        ]
        with self._lock:  # a commit that is repeated must not come after the next
            while not self._written(records):
                pass

    def _written(self, records: list[tuple[str, str | None]]) -> bool:
        """Returns False if the broker was away for so long that the worker has given the records up."""
        answer = self._control.ask("write_offsets", {"records": records})
        while True:
            try:
                return bool(answer.result(_STEP_S))
            except TimeoutError:
                _go_on(self._control, f"The offset topic {self._topic} did not answer")
            except ConnectError as e:
                raise ConnectError(f"Offsets could not be committed to {self._topic}: {e}") from None

    def close(self) -> None:
        """Does nothing: every commit has waited for its own end."""


class GroupOffsets:
    """A sink's offsets: those of its consumer group. The consumer never joins; it only commits and asks."""

    def __init__(self, control: Control, spec: TaskSpec) -> None:
        self._control = control
        self._config = clients.consumer_config(spec)
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None

    def read(self, partitions: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        places = [TopicPartition(*_place(p)) for p in partitions]
        if not places:
            return []
        with self._lock:
            found = self._patiently("are not known", lambda c: c.committed(places, timeout=_READ_S))
        offsets = {(p.topic, p.partition): p.offset for p in found}
        answer = (offsets.get((p.topic, p.partition), -1) for p in places)
        return [{"kafka_offset": offset} if offset >= 0 else None for offset in answer]

    def commit(self, offsets: Commit) -> None:
        wanted = [TopicPartition(*_place(partition), _next(offset)) for partition, offset in offsets]
        with self._lock:
            self._patiently(
                "could not be committed",
                lambda c: c.commit(offsets=wanted, asynchronous=False) or [],
            )

    def _open(self) -> Consumer:
        if self._consumer is None:
            self._consumer = clients.make_consumer(self._config)
        return self._consumer

    def _patiently(self, what: str, ask: Ask) -> list[TopicPartition]:
        """Asks again while the broker is away."""
        group = self._config["group.id"]
        while True:
            try:
                found = self._answer(what, ask)
            except KafkaException as e:
                error: KafkaError | None = e.args[0]
            else:
                error = next((p.error for p in found if p.error is not None), None)
                if error is None:
                    return found
            assert error is not None
            if not clients.is_away(error):
                raise ConnectError(f"Offsets of group {group} {what}: {error.str()} ({error.name()})")
            _go_on(self._control, f"Offsets of group {group} {what}: {error.str()}")
            time.sleep(_RETRY_S)

    def _answer(self, what: str, ask: Ask) -> list[TopicPartition]:
        """Runs `ask` in another thread, since it blocks for a minute when its coordinator is away.

        This thread meanwhile shows that the task lives, and is free when the task must stop.
        """
        consumer = self._open()
        answers: list[list[TopicPartition]] = []
        errors: list[Exception] = []

        def work() -> None:
            try:
                answers.append(ask(consumer))
            except Exception as e:
                errors.append(e)

        working = threading.Thread(target=work, name="group-offsets", daemon=True)
        working.start()
        working.join(_STEP_S)
        while working.is_alive():
            try:
                _go_on(self._control, f"Offsets of group {self._config['group.id']} {what}")
            except RetriableError:
                self._consumer = None  # the thread still uses it, so it cannot be closed
                raise
            working.join(_STEP_S)
        if errors:
            raise errors[0]
        return answers[0]

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            closing = threading.Thread(target=consumer.close, name="close", daemon=True)
            closing.start()
            closing.join(_CLOSE_S)


def _go_on(control: Control, problem: str) -> None:
    """Shows that the task waits for the broker. Raises RetriableError when the task must stop."""
    if control.stopping.is_set() and control.stop_remaining_s() <= 0:
        raise RetriableError(f"{problem} before the task had to stop")
    control.vitals.enter("broker")


def _place(partition: dict[str, Any]) -> tuple[str, int]:
    match partition:
        case {"kafka_topic": str(topic), "kafka_partition": int(number)}:
            return topic, number
    raise DataError(
        f"A sink's partition must be {{'kafka_topic': name, 'kafka_partition': number}}, not {partition!r}"
    )


def _next(offset: dict[str, Any] | None) -> int:
    match offset:
        case {"kafka_offset": int(number)} if number >= 0:
            return number
    raise DataError(f"A sink's offset must be {{'kafka_offset': number}}, not {offset!r}")
