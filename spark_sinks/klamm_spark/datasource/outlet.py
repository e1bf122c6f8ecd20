"""Writes rows of Arrow batches to a producer in a Python worker, and collects the results.

There is one `Outlet` per producer; a task begins it, sends, and finishes it. Not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from klamm_base.errors import KlammError
from klamm_spark import figures

FLUSH_S: Final = 150.0


_FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}  # noqa: SLF001
)


class NotWrittenError(KlammError):
    """Records were not acknowledged. Spark runs the task again."""


class Outlet:
    """A producer and the errors that it reported since `begin`."""

    def __init__(self, config: dict[str, Any]) -> None:
        # A transaction needs no reports of failed records, because it then cannot be committed. Without delivery
        # reports, a fatal error (somebody took the transactional id over) meets no callback; confluent_kafka does not
        # always survive that.
        reports = {"on_delivery": self._delivered, "delivery.report.only.error": True}
        self.producer = Producer(config if "transactional.id" in config else config | reports)
        self._failed = 0
        self._error: KafkaError | None = None
        self._place: str | None = None
        self._waits = f"{config.get('bootstrap.servers', 'the brokers')}: records are not acknowledged yet"

    def begin(self, place: str | None = None) -> None:
        """Starts a task. `place`: where `figures` reports what is waited for."""
        self._failed, self._error, self._place = 0, None, figures.base(place)

    def waiting(self) -> AbstractContextManager[None]:
        """Wraps whatever waits for the brokers."""
        return figures.while_waiting(self._place, self._waits)

    def give_up(self) -> None:
        """Drops unsent records: the task runs again."""
        self.producer.purge()

    def send(self, batch: pa.RecordBatch, topic: str | None) -> None:
        """Sends the rows. Raises NotWrittenError for a row without topic, KafkaException once a record has failed."""
        try:
            self._send(batch, topic)
        except KafkaException as e:
            if e.args[0].code() == KafkaError._FATAL:  # noqa: SLF001
                self._poll(0)  # raises what it was
            raise

    def _send(self, batch: pa.RecordBatch, topic: str | None) -> None:
        names = batch.schema.names
        if topic is None and batch.column("topic").null_count:
            raise NotWrittenError("a row has no topic: column topic is null and option topic is not set")
        columns = {name: batch.column(name).to_pylist() for name in names if name != "topic" or topic is None}
        topics = repeat(topic) if topic is not None else columns["topic"]
        keys = columns.get("key") or repeat(None)
        if "partition" in columns or "headers" in columns:
            more = columns.get("partition") or repeat(None), columns.get("headers") or repeat(None)
            for to, key, value, partition, headers in zip(
                topics, keys, columns["value"], *more, strict=False
            ):
                self.produce(to, key, value, partition, headers)
        else:
            self._produce_all(zip(topics, columns["value"], keys, strict=False))
        self._poll(0)
        if self._error is not None:
            raise KafkaException(self._error)

    def _produce_all(self, rows: Iterator[tuple[Any, Any, Any]]) -> None:
        """Produces all rows: the hot path. confluent_kafka's produce_batch is no faster, and (2.16) puts all into one
        partition.
        """
        produce = self.producer.produce
        while True:
            row: tuple[Any, Any, Any] | None = None
            try:
                for row in rows:
                    produce(*row)
                return
            except BufferError:
                assert row is not None
                self.produce(*(row[0], row[2], row[1]), None, None)

    def produce(self, topic: str, key: Any, value: Any, partition: int | None, headers: Any) -> None:
        """Produces one record. Waits while the producer's queue is full; raises NotWrittenError when that lasts."""
        extra: dict[str, Any] = {}
        if partition is not None:
            extra["partition"] = partition
        if headers:
            extra["headers"] = [(h["key"], h["value"]) for h in headers]
        try:
            self.producer.produce(topic, value, key, **extra)
        except BufferError:
            with self.waiting():
                self._produce_when_there_is_room(topic, key, value, extra)

    def _produce_when_there_is_room(self, topic: str, key: Any, value: Any, extra: dict[str, Any]) -> None:
        deadline = time.monotonic() + FLUSH_S
        while True:
            self._poll(0.1)
            try:
                self.producer.produce(topic, value, key, **extra)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise NotWrittenError(f"the producer's queue has been full for {FLUSH_S:.0f} s") from None

    def finish(self, count: int) -> None:
        """Waits until all `count` records are acknowledged. Raises NotWrittenError."""
        with self.waiting():
            left = _unmasked(lambda: self.producer.flush(FLUSH_S))
        if self._error is not None or left:
            why = said(self._error) if self._error is not None else f"no answer within {FLUSH_S:.0f} s"
            raise NotWrittenError(f"{left + self._failed} of {count} records were not acknowledged: {why}")

    def _poll(self, seconds: float) -> None:
        _unmasked(lambda: self.producer.poll(seconds))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed += 1
            if (
                self._error is None or not self._error.fatal()
            ):  # what follows from a fatal error is not the reason
                self._error = error


def _unmasked(call: Callable[[], int]) -> int:
    """Calls poll or flush and unmasks a fatal error, which confluent_kafka raises as SystemError beside a delivery
    report.
    """
    try:
        return call()
    except SystemError as e:
        if isinstance(e.__cause__, KafkaException):
            raise e.__cause__ from None
        raise


def said(error: KafkaError) -> str:
    """Returns the error in words; for a producer that was locked out, it says by whom."""
    if error.code() in _FENCED:
        return f"another attempt of this task has taken over its transactional id ({error.str()})"
    return str(error.str())


def size_of(batch: pa.RecordBatch) -> int:
    """Returns the bytes of keys and values."""
    total = 0
    for name in ("key", "value"):
        if name in batch.schema.names:
            column = batch.column(name)
            total += pc.sum(pc.binary_length(column)).as_py() or 0
    return total
