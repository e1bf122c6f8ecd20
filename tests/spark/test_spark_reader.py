"""The reader of `format("klamm")` without Spark around it: what it plans, and the records behind a plan."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from support import needs
from support.broker import new_name, new_topic, wait_until
from support.spark import produce

from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError
from klamm_spark.datasource.offsets import DataLossError
from klamm_spark.datasource.options import read_options

pytest.importorskip("pyspark", reason=needs.absent("pyspark", "spark"))
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from klamm_spark.datasource import fetch
from klamm_spark.datasource.consumer import RangeConsumer
from klamm_spark.datasource.reader import KlammBatchReader, KlammStreamReader

SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)


def options(broker: EmbeddedBroker, topic: str, **more: Any) -> Any:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    given |= {k.replace("__", "."): str(v) for k, v in more.items()}
    return read_options({k: v for k, v in given.items() if v != ""})


def stream(broker: EmbeddedBroker, topic: str, **more: Any) -> KlammStreamReader:
    return KlammStreamReader(options(broker, topic, **more), SCHEMA)


def rows(reader: Any, partitions: list[Any]) -> list[tuple[int, int, bytes]]:
    found = []
    for partition in partitions:
        for batch in reader.read(partition):
            data = batch.to_pydict()
            found += zip(data["partition"], data["offset"], data["value"], strict=True)
    return sorted(found)


class Query:
    """Asks a reader as Spark does; `batch` gives the records of the next batch, None when there is none."""

    def __init__(self, reader: KlammStreamReader) -> None:
        self.reader = reader
        self.at = reader.initialOffset()

    def batch(self) -> list[tuple[int, int, bytes]] | None:
        end = json.loads(json.dumps(self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())))
        if end == self.at:
            return None
        before, self.at = self.at, end
        return rows(self.reader, self.reader.partitions(before, end))


def numbers(*values: int) -> list[bytes]:
    return [str(v).encode() for v in values]


def test_a_batch_waits_for_enough_records(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 2)
    query = Query(stream(broker, topic, minOffsetsPerTrigger=6, maxOffsetsPerTrigger=8))
    assert query.batch() == [], "the first one keeps where the query began"
    produce(broker.bootstrap, topic, numbers(*range(5)))
    assert query.batch() is None
    produce(broker.bootstrap, topic, numbers(*range(5)))
    assert len(query.batch() or ()) == 8
    assert query.batch() is None, "two are left"
    impatient = Query(stream(broker, topic, minOffsetsPerTrigger=100, maxTriggerDelay="0ms"))
    impatient.batch()
    produce(broker.bootstrap, topic, numbers(1))
    assert len(impatient.batch() or ()) == 1
    now = stream(broker, topic, minOffsetsPerTrigger=100)
    now.prepareForTriggerAvailableNow()
    assert len(Query(now).batch() or ()) == 11


def test_large_ranges_are_cut_and_stay_cut(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 1)
    produce(broker.bootstrap, topic, numbers(*range(10)))
    reader = stream(broker, topic, maxRecordsPerPartition=4)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert [sum(map(len, p.ranges)) for p in reader.partitions(start, end)] == [3, 3, 4]
    changed = stream(broker, topic, minPartitions=10)
    assert [sum(map(len, p.ranges)) for p in changed.partitions(start, end)] == [3, 3, 4], (
        "the same batch again"
    )
    assert [r[2] for r in rows(reader, reader.partitions(start, end))] == numbers(*range(10))
    batch = KlammBatchReader(options(broker, topic, minPartitions=5), SCHEMA)
    assert len(batch.partitions()) == 5


def test_new_partitions_are_seen_while_a_query_runs(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm_spark.datasource.reader.KNOWN_S", 0.0)
    topic = new_topic(broker, 1)
    query = Query(stream(broker, topic))
    query.batch()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
    produce(broker.bootstrap, topic, numbers(7), partition=1)
    assert query.batch() == [(1, 0, b"7")]


def test_what_was_deleted_is_noticed_behind_what_is_known(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm_spark.datasource.reader.KNOWN_S", 600.0)
    topic = new_topic(broker, 1)
    produce(broker.bootstrap, topic, numbers(*range(4)))
    query = Query(stream(broker, topic))
    assert len(query.batch() or ()) == 4
    produce(broker.bootstrap, topic, numbers(*range(6)))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 7)])[TopicPartition(topic, 0, 7)].result(60)
    fetch._consumers.clear()  # another worker, which has not fetched them ahead
    with pytest.raises(DataLossError, match="offset 4 is gone"):  # the task: the planner does not know yet
        query.batch()
    monkeypatch.setattr("klamm_spark.datasource.reader.KNOWN_S", 0.0)
    again = stream(broker, topic)
    with pytest.raises(DataLossError, match="stands at 4, the log has 7 to 10"):
        again.latestOffset({"partitions": {topic: {"0": 4}}}, ReadAllAvailable())


def test_the_ranges_of_a_task_do_not_wait_for_each_other(broker: EmbeddedBroker) -> None:
    """A fetch of a partition without new records is held by the broker; the next partition's must not wait for it."""
    topic, held_s = new_topic(broker, 4), 1.0
    query = Query(stream(broker, topic, kafka__fetch__max__wait__ms=int(held_s * 1000)))
    query.batch()
    for number in range(4):  # the first one assigns the partitions
        for partition in range(4):
            produce(broker.bootstrap, topic, numbers(number), partition=partition)
        began = time.monotonic()
        batch = query.batch()
        took = time.monotonic() - began
        assert batch == [(p, number, str(number).encode()) for p in range(4)]
    assert took < held_s


def test_partitions_without_new_records_keep_their_place(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 3)
    query = Query(stream(broker, topic))
    query.batch()
    produce(broker.bootstrap, topic, numbers(1), partition=0)
    produce(broker.bootstrap, topic, numbers(2), partition=1)
    assert query.batch() == [(0, 0, b"1"), (1, 0, b"2")]
    produce(broker.bootstrap, topic, numbers(3), partition=1)
    assert query.batch() == [(1, 1, b"3")]
    produce(broker.bootstrap, topic, numbers(*range(10_000)), partition=2)
    assert len(query.batch() or ()) == 10_000, "alone, and behind what the other two had"
    produce(broker.bootstrap, topic, numbers(4), partition=0)
    produce(broker.bootstrap, topic, numbers(5), partition=1)
    assert query.batch() == [(0, 1, b"4"), (1, 2, b"5")]


def test_a_task_of_many_ranges_keeps_few_messages(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that come for other ranges first are fetched again when there are too many of them."""
    monkeypatch.setattr("klamm_spark.datasource.consumer.KEPT_MOST", 50)
    topic = new_topic(broker, 3)
    reader = stream(broker, topic)
    start = reader.initialOffset()
    for partition in range(3):
        produce(broker.bootstrap, topic, numbers(*range(300)), partition=partition)
    (task,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert len(task.ranges) == 3
    for _ in range(2):  # the second one begins where another worker's range would
        assert rows(reader, [task]) == sorted((p, n, str(n).encode()) for p in range(3) for n in range(300))


def test_a_task_of_many_ranges_keeps_few_bytes(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few large records are as much memory as many small ones."""
    monkeypatch.setattr("klamm_spark.datasource.consumer.KEPT_BYTES", 100_000, raising=False)
    topic = new_topic(broker, 4)
    reader = stream(broker, topic)
    start = reader.initialOffset()
    for partition in range(4):
        produce(broker.bootstrap, topic, [b"x" * 20_000] * 50, partition=partition)
    kept, take = [], RangeConsumer.take

    def watched(self: RangeConsumer, partition: tuple[str, int], most: int) -> list[Any]:
        found = take(self, partition, most)
        kept.append(sum(len(m) for p, some in self._kept.items() if p != partition for m in some))
        return found

    monkeypatch.setattr(RangeConsumer, "take", watched)
    (task,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert [row[:2] for row in rows(reader, [task])] == [(p, n) for p in range(4) for n in range(50)]
    assert max(kept) <= 100_000


def test_only_committed_records_and_a_position_behind_the_markers(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": new_name()})
    producer.init_transactions(60)
    for number in range(4):
        producer.begin_transaction()
        for i in range(3):
            producer.produce(topic, f"{number}-{i}", partition=0)
        producer.flush()
        producer.abort_transaction() if number % 2 else producer.commit_transaction()
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush()
    query = Query(stream(broker, topic, kafka__isolation__level="read_committed", maxOffsetsPerTrigger=5))
    found: list[bytes] = []
    while (batch := query.batch()) is not None:
        found += [value for _, _, value in batch]
    assert found == [f"{n}-{i}".encode() for n in (0, 2) for i in range(3)]
    assert query.at["partitions"][topic]["0"] == 16, "before the open transaction, behind the last marker"
    producer.abort_transaction()
    everything = Query(stream(broker, topic))
    assert len(everything.batch() or ()) == 13


def test_bounds_by_time(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker, 2)
    for i in range(4):
        produce(broker.bootstrap, topic, numbers(i), partition=0, timestamp=1_700_000_000_000 + i)
    with pytest.raises(
        ConfigError, match=rf"startingTimestamp: {topic}-1 has no record at or after 1700000000002"
    ):
        stream(broker, topic, startingOffsets="", startingTimestamp=1_700_000_000_002).initialOffset()
    lenient = {"startingOffsets": "", "startingOffsetsByTimestampStrategy": "latest"}
    by_time = json.dumps({topic: {"0": 1_700_000_000_001, "1": 0}})
    found = KlammBatchReader(
        options(
            broker, topic, **lenient, startingOffsetsByTimestamp=by_time, endingTimestamp=1_700_000_000_003
        ),
        SCHEMA,
    )
    assert [r[1] for r in rows(found, found.partitions())] == [1, 2]
    with pytest.raises(ConfigError, match=f"partition {topic}-1 is not named"):
        stream(
            broker, topic, startingOffsets="", startingOffsetsByTimestamp=json.dumps({topic: {"0": 5}})
        ).initialOffset()


def test_a_range_of_holes_behind_another_one_ends(broker: EmbeddedBroker) -> None:
    """The end of the log was met in the range before, and records that came meanwhile were fetched with it."""
    topic = new_topic(broker, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": new_name()})
    producer.init_transactions(60)
    reader = stream(
        broker, topic, kafka__isolation__level="read_committed", kafkaConsumer__pollTimeoutMs=30_000
    )
    at, found, expected = reader.initialOffset(), [], []
    for number in range(6):
        producer.begin_transaction()
        for i in range(4):
            producer.produce(topic, f"{number}-{i}", partition=0)
        producer.flush()
        producer.abort_transaction() if number % 3 else producer.commit_transaction()
        expected += [] if number % 3 else [f"{number}-{i}".encode() for i in range(4)]
        wait_until(lambda: reader.latestOffset(at, ReadAllAvailable()) != at, "the marker")
        while (end := reader.latestOffset(at, ReadMaxRows(2))) != at:
            found += [value for _, _, value in rows(reader, reader.partitions(at, end))]
            at = end
    assert found == expected


@pytest.mark.usefixtures("processes")
def test_a_compacted_topic(tmp_path: Path) -> None:
    """Offsets have holes where the cleaner was, also at the end of a range."""
    quick = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01"}
    with EmbeddedBroker(tmp_path / "data", config=quick) as broker:
        topic = new_topic(
            broker, 1, {"cleanup.policy": "compact", "segment.ms": "1", "max.compaction.lag.ms": "1"}
        )
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for i in range(600):
            producer.produce(topic, f"{i} {'x' * 50}", str(i % 7), partition=0)
            if i % 10 == 9:
                producer.flush()
        producer.flush()

        def read(most: int) -> list[tuple[int, int, bytes]]:
            reader = stream(broker, topic)
            at, found = reader.initialOffset(), []
            while (end := reader.latestOffset(at, ReadMaxRows(most))) != at:
                found += rows(reader, reader.partitions(at, end))
                at = end
            assert at["partitions"][topic]["0"] == 600
            return found

        def calm() -> tuple[list[tuple[int, int, bytes]], list[tuple[int, int, bytes]]] | None:
            """Returns two ways to read it, between which the cleaner has done nothing."""
            whole, steps = read(600), read(7)
            return (whole, steps) if len(whole) < 300 and whole == read(600) else None

        whole, steps = wait_until(calm, "the cleaner")
        assert {int(value.split()[0]) % 7 for _, _, value in whole} == set(range(7))
        assert whole[-1][1] == 599
        assert steps == whole
