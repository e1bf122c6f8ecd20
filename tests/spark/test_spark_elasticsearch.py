"""Rows to a genuine Elasticsearch: documents by their coordinates, bad ones apart, replays without duplicates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from support.broker import new_topic
from support.elasticsearch import call, documents, require, unique_index
from support.spark import produce, read_to_end, to_the_end

from klamm.testing import EmbeddedBroker
from klamm.testing.elasticsearch import ElasticsearchServer
from klamm_spark.model import Job, Output, Query, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("elasticsearch", "apache_spark"), pytest.mark.timeout(900)]


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
        writer = writer.option("checkpointLocation", str(tmp_path / name))
        to_the_end(writer.trigger(availableNow=True).start)

    for name in ("one", "two"):
        run(name, target | letters)
        found = documents(elasticsearch_server, index)
        assert sorted(d["n"] for d in found.values()) == list(range(50)), (
            "the second run writes the same documents"
        )
    assert {i.rpartition("-")[0] for i in found} == {f"{topic}-0", f"{topic}-1"}
    letter = read_to_end(broker.bootstrap, dead)[0]
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


@pytest.mark.parametrize("streamed", [True, False])
def test_a_batch_can_be_searched_when_it_ends(
    spark: SparkSession, elasticsearch_server: ElasticsearchServer, tmp_path: Path, streamed: bool
) -> None:
    indices = [unique_index("spark") for _ in range(2)]
    for index in indices:
        call(elasticsearch_server, "PUT", index, {"settings": {"refresh_interval": "-1"}})
    names = ", ".join(f"'{i}'" for i in indices)

    def found() -> int:
        return int(call(elasticsearch_server, "GET", f"{','.join(indices)}/_count")[1]["count"])

    def write(refresh: str, first: int) -> None:
        options = {"hosts": elasticsearch_server.url, "id": "id", "refresh": refresh}
        columns = [f"cast(id + {first} AS STRING) AS id", f"array({names})[cast(id % 2 AS INT)] AS _index"]
        if not streamed:
            frame = spark.range(40).selectExpr(*columns)
            frame.write.format("klamm-elasticsearch").mode("append").options(**options).save()
            return
        place = tmp_path / f"rows-{first}"
        spark.range(40).write.parquet(str(place))
        rows = spark.readStream.schema("id LONG").parquet(str(place)).selectExpr(*columns)
        writer = rows.writeStream.format("klamm-elasticsearch").options(**options)
        to_the_end(
            writer.option("checkpointLocation", str(tmp_path / f"of-{first}"))
            .trigger(availableNow=True)
            .start
        )

    write("false", 0)
    assert found() == 0, "the indices refresh nothing by themselves"
    write("true", 40)
    assert found() == 80


def log_lines(count: int) -> list[tuple[str, bytes]]:
    filler = "x" * 200
    return [
        (str(n), f'{{"ts":"2026-01-01T00:00:00Z","id":"n{n}","service":"pay","level":"info","msg":"{filler}"}}'.encode())
        for n in range(count)
    ]  # fmt: skip


def named(topic: str) -> str:
    """Returns the name as the last part of a data stream's name, which has no dash."""
    return topic.replace("-", "_")


def log_job(broker: EmbeddedBroker, server: ElasticsearchServer, topic: str, place: Path, **more: str) -> Job:
    """Returns the log job into a data stream; only what Elasticsearch is told differs between tests."""
    options = {
        "hosts": server.url, "op": "create", "id": "doc_id", "document": "document", "template": f"klamm-{topic}",
        "template.patterns": f"logs-*-{named(topic)}",
    }  # fmt: skip
    query = "SELECT doc_id, data_stream AS _index, document FROM documents"
    return Job(
        name="logs",
        checkpoint=str(place / "checkpoint"),
        source=Source(bootstrap_servers=broker.bootstrap, topics=(topic,), starting_offsets="earliest"),
        query=Query(
            function="klamm_spark.jobs.logs:logs",
            options={
                "envelope": False,
                "namespace": named(topic),
                "formats": [{"name": "app", "type": "json"}],
            },
        ),
        outputs=(Output("documents", "elasticsearch", query=query, options=options | more),),
        available_now=True,
    )


def run_job(job: Job, spark: SparkSession) -> list[dict[str, Any]]:
    """Returns what the writer said of each batch."""
    from klamm_spark import figures
    from klamm_spark import job as jobs

    (query,) = to_the_end(lambda: jobs.start(job, jobs.frames(job, spark)))
    batches = {p["batchId"] for p in query.recentProgress}
    return [found for b in sorted(batches) if (found := figures.take("documents", b)) is not None]


def test_logs_are_in_data_streams_once_and_the_template_is_there(
    broker: EmbeddedBroker, spark: SparkSession, elasticsearch_server: ElasticsearchServer, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    stream = f"logs-app-{named(topic)}"
    send(broker, topic, [*log_lines(30), log_lines(1)[0], ("x", b"no JSON")])
    job = log_job(broker, elasticsearch_server, topic, tmp_path)
    (did,) = run_job(job, spark)
    assert (did["documents"], did["refused"], did["throttled"]) == (32, 0, 0), (
        "a repetition is one that is there already"
    )
    found = documents(elasticsearch_server, stream)
    assert sorted(found) == sorted(f"n{n}" for n in range(30))
    assert found["n3"]["@timestamp"] == "2026-01-01T00:00:00.000Z"
    (lost,) = documents(elasticsearch_server, f"logs-unparsed-{named(topic)}").values()
    assert lost["message"] == "no JSON"
    status, template = call(elasticsearch_server, "GET", f"_index_template/klamm-{topic}")
    assert (status, "data_stream" in template["index_templates"][0]["index_template"]) == (200, True)
    commits = Path(job.checkpoint, "documents", "commits")
    for path in list(commits.glob("*")):
        path.unlink()
    run_job(job, spark)
    assert documents(elasticsearch_server, stream) == found, "a batch that runs again writes nothing anew"


@pytest.mark.timeout(900)
def test_an_overloaded_server_slows_the_stream_and_loses_nothing(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    send(broker, topic, log_lines(3000))
    # A node that takes no more than this at a time: it answers 429 to what is above
    with ElasticsearchServer(require(), settings={"indexing_pressure.memory.limit": "200kb"}) as server:
        said = run_job(log_job(broker, server, topic, tmp_path), spark)
        assert sum(d["throttled"] for d in said) > 0
        assert sum(d["documents"] for d in said) == 3000
        assert len(documents(server, f"logs-app-{named(topic)}")) == 3000


def send(broker: EmbeddedBroker, topic: str, rows: list[tuple[str, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in rows:
        producer.produce(topic, value, key)
        producer.poll(0)
    assert producer.flush(60) == 0
