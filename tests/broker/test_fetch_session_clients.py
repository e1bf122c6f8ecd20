"""Consumers of many partitions over fetch sessions: kafka-python opens them, librdkafka and aiokafka do without."""

from __future__ import annotations

import gc
import warnings
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.broker import new_name, new_topic, wait_until

with warnings.catch_warnings():  # it reads its tables through an old function
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
PARTITIONS = 200


@contextmanager
def closing(client):
    """Close a kafka-python client, and collect here the socket pairs that it leaves open."""
    try:
        yield client
    finally:
        client.close()
        del client
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture
def topic(broker):
    return new_topic(broker, PARTITIONS)


def produce(broker, topic, numbers, text):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for n in numbers:
        producer.produce(topic, value=f"{text} {n}", partition=n)
    assert producer.flush(60) == 0


@pytest.fixture
def consumer(broker):
    made = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    with closing(made) as opened:
        yield opened


def test_kafka_python_reads_many_partitions_in_a_session(broker, topic, consumer):
    parts = [kafka.TopicPartition(topic, n) for n in range(PARTITIONS)]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    got = []

    def read(count):
        def enough():
            for records in consumer.poll(timeout_ms=200).values():
                got.extend(record.value.decode() for record in records)
            return len(got) >= count

        wait_until(enough, f"{count} records", timeout_s=60)

    produce(broker, topic, range(PARTITIONS), "first")
    read(PARTITIONS)
    for n in (7, 190, 7, 0):
        produce(broker, topic, [n], "again")
        read(len(got) + 1)
    assert sorted(got[:PARTITIONS]) == sorted(f"first {n}" for n in range(PARTITIONS))
    assert got[PARTITIONS:] == ["again 7", "again 190", "again 7", "again 0"]
    consumer.assign(parts[:100])  # the others are forgotten
    produce(broker, topic, [150, 50], "last")
    read(len(got) + 1)
    assert got[-1] == "last 50"


def test_a_session_outlives_the_deletion_of_one_of_its_topics(broker, topic, consumer):
    other = new_topic(broker, 3)
    consumer.assign(
        [kafka.TopicPartition(topic, n) for n in range(5)]
        + [kafka.TopicPartition(other, n) for n in range(3)]
    )
    got = []

    def read(text):
        def there():
            for records in consumer.poll(timeout_ms=200).values():
                got.extend(record.value.decode() for record in records)
            return text in got

        wait_until(there, text, timeout_s=60)

    produce(broker, other, [1], "other")
    read("other 1")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([other])[other].result(60)
    produce(broker, topic, [4], "still")
    read("still 4")


def test_librdkafka_reads_many_partitions_without_sessions(broker, topic):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": new_name("group")})
    consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    produce(broker, topic, range(PARTITIONS), "first")
    got = set()

    def enough():
        got.update(m.value().decode() for m in consumer.consume(500, 0.2) if m.error() is None)
        return len(got) == PARTITIONS

    wait_until(enough, "every record", timeout_s=60)
    consumer.close()
