"""MirrorSourceConnector between Apache Kafka and our broker, both ways: transactions, compaction, broker's timestamps."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import new_name
from support.kafka_broker import KafkaBroker
from support.mirroring import Running, produce, props, read, rows

from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("apache_kafka")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    properties = {"log.cleaner.backoff.ms": "200"}
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), properties) as running:
        yield running


@pytest.fixture(scope="module")
def klamm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("klamm") / "data") as running:
        yield running


def make(bootstrap: str, **config: str) -> str:
    topic = new_name()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {k.replace("_", "."): v for k, v in config.items()}
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(60)
    return topic


@pytest.mark.parametrize("direction", ["from kafka", "to kafka"])
def test_all_codecs_arrive_record_by_record(kafka, klamm, direction):
    a, b = (kafka.address, klamm.bootstrap) if direction == "from kafka" else (klamm.bootstrap, kafka.address)
    topic, sent = make(a), []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        part = rows(4000, codec)
        produce(a, topic, part, **{"compression.type": codec, "enable.idempotence": codec != "gzip"})
        sent += part
    with Running(props(a, b, topics=topic)) as mirror:
        assert read(b, f"A.{topic}", len(sent)) == sent
        mirror.until(lambda: mirror.records == len(sent), "counted")
        assert mirror.details()["batches_reencoded"] == 0


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_transactions_arrive_as_their_isolation_says(kafka, klamm, isolation):
    topic = make(kafka.address)
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": new_name(), "linger.ms": 0})
    producer.init_transactions(60)
    expected = []
    for i in range(12):
        producer.begin_transaction()
        for n in range(50):
            producer.produce(topic, f"{i}-{n}")
        producer.flush(60)
        if i % 3 == 1:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
        if i % 3 != 1 or isolation == "read_uncommitted":
            expected += [f"{i}-{n}".encode() for n in range(50)]
    config = props(kafka.address, klamm.bootstrap, topics=topic, source__consumer__isolation__level=isolation)
    with Running(config) as mirror:
        got = read(klamm.bootstrap, f"A.{topic}", len(expected))
        assert [row[1] for row in got] == expected
        mirror.until(lambda: mirror.contexts[0].said[-1]["lag"] == 0, "no lag is left by markers")
    assert mirror.commits[-1][0][1]["offset"] == 12 * 51 - 1


def test_the_brokers_timestamps_are_kept(kafka, klamm):
    topic = make(kafka.address, message_timestamp_type="LogAppendTime")
    produce(kafka.address, topic, rows(500))
    with Running(props(kafka.address, klamm.bootstrap, topics=topic)):
        assert read(klamm.bootstrap, f"A.{topic}", 500) == read(kafka.address, topic, 500)


def test_holes_of_compaction_are_closed(kafka, klamm):
    topic = make(
        kafka.address, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
    )  # fmt: skip
    for part in range(4):
        at = 1_700_000_000_000 + part * 10_000  # a segment ends by the time of its records
        produce(
            kafka.address, topic, [(b"%d" % (i % 300), b"%d-%d" % (part, i), [], at + i) for i in range(1000)]
        )
    deadline = time.monotonic() + 60
    while len(left := read(kafka.address, topic, None)) > 1500:
        assert time.monotonic() < deadline, f"not compacted: {len(left)}"
    with Running(props(kafka.address, klamm.bootstrap, topics=topic)) as mirror:
        read(klamm.bootstrap, f"A.{topic}", 300)
        mirror.until(lambda: mirror.contexts[0].said[-1]["lag"] == 0, "all copied")
        got = read(klamm.bootstrap, f"A.{topic}", None)
        assert mirror.details()["batches_reencoded"] > 0
    latest = {row[0]: row[1] for row in got}
    assert latest == {row[0]: row[1] for row in left}
