"""The content of a broker after a test of the runtime, and records for one."""

from __future__ import annotations

import json
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition


def read_all(bootstrap, topic):
    """Returns every committed message of a topic, to its end, which may be a transaction's marker."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read-all",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        places = [TopicPartition(topic, p, 0) for p in partitions]
        ends = {p.partition: consumer.get_watermark_offsets(p, timeout=60)[1] for p in places}
        left = {p for p, end in ends.items() if end}
        consumer.assign([p for p in places if p.partition in left])
        found = []
        deadline = time.monotonic() + 60
        while left:
            assert time.monotonic() < deadline, f"{topic}: {left} of {ends}"
            for message in consumer.consume(10_000, 0.1):
                if message.error() is None:
                    found.append(message)
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                if message.offset() + (message.error() is None) >= ends[message.partition()]:
                    left.discard(message.partition())
        return found
    finally:
        consumer.close()


def stored_offsets(bootstrap, topic):
    return {m.key(): json.loads(m.value()) for m in read_all(bootstrap, topic)}


def reader(bootstrap, topic):
    """Returns `read_offsets` of a worker, as the offset store does it: to the end of the topic."""

    def read(name, partition):
        return stored_offsets(bootstrap, topic).get(
            json.dumps([name, partition], separators=(",", ":")).encode()
        )

    return read


def sink_lines(path):
    """Returns what a sink has written; a line that is just being written is none yet."""
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


def whole_lines(path):
    """Yields what sinks have written that were killed: without lines that a kill cut through."""
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def fill(bootstrap, topic, values, partitions=1):
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for n, value in enumerate(values):
        producer.produce(topic, value, partition=n % partitions)
    assert producer.flush(60) == 0
