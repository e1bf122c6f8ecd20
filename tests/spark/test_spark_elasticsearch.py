"""Rows to a genuine Elasticsearch: documents by their coordinates, bad ones apart, replays without duplicates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.broker import new_topic
from support.elasticsearch import call, documents, unique_index
from support.spark import produce

from klamm.testing import EmbeddedBroker
from klamm.testing.elasticsearch import ElasticsearchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.elasticsearch, pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_stream_is_indexed_once_and_bad_documents_go_to_a_topic(
    broker: EmbeddedBroker, spark: SparkSession, elasticsearch_server: ElasticsearchServer, tmp_path: Path
) -> None:
    index, topic, dead = unique_index("spark"), new_topic(broker, 2), new_topic(broker)
    call(elasticsearch_server, "PUT", f"/{index}", {"mappings": {"properties": {"n": {"type": "integer"}}}})
    produce(broker.bootstrap, topic, [*({"n": i} for i in range(50)), {"n": "seven"}])
    source = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = (
        spark.readStream.format("klamm").options(**source).load()
        .selectExpr("cast(value AS STRING) AS value", "topic", "partition", "offset")
    )  # fmt: skip
    target = {"hosts": elasticsearch_server.url, "index": index, "document": "value", "batch.size": "20"}
    letters = {"dead_letter.topic": dead, "dead_letter.kafka.bootstrap.servers": broker.bootstrap}

    def run(name: str, options: dict[str, str]) -> None:
        writer = frame.writeStream.format("klamm-elasticsearch").options(**options)
        query = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        query.awaitTermination(90)
        if (error := query.exception()) is not None:
            raise error

    for name in ("one", "two"):
        run(name, target | letters)
        found = documents(elasticsearch_server, index)
        assert sorted(d["n"] for d in found.values()) == list(range(50)), (
            "the second run writes the same documents"
        )
    assert {i.rpartition("-")[0] for i in found} == {f"{topic}-0", f"{topic}-1"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "x"})
    consumer.assign([TopicPartition(dead, 0, 0)])
    letter = consumer.poll(20)
    consumer.close()
    assert json.loads(letter.value()) == {"n": "seven"}
    assert b"failed to parse field [n]" in dict(letter.headers())["klamm.error"]
    with pytest.raises(Exception, match=r"1 documents were refused.*failed to parse field \[n\]"):
        run("three", target)


def test_columns_are_fields(spark: SparkSession, elasticsearch_server: ElasticsearchServer) -> None:
    index = unique_index("spark")
    frame = spark.sql(
        "SELECT 'a' AS k, 1.5 AS f, array(1, 2) AS l, named_struct('x', true) AS s, timestamp'2026-01-02 03:04:05' AS t, X'6869' AS b"
    )
    options = {"hosts": elasticsearch_server.url, "index": index, "id": "k"}
    frame.write.format("klamm-elasticsearch").mode("append").options(**options).save()
    found = documents(elasticsearch_server, index)
    assert found["a"] == {
        "k": "a",
        "f": 1.5,
        "l": [1, 2],
        "s": {"x": True},
        "t": "2026-01-02T03:04:05+00:00",
        "b": "hi",
    }
    with pytest.raises(Exception, match="no id for documents: there is no column topic"):
        frame.write.format("klamm-elasticsearch").mode("append").options(**options | {"id": ""}).save()
