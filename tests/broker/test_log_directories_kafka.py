"""Apache Kafka with two log directories, then ours on them, then Apache Kafka again."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.kafka_broker import KafkaBroker

from klamm_broker.log.log_manager import LogManager
from klamm_kafka.wire.batch import Record, encode_batch

pytestmark = pytest.mark.usefixtures("apache_kafka")

PARTITIONS = 5


def produce(kafka, value):
    producer = Producer({"bootstrap.servers": kafka.address, "log_level": 0})
    for partition in range(PARTITIONS):
        for number in range(20):
            producer.produce("t", value=b"%s %d" % (value, number), partition=partition)
    assert producer.flush(60) == 0


def consume(kafka, partition, count):
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", partition, 0)])
    deadline = time.monotonic() + 60
    rows = []
    while len(rows) < count and time.monotonic() < deadline:
        rows += [message.value() for message in consumer.consume(count - len(rows), 1)]
    consumer.close()
    return rows


def test_both_take_over_each_others_directories(tmp_path):
    dirs = [tmp_path / "one", tmp_path / "two"]
    kafka = KafkaBroker(tmp_path, {"log.dirs": ",".join(str(path) for path in dirs)})
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(60)
        produce(kafka, b"kafka")
        kafka.stop()
    places = {n: next(path for path in dirs if (path / f"t-{n}").exists()) for n in range(PARTITIONS)}
    assert set(places.values()) == set(dirs)

    now = int(time.time() * 1000)
    manager = LogManager(dirs, now_ms=now)
    for number in range(PARTITIONS):
        log = manager.get("t", number)
        assert log.directory.parent == places[number]
        assert log.log_end_offset == 20
        log.append(encode_batch([Record(timestamp=now, value=b"ours")]), now_ms=now)
    other = next(path for path in dirs if path != places[0])
    manager.begin_move("t", 0, other)
    job = manager.moves["t", 0].plan()
    job.run()
    manager.moves["t", 0].done(job)
    manager.finish_move(manager.moves["t", 0], now)
    manager.removal_job(now * 2)()
    manager.close()

    with kafka:
        produce(kafka, b"again")
        expected = [b"kafka %d" % n for n in range(20)] + [b"ours"] + [b"again %d" % n for n in range(20)]
        for number in range(PARTITIONS):
            assert consume(kafka, number, 41) == expected
        kafka.stop()
    manager = LogManager(dirs, now_ms=now)
    assert [manager.get("t", number).log_end_offset for number in range(PARTITIONS)] == [41] * PARTITIONS
    assert manager.get("t", 0).directory.parent == other
    manager.close()
