"""`format("klamm")` in a real session on a real broker."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from support.broker import new_name, new_topic, wait_decided, wait_until
from support.kafka_broker import KafkaBroker
from support.spark import produce, read_to_end, to_the_end

from klamm.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.usefixtures("apache_spark"), pytest.mark.timeout(900)]


class Topic:
    """A topic, and readers of it."""

    def __init__(self, broker: EmbeddedBroker, spark: SparkSession, partitions: int, **config: str) -> None:
        self.bootstrap, self._spark = broker.bootstrap, spark
        names = {k.replace("_", "."): v for k, v in config.items()}
        self.name = new_topic(broker, partitions, names)

    def options(self, **more: Any) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.name,
            **{k.replace("__", "."): str(v) for k, v in more.items()},
        }

    def batch(self, **more: Any) -> DataFrame:
        return self._spark.read.format("klamm").options(**self.options(**more)).load()

    def stream(self, **more: Any) -> DataFrame:
        options = self.options(startingOffsets="earliest", **more)
        return self._spark.readStream.format("klamm").options(**options).load()

    def produce(self, values: Any, **more: Any) -> None:
        produce(self.bootstrap, self.name, values, **more)

    def records(self) -> list[tuple[int, int, bytes]]:
        """Returns what a plain consumer reads: (partition, offset, value)."""
        found = read_to_end(self.bootstrap, self.name, **{"auto.offset.reset": "earliest"})
        return sorted((m.partition(), m.offset(), m.value()) for m in found)


@pytest.fixture
def topic(broker: EmbeddedBroker, spark: SparkSession) -> Callable[..., Topic]:
    return lambda partitions=1, **config: Topic(broker, spark, partitions, **config)


def rows(frame: DataFrame) -> list[tuple[int, int, bytes]]:
    return sorted((r["partition"], r["offset"], bytes(r["value"])) for r in frame.collect())


@pytest.fixture
def to_files(spark: SparkSession, tmp_path: Path) -> Callable[..., Any]:
    """Runs a stream to what is there now, into Parquet files; the query, and what the files hold."""

    def run(frame: DataFrame, name: str = "q") -> tuple[Any, list[tuple[int, int, bytes]]]:
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / name / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / name / "cp"))
        query = to_the_end(writer.trigger(availableNow=True).start)
        return query, rows(spark.read.parquet(str(tmp_path / name / "out")))

    return run


def test_a_batch_reads_what_is_in_the_topic(topic: Callable[..., Topic]) -> None:
    t = topic(3)
    t.produce(
        ({"n": i} for i in range(2000)), headers=[("h", b"x"), ("empty", None)], timestamp=1_700_000_000_123
    )
    found = t.batch(includeHeaders="true", minPartitions=5).collect()
    assert sorted((r["partition"], r["offset"], bytes(r["value"])) for r in found) == t.records()
    assert len({r["key"] for r in found}) == 2000
    assert found[0]["timestamp"].timestamp() == 1_700_000_000.123
    assert (found[0]["topic"], found[0]["timestampType"]) == (t.name, 0)
    assert [(h["key"], h["value"]) for h in found[0]["headers"]] == [("h", b"x"), ("empty", None)]


def test_bounds_of_a_batch(topic: Callable[..., Topic]) -> None:
    t = topic(2)
    for i in range(20):
        t.produce([{"n": i}], partition=i % 2, timestamp=1_700_000_000_000 + i * 1000)
    offsets = json.dumps({t.name: {"0": 2, "1": -2}}), json.dumps({t.name: {"0": -1, "1": 3}})
    found = rows(t.batch(startingOffsets=offsets[0], endingOffsets=offsets[1]))
    assert [f[:2] for f in found] == [(0, o) for o in range(2, 10)] + [(1, o) for o in range(3)]
    later = rows(t.batch(startingTimestamp=1_700_000_000_000 + 15_000))
    assert [f[:2] for f in later] == [(0, 8), (0, 9), (1, 7), (1, 8), (1, 9)]
    assigned = t.batch(subscribe="", assign=json.dumps({t.name: [1]}))
    assert {f[0] for f in rows(assigned)} == {1}


def test_a_stream_takes_every_record_once_within_its_limit(
    topic: Callable[..., Topic], to_files: Any
) -> None:
    t = topic(3)
    t.produce({"n": i} for i in range(3000))
    query, found = to_files(t.stream(maxOffsetsPerTrigger=700))
    assert found == t.records()
    sizes = [p.numInputRows for p in query.recentProgress if p.numInputRows]
    assert sizes == [700, 700, 700, 700, 200]
    t.produce({"n": i} for i in range(100))
    _, found = to_files(t.stream(maxOffsetsPerTrigger=700))
    assert found == t.records(), "goes on from its checkpoint"


def test_new_partitions_and_topics_are_picked_up(
    broker: EmbeddedBroker, topic: Callable[..., Topic], to_files: Any
) -> None:
    t = topic(1)
    prefix = new_name("pattern")
    other = new_topic(broker, 1, name=f"{prefix}-1")
    pattern = {"subscribe": "", "subscribePattern": f"{t.name}|{prefix}-.*"}
    t.produce({"n": i} for i in range(10))
    to_files(t.stream(**pattern))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(t.name, 2)])[t.name].result(60)
    t.produce(({"n": i} for i in range(7)), partition=1)
    produce(broker.bootstrap, other, [{"n": 1}])
    produce(broker.bootstrap, new_topic(broker, 1, name=f"{prefix}-2"), [{"n": 2}])
    _, found = to_files(t.stream(**pattern))
    assert [f[:2] for f in found] == sorted(
        [(0, o) for o in range(10)] + [(1, o) for o in range(7)] + [(0, 0)] * 2
    )


@pytest.mark.usefixtures("apache_kafka")
def test_holes_in_the_offsets_end_a_range(spark: SparkSession, tmp_path: Path, to_files: Any) -> None:
    """Aborted transactions and markers of Apache Kafka: also at the very end of the log, where no record follows."""
    with KafkaBroker(tmp_path) as kafka:
        source = {"kafka.bootstrap.servers": kafka.address, "subscribe": "t", "startingOffsets": "earliest"}
        producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": new_name()})
        producer.init_transactions(60)
        for number in range(6):
            producer.begin_transaction()
            for i in range(5):
                producer.produce("t", f"{number}-{i}".encode(), partition=0)
            producer.flush()
            producer.abort_transaction() if number % 2 else producer.commit_transaction()
        wait_decided(kafka.address, "t")
        options = source | {"kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "7"}
        query, found = to_files(spark.readStream.format("klamm").options(**options).load())
        assert [v.decode() for _, _, v in found] == [f"{r}-{i}" for r in (0, 2, 4) for i in range(5)]
        assert json.loads(query.lastProgress.sources[0].endOffset)["partitions"]["t"]["0"] == 36
        whole = spark.read.format("klamm").options(**source).load()
        assert whole.count() == 30, "read_uncommitted, Kafka's default"


def test_lost_records_are_an_error_or_counted(
    broker: EmbeddedBroker, topic: Callable[..., Topic], to_files: Any
) -> None:
    t = topic(1)
    t.produce({"n": i} for i in range(10))
    to_files(t.stream())
    t.produce({"n": i} for i in range(10))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(t.name, 0, 15)])
    wait_until(lambda: len(t.records()) == 5, "the deletion")
    with pytest.raises(Exception, match=f"{t.name}-0 stands at 10, the log has 15 to 20"):
        to_files(t.stream())
    query, found = to_files(t.stream(failOnDataLoss="false"))
    assert [f[1] for f in found] == [*range(10), *range(15, 20)]
    assert json.loads(query.lastProgress.sources[0].endOffset)["lost"] == 5


def test_what_a_stream_writes_is_in_the_topic(
    broker: EmbeddedBroker, topic: Callable[..., Topic], spark: SparkSession, tmp_path: Path
) -> None:
    t, out = topic(2), topic(2)
    t.produce(({"n": i} for i in range(500)), headers=[("h", b"x")])
    frame = t.stream(includeHeaders="true").selectExpr("key", "value", "headers", "partition")
    target = {"kafka.bootstrap.servers": broker.bootstrap, "topic": out.name}
    writer = frame.writeStream.format("klamm").options(**target).option("checkpointLocation", str(tmp_path))
    to_the_end(writer.trigger(availableNow=True).start)
    assert sorted((p, v) for p, _, v in out.records()) == sorted((p, v) for p, _, v in t.records())
    assert out.batch(includeHeaders="true").first()["headers"][0]["value"] == b"x"


def test_a_batch_writes_to_topics_that_rows_name(
    broker: EmbeddedBroker, topic: Callable[..., Topic], spark: SparkSession
) -> None:
    one, two = topic(1), topic(1)
    frame = spark.createDataFrame(
        [(one.name, "a"), (two.name, "b"), (two.name, None)], "topic STRING, value STRING"
    )
    target = {"kafka.bootstrap.servers": broker.bootstrap}
    frame.write.format("klamm").mode("append").options(**target).save()
    assert [v for _, _, v in one.records()] == [b"a"]
    assert sorted(v or b"" for _, _, v in two.records()) == [b"", b"b"]
    with pytest.raises(Exception, match="column n has no place in a record"):
        frame.selectExpr("topic", "value", "1 AS n").write.format("klamm").mode("append").options(
            **target
        ).save()


def test_rows_reach_a_database_once(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(100).selectExpr(
        "id", "concat('n', id) AS name", "current_timestamp() AS at", "id / 4 AS part"
    )
    url = f"sqlite:///{tmp_path}/x.db"
    for _ in range(2):
        writer = frame.write.format("klamm-sql").mode("append")
        writer.options(url=url, table="t", keys="id", create="true").save()
    with sqlite3.connect(tmp_path / "x.db") as db:
        assert db.execute("SELECT count(*), min(name), max(part) FROM t").fetchone() == (100, "n0", 24.75)
        db.execute("CREATE TABLE loose (id INT, name TEXT UNIQUE)")
    with pytest.raises(Exception, match="keys: there is no column nope"):
        frame.write.format("klamm-sql").mode("append").options(url=url, table="t", keys="nope").save()
    loose = (
        frame.select("id", "name")
        .write.format("klamm-sql")
        .mode("append")
        .options(url=url, table="loose", keys="id")
    )
    with pytest.raises(
        Exception, match=r"loose has no primary key and no unique index of these columns \(it has name\)"
    ):
        loose.save()
