"""Hands chunks of converted records to the producer, and follows each to its acknowledgement or error.

Records without headers go as lists. A list of records without keys goes to one partition, which changes from
chunk to chunk as in Java's sticky partitioner. A partition's records are acknowledged in order, so the
acknowledgement of a list's last record covers the list. For this, the producer's `enable.gapless.guarantee`
stops it at a refused record.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import length_hint
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from klamm.connect.child.offset_tracker import Run
from klamm.connect.child.offset_writer import RecordProducer
from klamm.connect.child.source_records import Chunk
from klamm.connect.child.tolerance import Stage, Tolerance
from klamm_plugins.errors import ConnectError, DataError
from klamm_plugins.records import RecordMetadata, SourceRecord

log = logging.getLogger(__name__)

# librdkafka's default of message.max.bytes, and the most that it adds to a message of this size.
MESSAGE_MAX: Final = 1_000_000
MESSAGE_OVERHEAD: Final = 512
# As Java's default batch.size: the partition of records without keys changes after about so many bytes.
_STICKY_BYTES: Final = 16_384
# The time for which a topic's known partitions are used (Java: metadata.max.age.ms).
_METADATA_AGE_S: Final = 300.0
_METADATA_TIMEOUT_S: Final = 5.0
_EXECUTING: Final = "org.apache.kafka.connect.runtime.WorkerSourceTask"

Delivered = Callable[[KafkaError | None, Message], None]
Told = Callable[[SourceRecord, RecordMetadata | None], None]


class Sender:
    """Sends chunks.

    `wait` is called while the producer has no room: it takes acknowledgements, and raises when the task must
    stop. `ensure_topic` is called with the topic of each chunk before the chunk is sent.
    """

    def __init__(
        self,
        producer: RecordProducer,
        *,
        tolerance: Tolerance,
        wait: Callable[[], None],
        ensure_topic: Callable[[str], None],
        sticky: bool = True,
        message_max: int = MESSAGE_MAX,
    ) -> None:
        self._producer = producer
        self._tolerance = tolerance
        self._wait = wait
        self._ensure_topic = ensure_topic
        self._partitions = StickyPartitions(producer) if sticky else None
        self._message_max = message_max - MESSAGE_OVERHEAD
        self.acked = self._left_out = 0
        self.bytes = 0  # of keys and values that were sent
        self.failure: ConnectError | None = None

    @property
    def settled(self) -> int:
        """The number of records that were acknowledged or left out."""
        return self.acked + self._left_out

    def send(self, chunk: Chunk, run: Run | None, told: Told | None = None) -> None:
        """Sends a whole chunk. Raises ConnectError for a record that the producer refuses.

        `run.pending` is counted down as records are acknowledged (None: nobody needs to know); `told` is
        called for each acknowledged record.
        """
        if not chunk.values:
            return
        self._ensure_topic(chunk.topic)
        size, largest = _sizes(chunk.values)
        if chunk.keys is not None:
            of_keys, largest_key = _sizes(chunk.keys)
            size, largest = size + of_keys, largest + largest_key
        self.bytes += size
        # Lists are for records that the client takes all, so that none has to be judged by itself.
        if told is None and chunk.headers is None and largest <= self._message_max:
            self._send_list(chunk, run)
        else:
            self._send_each(chunk, run, told)

    def _send_list(self, chunk: Chunk, run: Run | None) -> None:
        partition, count = chunk.partition, len(chunk.values)
        if chunk.keys is None and partition is None and self._partitions is not None:
            partition = self._partitions.pick(chunk.topic, chunk.values)
        place = -1 if partition is None else partition
        each = last = None
        if run is not None and partition is None:
            each = last = self._on_each(run)
        elif run is not None:
            last = self._on_last(run, count)
        self._produce_all(chunk, place, [each] * (count - 1) + [last])

    def _produce_all(self, chunk: Chunk, partition: int, callbacks: list[Delivered | None]) -> None:
        """Produces a chunk's records. `map` calls more quickly than a loop, and than `produce_batch`, which takes a dict for
        each record and knows no timestamps.
        """
        produce, topic, values = self._producer.produce, chunk.topic, list(chunk.values)
        keys: Sequence[bytes | None] = chunk.keys or [None] * len(values)
        times = chunk.timestamps or [0] * len(values)
        done = 0
        while True:
            left = iter(values[done:])
            told = callbacks[done:]
            calls = map(
                produce, repeat(topic), left, keys[done:], repeat(partition), told, told, times[done:]
            )
            try:
                deque(calls, maxlen=0)
            except BufferError:
                done = len(values) - length_hint(left) - 1
                self._wait()
            except KafkaException as e:
                number = len(values) - length_hint(left) - 1
                raise refused(
                    e.args[0], topic, _about(chunk.sent[number], keys[number], values[number])
                ) from e
            else:
                return

    def _send_each(self, chunk: Chunk, run: Run | None, told: Told | None) -> None:
        partition = -1 if chunk.partition is None else chunk.partition
        delivered = None if run is None else self._on_each(run)
        for i, value in enumerate(chunk.values):
            key = None if chunk.keys is None else chunk.keys[i]
            timestamp = 0 if chunk.timestamps is None else chunk.timestamps[i]
            headers = None if chunk.headers is None else chunk.headers[i]
            callback = delivered if told is None else self._telling(delivered, chunk.sent[i], told)
            message = (chunk.topic, value, key, partition, callback, callback, timestamp, headers)
            try:
                self._produce(message, chunk.sent, i)
            except DataError as e:
                self._leave_out(chunk.sent[i], run, told, e)

    def _produce(self, message: tuple[Any, ...], records: Sequence[SourceRecord], number: int) -> None:
        topic, value, key, *_ = message
        while True:
            try:
                self._producer.produce(*message)
            except BufferError:
                self._wait()
            except KafkaException as e:
                raise refused(e.args[0], topic, _about(records[number], key, value)) from e
            else:
                return

    def _leave_out(self, record: SourceRecord, run: Run | None, told: Told | None, error: DataError) -> None:
        """Leaves out a record that the client alone refuses, if that is tolerated; else raises.

        A refusal of the broker is different: it refuses whole batches, with good records in them.
        """
        if not self._tolerance.all:
            raise error
        self._tolerance.failed(record, error, stage=Stage.KAFKA_PRODUCE, executing=_EXECUTING)
        self._left_out += 1
        if run is not None:
            run.pending -= 1
        if told is not None:
            told(record, None)

    def _on_each(self, run: Run) -> Delivered:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                run.pending -= 1
                self.acked += 1
            else:
                self._failed(error, message)

        return delivered

    def _on_last(self, run: Run, count: int) -> Delivered:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                run.pending -= count
                self.acked += count
            else:
                self._failed(error, message)

        return delivered

    def _telling(self, delivered: Delivered | None, record: SourceRecord, told: Told) -> Delivered:
        def tell(error: KafkaError | None, message: Message) -> None:
            if delivered is not None:
                delivered(error, message)
            if error is None:
                told(record, _metadata(message))

        return tell

    def _failed(self, error: KafkaError, message: Message) -> None:
        if self.failure is None:
            self.failure = refused(error, message.topic())


class StickyPartitions:
    """The partition of the next records without keys: chosen at random, for about a batch's worth of bytes."""

    def __init__(self, producer: RecordProducer) -> None:
        self._producer = producer
        self._known: dict[str, tuple[float, list[int]]] = {}
        self._now: dict[str, tuple[int, int]] = {}  # topic -> partition, bytes that may still go there

    def pick(self, topic: str, values: Sequence[bytes | None]) -> int | None:
        """Returns the partition, or None while the topic is unknown: librdkafka then chooses."""
        partition, left = self._now.get(topic, (-1, 0))
        if left <= 0:
            choices = self._partitions(topic)
            if not choices:
                return None
            partition, left = random.choice(choices), _STICKY_BYTES
        # An estimate: all values count like the first, since an exact sum would cost more than it is worth.
        self._now[topic] = partition, left - len(values[0] or b"") * len(values)
        return partition

    def _partitions(self, topic: str) -> list[int]:
        """Returns the partitions that have a leader."""
        at, found = self._known.get(topic, (0.0, []))
        now = time.monotonic()
        if found and now - at < _METADATA_AGE_S:
            return found
        try:
            metadata = self._producer.list_topics(topic, timeout=_METADATA_TIMEOUT_S).topics[topic]
        except KafkaException as e:
            log.info("the partitions of topic %s are not known: %s", topic, e.args[0].str())
        else:
            found = [p.id for p in metadata.partitions.values() if p.leader >= 0] or found
        self._known[topic] = now, found
        return found


def _sizes(column: Sequence[bytes | None]) -> tuple[int, int]:
    """Returns the bytes of all, and those of the largest."""
    try:
        sizes = list(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        sizes = [0 if data is None else len(data) for data in column]
    return sum(sizes), max(sizes)


def _about(record: SourceRecord, key: bytes | None, value: bytes | None) -> str:
    """Returns where a record came from and its size, by which a user finds it."""
    size = len(key or b"") + len(value or b"")
    return f" of {size} bytes, source partition {record.source_partition}, offset {record.source_offset},"


def refused(error: KafkaError, topic: str | None, about: str = "") -> ConnectError:
    """Returns the task's error for a record that cannot be delivered; `about` describes the record if it is known."""
    text = f"A record{about} could not be sent to topic {topic}: {error.str()} ({error.name()})"
    too_large = (
        error.code() == KafkaError.MSG_SIZE_TOO_LARGE or "Broker: Message size too large" in error.str()
    )
    if too_large:
        text += "; larger ones need producer.override.max.request.size and the topic's max.message.bytes"
    if too_large or error.code() in {KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD}:
        return DataError(text)
    return ConnectError(text)


def refusal(error: ConnectError) -> int | None:
    """Returns the client's error code behind an error that `refused` made."""
    cause = error.__cause__
    return int(cause.args[0].code()) if isinstance(cause, KafkaException) else None


def _metadata(message: Message) -> RecordMetadata:
    _, timestamp = message.timestamp()
    return RecordMetadata(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp if timestamp >= 0 else None,
    )
