"""A shipper's producer, used in its thread: it sends records, gives back those that were not delivered, and tells whether it makes
headway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from klamm_base.clientconfig import translate
from klamm_base.errors import ConfigError

_STALLED_S: Final = 10.0  # without an answer for so long, the broker counts as away
_DOWN_S: Final = 1.0  # the same, when no broker can be reached
_PROBE_S: Final = 0.5
_TAKE_BACK_S: Final = 5.0
_DEFAULTS: Final = {
    "acks": "all",
    "compression.type": "lz4",
    "linger.ms": 20,
    "message.timeout.ms": 60_000,
    "queue.buffering.max.messages": 0,
    "log_level": 2,  # librdkafka would print connection errors; the shipper says them sparingly
}


starting = threading.RLock()
"""Held while a client is made and connects for the first time, and by a fork: locks that librdkafka and libc held at that moment
would stay locked for ever in the child.
"""


class Returned(NamedTuple):
    """A record that was not delivered."""

    value: bytes
    timestamp: int
    """Epoch milliseconds; -1: none."""
    why: str
    is_lasting: bool
    """True when sending again is of no use."""


class Client:
    """One producer, for one thread; any thread may read `why`. Raises ConfigError for settings that the client refuses."""

    def __init__(
        self, bootstrap_servers: str, topic: str, key: bytes | None, config: dict[str, Any], queue_bytes: int
    ) -> None:
        self._topic, self._key = topic, key
        given = {name: str(value) for name, value in config.items()}
        self._config: dict[str, Any] = _DEFAULTS | translate(given, "producer").config
        self._config |= {
            "bootstrap.servers": bootstrap_servers,
            "queue.buffering.max.kbytes": max(1, queue_bytes // 1024),
            "delivery.report.only.error": True,
            "error_cb": self._on_error,
        }
        self.returned: list[Returned] = []
        self.why = ""
        """The client's last complaint."""
        self._is_down = False
        self._sent = self._settled = 0
        self._moved_at = time.monotonic()
        self._producer: Any = None

    def open(self) -> None:
        """Starts the producer. Raises ConfigError."""
        from confluent_kafka import KafkaException, Producer

        try:
            with starting:
                self._producer = Producer(self._config)
        except KafkaException as e:
            raise ConfigError(f"KafkaHandler: {e.args[0].str()}") from None

    @property
    def in_flight(self) -> int:
        return len(self._producer) if self._producer is not None else 0

    @property
    def is_idle(self) -> bool:
        """True when nothing is under way, in either direction."""
        return not self.in_flight and not self.returned

    def send(self, values: Sequence[bytes]) -> int:
        """Sends values; returns how many were taken: the others found no room."""
        messages: list[dict[str, Any]] = [{"value": v} for v in values]
        if self._key is not None:
            for message in messages:
                message["key"] = self._key
        taken: int = self._producer.produce_batch(self._topic, messages, on_delivery=self._reported)
        if taken == len(messages):
            self._sent += taken
            return taken
        from confluent_kafka import KafkaError

        count = 0
        for message in messages:
            failed = message.get("_error")
            if failed is None:
                count += 1
            elif failed.code() == KafkaError._QUEUE_FULL:  # noqa: SLF001 - the public name of a local error
                break
            else:  # too large: it never entered the queue
                self.returned.append(Returned(message["value"], -1, failed.str(), is_lasting=True))
                count += 1
        self._sent += taken
        return count

    def send_again(self, value: bytes, timestamp: int) -> bool:
        """Sends one record of the spool with its time; returns False when there is no room."""
        try:
            more = {"timestamp": timestamp} if timestamp >= 0 else {}
            self._producer.produce(self._topic, value, self._key, on_delivery=self._reported, **more)
        except BufferError:
            return False
        self._sent += 1
        return True

    def poll(self, timeout_s: float = 0.0) -> None:
        """Serves delivery reports, which may add to `returned`."""
        self._producer.poll(timeout_s)
        settled = self._sent - len(self._producer)
        now = time.monotonic()
        if settled - len(self.returned) > self._settled or not len(self._producer):
            self._moved_at, self._is_down = now, False
        self._settled = max(self._settled, settled - len(self.returned))

    def flush(self, timeout_s: float) -> None:
        """Sends everything that waits at once, without waiting for `linger.ms`, and serves reports."""
        self._producer.flush(timeout_s)
        self.poll()

    @property
    def is_stuck(self) -> bool:
        """True when records wait and none was delivered for a while."""
        still = time.monotonic() - self._moved_at
        return self.in_flight > 0 and still > (_DOWN_S if self._is_down else _STALLED_S)

    def take_back(self) -> None:
        """Takes all records back into `returned`. Records that a broker has but did not acknowledge may come twice."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        deadline = time.monotonic() + _TAKE_BACK_S
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.poll(0.05)

    def answers(self) -> bool:
        """Asks the broker for the topic; returns whether it answers."""
        from confluent_kafka import KafkaException

        try:
            self._producer.list_topics(self._topic, _PROBE_S)
        except KafkaException as e:
            self.why = e.args[0].str()
            return False
        self._is_down = False
        return True

    def _reported(self, error: Any, message: Any) -> None:
        if error is None:
            return
        from confluent_kafka import KafkaError

        lasting = error.code() in {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD}
        kind, at = message.timestamp()
        self.returned.append(
            Returned(message.value() or b"", at if kind else -1, self._shown(error), lasting)
        )

    def _shown(self, error: Any) -> str:
        """Returns the reason for an undelivered record. A purge itself gives none: then it is the last complaint of the client."""
        from confluent_kafka import KafkaError

        purged = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._MSG_TIMED_OUT}  # noqa: SLF001
        return self.why if self.why and error.code() in purged else error.str()

    def _on_error(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        self.why = error.str()
        if error.code() in {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE}:  # noqa: SLF001
            self._is_down = True

    def close(self) -> None:
        """Gives up the producer now. It calls back to this object: collecting that cycle in a forked child would kill the child."""
        self._producer = None

    def leave_behind(self) -> None:
        """Leaves the parent's producer alone, in a forked child: librdkafka's threads are missing there, so it cannot even be destroyed."""
        if self._producer is not None:
            import ctypes

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))
            self._producer = None
