"""One log directory, three brokers in turn: Apache Kafka writes, ours appends, Apache Kafka reads and goes on."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.kafka_broker import KafkaBroker

from klamm_broker.log.log_manager import LogManager
from klamm_kafka.wire.batch import Record, encode_batch
from klamm_kafka.wire.compression import Compression

pytestmark = pytest.mark.usefixtures("apache_kafka")


def produce(kafka: KafkaBroker, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": kafka.address, "enable.idempotence": True, "log_level": 0})
    for value in values:
        producer.produce("t", value=value)
    assert producer.flush(60) == 0


def consume(kafka: KafkaBroker, count: int) -> list[tuple[int, bytes]]:
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    rows = []
    deadline = time.monotonic() + 60
    while len(rows) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(rows), 1):
            assert message.error() is None
            rows.append((message.offset(), message.value()))
    consumer.close()
    return rows


@pytest.mark.parametrize("clean", [True, False])
def test_kafka_goes_on_where_ours_stopped(tmp_path, clean):
    first, ours, last = (
        [b"%s %d" % (who, i) * 20 for i in range(60)] for who in (b"kafka", b"ours", b"again")
    )
    kafka = KafkaBroker(tmp_path)
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        (future,) = admin.create_topics([NewTopic("t", 1, 1, config={"segment.bytes": "1048576"})]).values()
        future.result(60)
        produce(kafka, first)
        kafka.stop()

    now = int(time.time() * 1000)
    manager = LogManager(kafka.data, now_ms=now)
    log = manager.get("t", 0)
    assert log.log_end_offset == 60
    for i, value in enumerate(ours):
        if i == 30:
            log.roll(now)
        record = Record(timestamp=now + i, value=value)
        log.append(
            encode_batch(
                [record],
                compression=Compression(i % 5),
                producer_id=9999,
                producer_epoch=0,
                base_sequence=i,
            ),
            now_ms=now,
        )
    if clean:
        manager.close()
    else:  # as kill -9 leaves it: Kafka recovers our log
        for each in manager:
            each.release()
        manager.release()

    with kafka:
        assert consume(kafka, 120) == list(enumerate(first + ours))
        produce(kafka, last)
        assert consume(kafka, 180) == list(enumerate(first + ours + last))
        assert "orrupt" not in kafka.log
        kafka.stop()

    manager = LogManager(kafka.data, now_ms=now)
    assert manager.get("t", 0).log_end_offset == 180
    assert {log.name for log in manager} >= {"t-0"}
    assert manager.topics["t"].partitions == 1
    manager.close()
