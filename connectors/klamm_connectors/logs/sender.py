"""Delivers batches of record values and says when a whole batch is acknowledged. The memory bound is here.

Every record has a delivery report, counted per batch. Records that came back undelivered are kept and sent again: the
agent drops none by itself, except one that is too large for the topic, which would block all behind it: those are
handed to `refused`. A broker refuses a whole batch of the protocol as too large, with the small records in it: its
records are sent again one by one before any of them is given up. One thread; reports are served by `poll`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from klamm_base.errors import ConfigError
from klamm_connectors.logs.blocks import messages

log = logging.getLogger(__name__)

_RECORD_COST: Final = 256  # bytes librdkafka and the binding keep for a record besides its value
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 15.0
_SAID_AGAIN_S: Final = 60.0  # the same trouble is logged at most this often
_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_DEFAULTS: Final = {
    "enable.idempotence": True,
    "acks": "all",
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "message.timeout.ms": 0,  # for ever: the file keeps what memory does not
    "topic.metadata.propagation.max.ms": 5_000,
    "sticky.partitioning.linger.ms": 20,
    "reconnect.backoff.max.ms": 2_000,
}


class _Sparingly(logging.Filter):
    """librdkafka tells of every connection that fails, several a second while a broker is away: one a minute is said."""

    said_at = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.getMessage().startswith("FAIL"):
            return True
        now = time.monotonic()
        if now - self.said_at < _SAID_AGAIN_S:
            return False
        self.said_at = now
        return True


class Origin(NamedTuple):
    """The block that a batch's records came from."""

    path: str
    inode: tuple[int, int]
    start: int
    end: int


class Batch:
    """Records of one block of one file: in flight until `left` is 0."""

    __slots__ = ("_sender", "alone", "cost", "count", "failed", "key", "left", "origin", "topic")

    def __init__(
        self, sender: Sender, topic: str, *, key: bytes | None, origin: Origin, left: int, cost: int
    ) -> None:
        self._sender, self.topic, self.key, self.origin = sender, topic, key, origin
        self.left, self.count, self.cost = left, left, cost
        self.failed: list[bytes] = []
        self.alone = False  # its records are sent again one by one

    @property
    def done(self) -> bool:
        return not self.left and not self.failed

    def report(self, error: Any, message: Any) -> None:
        """The delivery report of one record."""
        self._reported(error, message, alone=False)

    def report_alone(self, error: Any, message: Any) -> None:
        """The same for one that was sent by itself: if it is too large, it is this one that is."""
        self._reported(error, message, alone=True)

    def _reported(self, error: Any, message: Any, *, alone: bool) -> None:
        self.left -= 1
        if error is not None:
            self._sender.undelivered(self, error, message.value() or b"", alone=alone)
        if not self.left and not self.failed:
            self._sender.settled(self)


class _Trouble:
    """A topic that did not take records: `waiting` are to be sent again, `resent` are on their way a second time."""

    def __init__(self) -> None:
        self.waiting: dict[Batch, None] = {}
        self.resent: list[Batch] = []
        self.pause, self.again_at, self.why = 0.0, 0.0, ""


class Sender:
    """`queue_bytes` bounds what is in flight, records' overhead included; each topic has an equal share.

    A topic may exceed its share by one block, all together twice `queue_bytes`.
    """

    def __init__(
        self, config: dict[str, Any], queue_bytes: int, topics: int, refused: Callable[[Batch, int], None]
    ) -> None:
        self._config = {**_DEFAULTS, **config}
        client_log = logging.getLogger("klamm.librdkafka.agent")
        if not client_log.filters:
            client_log.addFilter(_Sparingly())
        self._config |= {
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 2_147_483_647,  # the bound is `has_room`
            "error_cb": self._on_error,
            "logger": client_log,
        }
        self._share = max(1, queue_bytes // max(1, topics))
        self._most = 2 * queue_bytes
        self._flying: dict[str, int] = {}
        self._total = 0
        self._trouble: dict[str, _Trouble] = {}
        self._refused = refused
        self._said: dict[str, float] = {}
        self._fatal = ""
        self.brokers_away = False
        self.acked = 0  # records
        self._producer = self._open({})
        self._one_by_one: Producer | None = None

    def _open(self, more: dict[str, Any]) -> Producer:
        try:
            return Producer(self._config | more)
        except KafkaException as e:
            raise ConfigError(f"[producer]: {e.args[0].str()}") from None
        except (TypeError, ValueError) as e:  # of the binding, for settings that it takes itself
            raise ConfigError(f"[producer]: {e}") from None

    def has_room(self, topic: str) -> bool:
        if topic in self._trouble or self._total >= self._most:
            return False
        return self._flying.get(topic, 0) < self._share

    @property
    def waits(self) -> bool:
        """Something is not acknowledged yet."""
        return self._total > 0

    @property
    def troubles(self) -> dict[str, str]:
        """Topics that take nothing now, with the reason."""
        return {topic: t.why for topic, t in self._trouble.items()}

    def send(self, topic: str, values: list[bytes], size: int, key: bytes | None, origin: Origin) -> Batch:
        """Enqueue `values` of `size` bytes together."""
        cost = size + _RECORD_COST * len(values)
        batch = Batch(self, topic, key=key, origin=origin, left=len(values), cost=cost)
        self._flying[topic] = self._flying.get(topic, 0) + batch.cost
        self._total += batch.cost
        self._enqueue(batch, values)
        return batch

    def _enqueue(self, batch: Batch, values: list[bytes]) -> None:
        records = messages(values, batch.key)
        if batch.alone:
            taken = self._single().produce_batch(batch.topic, records, on_delivery=batch.report_alone)
        else:
            taken = self._producer.produce_batch(batch.topic, records, on_delivery=batch.report)
        if taken == len(records):
            return
        for record in records:
            error = record.get("_error")
            if error is not None:
                batch.left -= 1
                # The client looks at each record by itself: here it is this one that is too large
                self.undelivered(batch, error, record["value"], alone=True)
        if not batch.left and not batch.failed:
            self.settled(batch)

    def _single(self) -> Producer:
        if self._one_by_one is None:
            self._one_by_one = self._open({"batch.num.messages": 1, "linger.ms": 0})
        return self._one_by_one

    def undelivered(self, batch: Batch, error: Any, value: bytes, *, alone: bool) -> None:
        """Keep a record that came back; `alone` says that the error is about this record and no other."""
        too_large = error.code() in _TOO_LARGE
        if too_large and alone:
            batch.count -= 1
            self._refused(batch, len(value))
            return
        batch.failed.append(value)
        trouble = self._trouble.setdefault(batch.topic, _Trouble())
        now = time.monotonic()
        if too_large:
            batch.alone = True
            trouble.again_at = now
        elif not trouble.waiting:
            trouble.pause = min(max(_FIRST_PAUSE_S, trouble.pause * 2), _LONGEST_PAUSE_S)
            trouble.again_at = now + trouble.pause
        trouble.waiting[batch] = None
        trouble.why = error.str()
        if self._fatal:
            return
        if too_large:
            self._say_sparingly(
                f"topic {batch.topic} refuses a batch as too large: its records are sent again one by one, which "
                "is slow; set batch.size in [producer] below the topic's max.message.bytes"
            )
        else:
            self._say_sparingly(
                f"topic {batch.topic} takes no records: {trouble.why}; they are kept and sent again"
            )

    def _say_sparingly(self, what: str) -> None:
        now = time.monotonic()
        if now - self._said.get(what, float("-inf")) >= _SAID_AGAIN_S:
            self._said = {w: at for w, at in self._said.items() if now - at < _SAID_AGAIN_S} | {what: now}
            log.warning("%s", what)

    def settled(self, batch: Batch) -> None:
        self._flying[batch.topic] -= batch.cost
        self._total -= batch.cost
        self.acked += batch.count

    def poll(self, timeout_s: float) -> None:
        """Serve delivery reports, waiting up to `timeout_s` for one; send again what is due."""
        acked = self.acked
        single = self._one_by_one
        if single is not None and len(single):  # nothing else of its topic is in flight: waited for instead
            single.poll(timeout_s)
            timeout_s = 0
        self._producer.poll(timeout_s)
        if self.brokers_away and self.acked != acked:
            self.brokers_away = False
            log.info("the broker answers again")
        if self._fatal:
            self._begin_again()
        if self._trouble:
            self._retry(time.monotonic())

    def _retry(self, now: float) -> None:
        for topic, trouble in list(self._trouble.items()):
            if trouble.waiting and now >= trouble.again_at:
                batches, trouble.waiting = list(trouble.waiting), {}
                trouble.resent += batches
                for batch in batches:
                    values, batch.failed = batch.failed, []
                    batch.left += len(values)
                    self._enqueue(batch, values)
            trouble.resent = [b for b in trouble.resent if not b.done]
            if not trouble.waiting and not trouble.resent:
                if trouble.pause:
                    log.info("topic %s takes records again", topic)
                del self._trouble[topic]

    def _on_error(self, error: Any) -> None:
        """Of the client as a whole; librdkafka goes on by itself unless it is fatal."""
        if error.fatal():
            self._fatal = error.str()
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - the public name of a local error
            self.brokers_away = True
            self._say_sparingly("no broker answers; reading stops when the queue is full")
        elif error.code() == KafkaError._AUTHENTICATION:  # noqa: SLF001
            self._say_sparingly(f"the broker does not let this agent in: {error.str()}")

    def _begin_again(self) -> None:
        """A producer that failed for good gives back what it had; a new one sends it."""
        log.error("the producer failed (%s): beginning again with a new one", self._fatal)
        for producer in (self._producer, self._one_by_one):
            if producer is not None:
                producer.purge(in_queue=True, in_flight=True, blocking=True)
                producer.flush(5.0)
        self._fatal = ""
        self._producer, self._one_by_one = self._open({}), None

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything is acknowledged, at most `timeout_s`; whether it is."""
        deadline = time.monotonic() + timeout_s
        while self.waits and time.monotonic() < deadline:
            self.poll(0.05)
        return not self.waits
