"""Batch and stream writers of `format("klamm")`: rows to records, as Spark's Kafka sink takes them.

A task reports success only after every record is acknowledged (acks=all, idempotent producer). A batch that
runs again after a crash writes its records again: delivery is at least once, as with Spark's own sink. With
deliveryGuarantee=exactly-once each task is a transaction, see `exactly_once`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from klamm_base.errors import ConfigError
from klamm_spark.datasource.exactly_once import Turn, check_slots
from klamm_spark.datasource.options import WriteOptions, client_config
from klamm_spark.datasource.outlet import NotWrittenError, Outlet
from klamm_spark.datasource.transaction import Markers, Transaction
from klamm_spark.datasource.worker import settle

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Properties that Spark gives the tasks of a streaming query."""
_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
}
_producers: dict[tuple[tuple[str, str], ...], Outlet] = {}
_looked_at: set[tuple[str, str]] = set()


@dataclass
class Written(WriterCommitMessage):
    """A task's message to the driver. `skipped`: an earlier attempt had written the records."""

    records: int
    skipped: bool = False
    application: str = ""
    run: str = ""


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
    """The work of both writers in a worker. It is pickled, so it holds settings only."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        turn = self._turn()
        if turn is not None:
            o = self._options
            assert o.marker_topic is not None
            transaction = Transaction(turn, o.client, o.marker_topic, o.figures)
            done = transaction.write(iterator, o.topic)
            return Written(done.rows, done.skipped, turn.application, turn.run)
        count = 0
        with _outlet(self._options.client, self._options.figures) as outlet:
            for batch in iterator:
                outlet.send(batch, self._options.topic)
                count += batch.num_rows
            outlet.finish(count)
        return Written(count)

    def _turn(self) -> Turn | None:
        """Identifies this task and batch; None where it does not matter."""
        raise NotImplementedError

    def _check_slots(self, application: str, version: int, slots: int) -> None:
        """Checks, in the driver, that the batch did not run before with more tasks. Raises NotReproducibleError."""
        o = self._options
        assert o.marker_topic is not None
        beyond = Markers(o.client, o.marker_topic).of(o.prefix, application, first=slots)
        check_slots(beyond, version, slots)


class KlammBatchWriter(_Writing, DataSourceArrowWriter):
    """The writer of `df.write.format("klamm")`. Exactly once as txnVersion of txnAppId."""

    def __init__(self, options: WriteOptions) -> None:
        super().__init__(options)
        if options.exactly_once and options.application is None:
            raise ConfigError(
                "deliveryGuarantee=exactly-once for a batch needs txnAppId and txnVersion (in foreachBatch: a name of this "
                "write, and the batch number): what was written under them is not written again",
                key="txnAppId",
            )

    def _turn(self) -> Turn | None:
        o = self._options
        if not o.exactly_once or o.application is None or o.version is None:
            return None
        return Turn(prefix=o.prefix, application=o.application, version=o.version, slot=_task().partitionId())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Checks every time, because Spark commits a batch in a new process, which does not know what ran before it."""
        o = self._options
        if o.exactly_once and o.application is not None and o.version is not None:
            self._check_slots(o.application, o.version, len(messages))


class KlammStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("klamm")`. Exactly once as batch of the query, whose id is in its
    checkpoint.
    """

    def __init__(self, options: WriteOptions) -> None:
        super().__init__(options)
        if options.application is not None:
            raise ConfigError(
                "txnAppId and txnVersion are for batches (foreachBatch); a stream has its query's id and batch numbers",
                key="txnAppId",
            )

    def _turn(self) -> Turn | None:
        if not self._options.exactly_once:
            return None
        task = _task()
        query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise NotWrittenError(
                f"this Spark does not tell its tasks {QUERY_ID} and {BATCH_ID}: exactly-once is not possible"
            )
        return Turn(
            prefix=self._options.prefix,
            application=query,
            version=int(batch),
            slot=task.partitionId(),
            run=task.getLocalProperty("spark.jobGroup.id") or "",
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Checks, in the driver, the first batch of a run: it may have run before with more tasks."""
        done = [m for m in messages if isinstance(m, Written) and m.application]
        if not done or (done[0].application, done[0].run) in _looked_at:
            return
        self._check_slots(done[0].application, batchId, len(messages))
        _looked_at.clear()
        _looked_at.add((done[0].application, done[0].run))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "write is called in a task"
    return task


def send_records(
    client: Mapping[str, str], records: list[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes]]]]
) -> None:
    """Writes (topic, key, value, headers) from a worker. Returns once all are acknowledged. Raises NotWrittenError."""
    with _outlet(client) as outlet:
        for topic, key, value, headers in records:
            outlet.produce(topic, key, value, None, [{"key": k, "value": v} for k, v in headers])
        outlet.finish(len(records))


@contextlib.contextmanager
def _outlet(client: Mapping[str, str], place: str | None = None) -> Iterator[Outlet]:
    """Yields the worker's producer, which serves one task after the other. After a failure it is replaced: the
    error may be permanent.
    """
    config = (
        {"linger.ms": "20", "enable.idempotence": "true"}
        | client_config(client, "producer")
        | {"acks": "all"}
    )
    key = tuple(sorted(config.items()))
    if key not in _producers:
        _producers[key] = Outlet(config)
    outlet = _producers[key]
    outlet.begin(place)
    try:
        yield outlet
    except BaseException:
        del _producers[key]
        outlet.give_up()
        raise
