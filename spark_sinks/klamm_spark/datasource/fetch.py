"""Reads one range of a partition in a Python worker of Spark, as Arrow batches.

A worker process serves one range after the other. Its consumers, one for each client configuration, stay
open between ranges. A range that begins where the last one ended continues with records that are already
prefetched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql.datasource import InputPartition

from klamm_spark.datasource.agent_lines import AgentLines
from klamm_spark.datasource.offsets import DataLossError, Range
from klamm_spark.datasource.options import ReadOptions, client_config
from klamm_spark.datasource.worker import settle

log = logging.getLogger(__name__)

BATCH_RECORDS: Final = 5_000
POLL_S: Final = 0.02
_ENDED: Final = KafkaError._PARTITION_EOF  # noqa: SLF001
_GONE: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001
_DEFAULTS: Final = {"fetch.wait.max.ms": "50"}
"""A range that ends in holes (every transaction ends with a marker) is finished when a fetch at the log's end
is answered.
"""
_TUNED: Final = {
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "fetch.queue.backoff.ms": "5",  # the default sleeps a second whenever the queue has been full
    "queued.max.messages.kbytes": "32768",
    # Another worker often reads this partition's next range. Records that this worker prefetched are then wasted.
    "queued.min.messages": "5000",
    "log_level": "2",  # errors come as events; one that waits for its next range would tell of a broker that is away for ever
}
Message = Any
"""confluent_kafka.Message. By its types the offset may be None, but a record from a broker always has one."""
_consumers: dict[tuple[tuple[str, str], ...], OneConsumer] = {}


class RangePartition(InputPartition):
    """One task's ranges, pickled to the worker under Spark's interface."""

    def __init__(self, value: list[Range]) -> None:
        super().__init__(value)
        self.ranges = value


class OneConsumer:
    """A consumer with one partition assigned at a time."""

    def __init__(self, config: dict[str, str]) -> None:
        self._consumer = Consumer(config)
        self._at: tuple[str, int, int] | None = None
        self._kept: list[Message] = []
        self._ended_at = -1

    def go_to(self, topic: str, partition: int, offset: int) -> None:
        """Delivers from `offset` on. This is free when the last range ended there."""
        if self._at == (topic, partition, offset):
            return
        self._kept = []
        self._ended_at = -1
        self._at = (topic, partition, offset)
        self._consumer.assign([TopicPartition(topic, partition, offset)])

    def take(self, most: int) -> list[Message]:
        """Returns up to `most` messages and events; after a short wait, those that there are."""
        if self._kept:
            taken, self._kept = self._kept[:most], self._kept[most:]
            return taken
        return list(self._consumer.consume(most, POLL_S))

    def nothing_before(self, offset: int) -> bool:
        """Returns True when no record is left before `offset`. The log's end is reported once, so a later range of
        holes must remember it.
        """
        return not self._kept and offset <= self._ended_at

    def ended(self, offset: int) -> None:
        """Notes the log's end: everything before it was delivered."""
        self._ended_at = offset

    def stands_at(self, topic: str, partition: int, offset: int, unused: list[Message]) -> None:
        """Notes the position after a range. The next range returns messages that were taken too far."""
        self._at = (topic, partition, offset)
        self._kept = unused + self._kept

    def lost_its_place(self) -> None:
        self._at = None

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        return int(low), int(high)


def read_range(what: Range, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields all records of the range. Raises DataLossError, or, with failOnDataLoss=false, continues after the gap."""
    settle()
    consumer = _consumer(options)
    cutter = AgentLines(options.line_id) if options.agent_lines else None
    position = what.start
    consumer.go_to(what.topic, what.partition, position)
    unused: list[Message] = []
    try:
        deadline = time.monotonic() + options.poll_timeout_s
        while position < what.end and not consumer.nothing_before(what.end):
            messages, position, unused = _step(consumer, what, position, options)
            if messages:
                deadline = time.monotonic() + options.poll_timeout_s
                yield arrow_batch(messages, schema, cutter)
            elif time.monotonic() > deadline and position < what.end:
                raise TimeoutError(
                    f"{what}: no record since offset {position} for {options.poll_timeout_s:.0f} s "
                    "(kafkaConsumer.pollTimeoutMs)"
                )
    except BaseException:
        consumer.lost_its_place()
        raise
    consumer.stands_at(what.topic, what.partition, position, unused)


def _consumer(options: ReadOptions) -> OneConsumer:
    # The consumer never joins the group: partitions are assigned, nothing is committed. Authorizers may check its
    # name.
    config = _DEFAULTS | client_config(options.client, "consumer") | _TUNED | {"group.id": options.group}
    key = tuple(sorted(config.items()))
    if key not in _consumers:
        _consumers[key] = OneConsumer(config)
    return _consumers[key]


def _step(
    consumer: OneConsumer, what: Range, position: int, options: ReadOptions
) -> tuple[list[Message], int, list[Message]]:
    """Returns messages of the range, the new position, and messages after the range's end.

    Offsets have holes (compaction, transaction markers). So the range ends with its last offset, with a message
    after it, or when the log has no more.
    """
    taken = consumer.take(min(BATCH_RECORDS, what.end - position))
    events = [i for i, m in enumerate(taken) if m.error() is not None]
    if not events and taken and taken[-1].offset() < what.end:
        return taken, taken[-1].offset() + 1, []
    messages: list[Message] = []
    for i, m in enumerate(taken):
        error = m.error()
        if error is None:
            if m.offset() >= what.end:
                return messages, what.end, taken[i:]
            messages.append(m)
            position = m.offset() + 1
        elif error.code() == _ENDED:
            consumer.ended(m.offset())
            if m.offset() >= what.end:
                return messages, what.end, taken[i + 1 :]
        else:
            position = _after(error, consumer, what, position, options)
    return messages, position, []


def _after(error: KafkaError, consumer: OneConsumer, what: Range, position: int, options: ReadOptions) -> int:
    """Handles an event: continues (librdkafka tries again), continues after a gap, or fails. Returns the new position."""
    if error.code() in _GONE:
        low, high = consumer.bounds(what.topic, what.partition)
        said = f"{what}: offset {position} is gone, the log has {low} to {high}"
        if options.fail_on_data_loss:
            raise DataLossError(
                f"{said} (deleted by retention, or the topic was recreated); with failOnDataLoss=false it is skipped"
            )
        if not position < low:
            log.warning("%s; the rest of the range is skipped", said)
            return what.end
        log.warning("%s; %d offsets are skipped", said, min(low, what.end) - position)
        consumer.go_to(what.topic, what.partition, low)
        return min(low, what.end)
    if error.fatal() or not (error.retriable() or error.code() < 0):
        raise KafkaException(error)
    log.warning("%s: %s", what, error.str())
    return position


def arrow_batch(
    messages: list[Message], schema: pa.Schema, cutter: AgentLines | None = None
) -> pa.RecordBatch:
    """Makes the columns of Spark's Kafka source from lists, one column at a time: no call per field of a row."""
    stamps = [m.timestamp() for m in messages]
    values: Sequence[bytes | None] = [m.value() for m in messages]
    lines: list[pa.Array] = []
    if cutter is not None:
        values, lines = cutter.columns(values)
    columns: list[Any] = [
        pa.array([m.key() for m in messages], pa.binary()),
        pa.array(values, pa.binary()),
        pa.DictionaryArray.from_arrays(
            pa.repeat(pa.scalar(0, pa.int32()), len(messages)), pa.array([messages[0].topic()])
        ).cast(pa.string()),
        pa.repeat(pa.scalar(messages[0].partition(), pa.int32()), len(messages)),
        pa.array([m.offset() for m in messages], pa.int64()),
        pa.array([ms for _, ms in stamps], pa.timestamp("ms")).cast(schema.field("timestamp").type),
        # librdkafka numbers from 0 for "not available", Kafka from 0 for CreateTime.
        pa.array([max(0, kind - 1) for kind, _ in stamps], pa.int32()),
        *lines,
    ]
    if len(schema) > len(columns):
        columns.append(_headers(messages, schema.field("headers").type))
    return pa.RecordBatch.from_arrays(
        [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)],
        schema=schema,
    )


def _headers(messages: list[Message], type: pa.DataType) -> pa.Array:
    rows = [[{"key": k, "value": v} for k, v in found] if (found := m.headers()) else None for m in messages]
    return pa.array(rows, type)
