"""Flows that keep offsets, with Apache Kafka as the source: its very bytes at our broker; its tools at the copy."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support import kafka_oracle
from support.broker import NO_RETENTION, new_name
from support.kafka_broker import KafkaBroker
from support.kafka_tools import KafkaTools
from support.mirror_topics import (
    keeping,
    log_bytes,
    promote_by_config,
    read_offsets,
    transactions,
    wait_same,
)
from support.mirroring import produce, read, rows

from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError
from klamm_kafka.wire.batch import iter_headers

pytestmark = pytest.mark.usefixtures("apache_kafka")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    properties = {"log.cleaner.backoff.ms": "200", **NO_RETENTION}
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), properties) as running:
        yield running


@pytest.fixture(scope="module")
def klamm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    config = {"log.cleaner.enable": "false", **NO_RETENTION}
    with EmbeddedBroker(tmp_path_factory.mktemp("klamm") / "data", config=config) as running:
        yield running


@pytest.fixture(scope="module")
def kafka_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    tools = KafkaTools(kafka_oracle.require(), tmp_path_factory.mktemp("tools"))
    yield tools
    tools.close()


def make(bootstrap: str, **config: str) -> str:
    topic = new_name()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {k.replace("_", "."): v for k, v in config.items()}
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(60)
    return topic


def test_all_codecs_headers_and_transactions_have_their_very_bytes(kafka, klamm):
    topic = make(kafka.address)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(kafka.address, topic, rows(1000, codec), **{"compression.type": codec})
    open_ = transactions(kafka.address, topic, new_name(), [True, False, True])
    produce(kafka.address, topic, rows(100, "between"))
    open_.abort_transaction(60)
    with keeping(kafka.address, klamm.bootstrap, topic):
        wait_same(kafka.address, klamm.bootstrap, topic)
    assert log_bytes(kafka.address, topic) == log_bytes(klamm.bootstrap, topic)
    for isolation in ("read_committed", "read_uncommitted"):
        there = read_offsets(kafka.address, topic, isolation)
        assert read_offsets(klamm.bootstrap, topic, isolation) == there


def test_a_compacted_source_keeps_its_holes(kafka, klamm):
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
    while len(read(kafka.address, topic, None)) > 1500:
        assert time.monotonic() < deadline, "not compacted"
    with keeping(kafka.address, klamm.bootstrap, topic):
        wait_same(kafka.address, klamm.bootstrap, topic)
    copied = log_bytes(klamm.bootstrap, topic)
    holes = [h for _, h in iter_headers(copied) if h.record_count <= h.last_offset_delta]
    assert holes
    there = read_offsets(kafka.address, topic, "read_uncommitted")
    here = read_offsets(klamm.bootstrap, topic, "read_uncommitted")
    assert set(there) <= set(here), "the cleaner may have gone on at the source"
    klamm.kill()
    klamm.start()
    assert log_bytes(klamm.bootstrap, topic) == copied


def test_the_brokers_timestamps_are_kept(kafka, klamm):
    topic = make(kafka.address, message_timestamp_type="LogAppendTime")
    produce(kafka.address, topic, rows(500))
    with keeping(kafka.address, klamm.bootstrap, topic):
        wait_same(kafka.address, klamm.bootstrap, topic)
    assert log_bytes(kafka.address, topic) == log_bytes(klamm.bootstrap, topic)


def test_kafka_as_the_target_is_refused_in_words(kafka, klamm):
    topic = make(klamm.bootstrap)
    mirror = keeping(klamm.bootstrap, kafka.address, topic)
    try:
        with pytest.raises(ConfigError, match=r"does not announce the feature klamm\.mirror\.topics"):
            mirror.start()
    finally:
        mirror.stop()


def test_javas_clients_are_refused_at_a_copy_and_served_once_it_is_promoted(kafka, klamm, kafka_tools):
    topic, group = make(kafka.address), new_name("group")
    produce(kafka.address, topic, rows(200))
    server = "--bootstrap-server", klamm.bootstrap
    with keeping(kafka.address, klamm.bootstrap, topic):
        wait_same(kafka.address, klamm.bootstrap, topic)
        began = time.monotonic()
        for more in ((), ("--producer-property", "enable.idempotence=false")):
            said = kafka_tools.run("kafka-console-producer", *server, "--topic", topic, *more, stdin="x\n")
            assert "PolicyViolation" in said.out + said.err, said
        assert time.monotonic() - began < 60, "a final error, not a time-out"
        assert "klamm.mirror.state=mirror" in kafka_tools.run("kafka-topics", *server, "--describe").out
        consume = "kafka-console-consumer", *server, "--topic", topic, "--group", group, "--from-beginning"
        first = kafka_tools.run(*consume, "--max-messages", "120")
        assert len(first.lines) == 120
        promote_by_config(klamm.bootstrap, topic)
    kafka_tools.run("kafka-console-producer", *server, "--topic", topic, stdin="own\n").ok()
    rest = kafka_tools.run(*consume, "--max-messages", "81")
    assert rest.lines[-1] == "own"


def test_transactions_cannot_include_a_copy(kafka, klamm):
    topic, other = make(kafka.address), make(klamm.bootstrap)
    produce(kafka.address, topic, rows(10))
    with keeping(kafka.address, klamm.bootstrap, topic):
        wait_same(kafka.address, klamm.bootstrap, topic)
        producer = Producer({"bootstrap.servers": klamm.bootstrap, "transactional.id": new_name()})
        producer.init_transactions(60)
        producer.begin_transaction()
        errors = []
        producer.produce(other, b"with it", on_delivery=lambda e, _: errors.append(e))
        producer.flush(60)  # one request with both adds neither, and there is no transaction to abort
        producer.produce(topic, b"not here", on_delivery=lambda e, _: errors.append(e))
        producer.flush(60)
        assert any(errors)
        producer.abort_transaction(60)
        assert log_bytes(kafka.address, topic) == log_bytes(klamm.bootstrap, topic)
