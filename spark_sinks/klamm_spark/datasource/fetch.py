"""Reads the ranges of a task in a Python worker of Spark, as Arrow batches.

A worker process serves one task after the other. Its consumers (`consumer`), one for each client configuration, stay
open between tasks. A range that begins where the last one ended continues with records that are already
prefetched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from pyspark.sql.datasource import InputPartition

from klamm_spark.datasource.agent_lines import AgentLines
from klamm_spark.datasource.consumer import BATCH_RECORDS, Message, RangeConsumer
from klamm_spark.datasource.offsets import DataLossError, Range
from klamm_spark.datasource.options import ReadOptions, client_config
from klamm_spark.datasource.worker import settle

log = logging.getLogger(__name__)

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
_consumers: dict[tuple[tuple[str, str], ...], RangeConsumer] = {}


class RangePartition(InputPartition):
    """One task's ranges, pickled to the worker under Spark's interface."""

    def __init__(self, value: list[Range]) -> None:
        super().__init__(value)
        self.ranges = value


def read_ranges(ranges: Sequence[Range], options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields all records of a task's ranges. Raises DataLossError, or, with failOnDataLoss=false, continues after the gap."""
    settle()
    consumer = _consumer(options)
    cutter = AgentLines(options.line_id) if options.agent_lines else None
    try:
        consumer.begin(ranges)
        for what in ranges:
            for messages in _read_range(consumer, what, options):
                yield arrow_batch(messages, schema, cutter)
    except BaseException:
        consumer.lost_its_place()
        raise


def _read_range(consumer: RangeConsumer, what: Range, options: ReadOptions) -> Iterator[list[Message]]:
    partition, position = (what.topic, what.partition), what.start
    consumer.go_to(partition, position)
    unused: list[Message] = []
    deadline = time.monotonic() + options.poll_timeout_s
    while position < what.end and not consumer.nothing_before(partition, what.end):
        messages, position, unused = _step(consumer, what, position, options)
        if messages:
            deadline = time.monotonic() + options.poll_timeout_s
            yield messages
        elif time.monotonic() > deadline and position < what.end:
            raise TimeoutError(
                f"{what}: no record since offset {position} for {options.poll_timeout_s:.0f} s "
                "(kafkaConsumer.pollTimeoutMs)"
            )
    consumer.stands_at(partition, position, unused)


def _consumer(options: ReadOptions) -> RangeConsumer:
    # The consumer never joins the group: partitions are assigned, nothing is committed. Authorizers may check its
    # name.
    config = _DEFAULTS | client_config(options.client, "consumer") | _TUNED | {"group.id": options.group}
    key = tuple(sorted(config.items()))
    if key not in _consumers:
        _consumers[key] = RangeConsumer(config)
    return _consumers[key]


def _step(
    consumer: RangeConsumer, what: Range, position: int, options: ReadOptions
) -> tuple[list[Message], int, list[Message]]:
    """Returns messages of the range, the new position, and messages after the range's end.

    Offsets have holes (compaction, transaction markers). So the range ends with its last offset, with a message
    after it, or when the log has no more.
    """
    partition = (what.topic, what.partition)
    taken = consumer.take(partition, min(BATCH_RECORDS, what.end - position))
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
            consumer.ended(partition, m.offset())
            if m.offset() >= what.end:
                return messages, what.end, taken[i + 1 :]
        else:
            position = _after(error, consumer, what, position, options)
    return messages, position, []


def _after(
    error: KafkaError, consumer: RangeConsumer, what: Range, position: int, options: ReadOptions
) -> int:
    """Handles an event: continues (librdkafka tries again), continues after a gap, or fails. Returns the new position."""
    if error.code() in _GONE:
        partition = (what.topic, what.partition)
        low, high = consumer.bounds(partition)
        said = f"{what}: offset {position} is gone, the log has {low} to {high}"
        if options.fail_on_data_loss:
            raise DataLossError(
                f"{said} (deleted by retention, or the topic was recreated); with failOnDataLoss=false it is skipped"
            )
        if not position < low:
            log.warning("%s; the rest of the range is skipped", said)
            return what.end
        log.warning("%s; %d offsets are skipped", said, min(low, what.end) - position)
        consumer.go_to(partition, low)
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
