"""Batch and stream writers of `format("klamm")`: rows to records, as Spark's Kafka sink takes them.

A task reports success only after every record is acknowledged (acks=all, idempotent producer). A batch that is run
again after a crash writes its records again: delivery is at least once, as with Spark's own sink.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from klamm_base.errors import ConfigError, KlammError
from klamm_spark.datasource.options import client_config

FLUSH_S: Final = 150.0
_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
}
_producers: dict[tuple[tuple[str, str], ...], _Outlet] = {}


class NotWrittenError(KlammError):
    """Records were not acknowledged; Spark runs the task again."""


@dataclass
class Written(WriterCommitMessage):
    records: int


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises ConfigError unless rows of this schema are records."""
    types = {f.name: f.dataType for f in schema.fields}
    if "value" not in types:
        raise ConfigError(f"format klamm needs a column value; there are {', '.join(types)}", key="value")
    if topic is None and "topic" not in types:
        raise ConfigError("format klamm needs an option topic or a column topic", key="topic")
    for name, found in types.items():
        if name == "headers":
            continue
        if name not in _COLUMNS:
            raise ConfigError(
                f"column {name} has no place in a record: select key, value, topic, partition, headers",
                key=name,
            )
        if not isinstance(found, _COLUMNS[name]):
            kinds = " or ".join(t.typeName() for t in _COLUMNS[name])
            raise ConfigError(f"column {name} is {found.simpleString()}, it must be {kinds}", key=name)


class _Writing:
    def __init__(self, topic: str | None, client: dict[str, str]) -> None:
        self._topic = topic
        self._client = client

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        count = 0
        with _outlet(self._client) as outlet:
            for batch in iterator:
                outlet.send(batch, self._topic)
                count += batch.num_rows
            outlet.finish(count)
        return Written(count)


class KlammBatchWriter(_Writing, DataSourceArrowWriter):
    """`df.write.format("klamm")`."""


class KlammStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """`df.writeStream.format("klamm")`."""


class _Outlet:
    """A producer that stays open in a worker process, for one task after the other."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._producer = Producer(config | {"on_delivery": self._delivered})
        self._acknowledged = 0
        self._error: KafkaError | None = None

    def begin(self) -> None:
        self._acknowledged, self._error = 0, None

    def give_up(self) -> None:
        """What is not yet sent stays unsent: the task runs again."""
        self._producer.purge()

    def send(self, batch: pa.RecordBatch, topic: str | None) -> None:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        rows = batch.num_rows
        empty: list[Any] = [None] * rows
        topics = [topic] * rows if topic is not None else columns["topic"]
        for to, key, value, partition, headers in zip(
            topics,
            columns.get("key", empty),
            columns["value"],
            columns.get("partition", empty),
            columns.get("headers", empty),
            strict=True,
        ):
            if to is None:
                raise NotWrittenError("a row has no topic: column topic is null and option topic is not set")
            self.produce(to, key, value, partition, headers)
        self._producer.poll(0)
        if self._error is not None:
            raise KafkaException(self._error)

    def finish(self, count: int) -> None:
        """Return once all `count` records are acknowledged."""
        left = self._producer.flush(FLUSH_S)
        if self._error is not None or left or self._acknowledged != count:
            why = self._error.str() if self._error is not None else f"no answer within {FLUSH_S:.0f} s"
            raise NotWrittenError(
                f"{count - self._acknowledged} of {count} records were not acknowledged: {why}"
            )

    def produce(self, topic: str, key: Any, value: Any, partition: int | None, headers: Any) -> None:
        extra: dict[str, Any] = {}
        if partition is not None:
            extra["partition"] = partition
        if headers:
            extra["headers"] = [(h["key"], h["value"]) for h in headers]
        while True:
            try:
                self._producer.produce(topic, value, key, **extra)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._acknowledged += 1
        else:
            self._error = error


def send_records(
    client: dict[str, str], records: list[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes]]]]
) -> None:
    """Write (topic, key, value, headers) from a worker; returns once all are acknowledged. Raises NotWrittenError."""
    with _outlet(client) as outlet:
        for topic, key, value, headers in records:
            outlet.produce(topic, key, value, None, [{"key": k, "value": v} for k, v in headers])
        outlet.finish(len(records))


@contextlib.contextmanager
def _outlet(client: dict[str, str]) -> Iterator[_Outlet]:
    """The worker's producer for one task. One that failed is not used again: its error may be for good."""
    config = (
        {"linger.ms": "20", "enable.idempotence": "true"}
        | client_config(client, "producer")
        | {"acks": "all"}
    )
    key = tuple(sorted(config.items()))
    if key not in _producers:
        _producers[key] = _Outlet(config)
    outlet = _producers[key]
    outlet.begin()
    try:
        yield outlet
    except BaseException:
        del _producers[key]
        outlet.give_up()
        raise
