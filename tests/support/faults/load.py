"""Threads that put load on a broker and note what they were told. They live through its deaths."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
import traceback
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from support.faults.recorder import Pending, Recorder

CLIENT: Final = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "socket.timeout.ms": 8000,
    "log_level": 0,
}
PATIENCE_S: Final = 60.0
SILENT: Final = logging.getLogger("librdkafka.silent")
"""librdkafka tells of every fenced producer on standard error, which is what the loads are after."""
SILENT.disabled = True


class StuckError(AssertionError):
    """A load does not end, and where it is."""


class Load(threading.Thread):
    """One client. `progress` counts what was acknowledged to it; `failure` is why it ended before its time."""

    def __init__(self, name: str, recorder: Recorder, bootstrap: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.recorder = recorder
        self.chance = random.Random(f"{seed} {name}")
        self.progress = 0
        self.last_error = ""
        self.fatal: list[str] = []
        self.failure: BaseException | None = None
        self.stopping = threading.Event()
        self.client = {**CLIENT, "bootstrap.servers": bootstrap, "client.id": name, "logger": SILENT}

    def run(self) -> None:
        try:
            self.work()
        except BaseException as e:
            self.failure = e

    def work(self) -> None:
        """Does the thread's work until `stopping` is set."""
        raise NotImplementedError

    def stop(self, timeout_s: float = PATIENCE_S + 30) -> None:
        self.stopping.set()
        self.join(timeout_s)
        if self.is_alive():
            where = sys._current_frames().get(self.ident or 0)
            stack = "".join(traceback.format_stack(where)) if where else ""
            raise StuckError(f"{self.name} does not end: {stack}")

    def rest(self, seconds: float) -> None:
        """Pauses for about this long; the pause ends when the load is to stop."""
        self.stopping.wait(self.chance.random() * 2 * seconds)


class ProducerLoad(Load):
    """Writes unique values to the partitions of a topic. `keys`: so many different ones, with tombstones."""

    def __init__(self, name: str, recorder: Recorder, bootstrap: str, seed: int, *, topic: str, partitions: int, idempotent: bool = True, acks: int = -1, keys: int = 0, burst: int = 12, pause_s: float = 0.04, size: int = 300) -> None:  # fmt: skip
        super().__init__(name, recorder, bootstrap, seed)
        self.topic, self.partitions, self.keys = topic, partitions, keys
        self.burst, self.pause_s, self.size, self.idempotent = burst, pause_s, size, idempotent
        self.settings = {
            **self.client, "linger.ms": 2, "enable.idempotence": idempotent, "acks": acks,
            "message.timeout.ms": int(PATIENCE_S * 1000), "error_cb": self._hear,
        }  # fmt: skip
        self.sessions = 0

    def _hear(self, error: KafkaError) -> None:
        """librdkafka gave up its session: it cannot tell any more which of its records are stored."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.last_error = str(error)
            self.fatal.append(str(error))

    def work(self) -> None:
        while not self.stopping.is_set():
            self.sessions += 1
            producer = Producer(
                self.settings | {"compression.type": self.chance.choice(["none", "lz4", "zstd"])}
            )
            pending = Pending(self.recorder, f"{self.name}.{self.sessions}", idempotent=self.idempotent)
            restart = time.monotonic() + 5 + 20 * self.chance.random()
            try:
                while not self.stopping.is_set() and time.monotonic() < restart:
                    for _ in range(self.chance.randint(1, self.burst)):
                        self._produce(producer, pending)
                    producer.poll(0)
                    self.rest(self.pause_s)
                if producer.flush(PATIENCE_S):
                    raise AssertionError(f"{self.name}: not everything was answered within {PATIENCE_S} s")
            except KafkaException as e:
                if not e.args[0].fatal() and e.args[0].code() != KafkaError._FATAL:
                    raise
                producer.poll(0.5)  # for the error's callback, and what is answered still
            finally:
                pending.give_up()

    def _produce(self, producer: Producer, pending: Pending) -> None:
        partition = self.chance.randrange(self.partitions)
        key = b"k%d" % self.chance.randrange(self.keys) if self.keys else None
        value: bytes | None = unique_value(self, self.size)
        if key is not None and self.chance.random() < 0.05:
            value = None
        number = pending.add(self.topic, partition, value, key=key)

        def answered(error: KafkaError | None, message: Any) -> None:
            pending.answered(number, error, message.offset() if message.offset() is not None else -1)
            self.progress += error is None

        while True:
            try:
                producer.produce(self.topic, value, key, partition=partition, on_delivery=answered)
            except BufferError:
                producer.poll(0.05)
            else:
                return


def unique_value(load: Load, size: int) -> bytes:
    """Returns a value that no other record of the history has, of up to about this size."""
    return b"%s.%d." % (load.name.encode(), load.recorder.unique()) + b"x" * load.chance.randrange(size)
