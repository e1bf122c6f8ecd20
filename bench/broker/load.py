"""The load: librdkafka (C) through confluent-kafka, the same client and settings for both brokers."""

from __future__ import annotations

import time
import uuid

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BATCH_BYTES = 131072


def create_topic(bootstrap: str, partitions: int, topic: str | None = None) -> str:
    topic = topic or f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    return topic


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must outlive the result
    admin.delete_topics([topic])[topic].result(30)


def produce(bootstrap: str, topic: str, *, records: int, size: int, partitions: int) -> float:
    """Send `records` values of `size` bytes with acks=1, all acknowledged; returns seconds."""
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": 1,
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            "delivery.report.only.error": True,
        }
    )
    chunk = [{"value": bytes(size)} for _ in range(2000)]
    begin = time.monotonic()
    sent = 0
    while sent < records:
        todo = chunk[: min(len(chunk), records - sent)]
        partition = (sent // len(chunk)) % partitions
        done = producer.produce_batch(topic, todo, partition=partition, on_delivery=_collect(failed))
        sent += done
        producer.poll(0 if done == len(todo) else 0.01)
    left = producer.flush(120)
    seconds = time.monotonic() - begin
    if left or failed:
        raise RuntimeError(f"{left} records not acknowledged, {len(failed)} failed: {failed[:1]}")
    return seconds


def _collect(failed: list[str]):
    return lambda err, _msg: failed.append(str(err)) if err is not None else None


def consume(bootstrap: str, topic: str, *, records: int, partitions: int) -> float:
    """Read the topic from the beginning until `records` have come; returns seconds."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 131_072,
            "fetch.message.max.bytes": 4_194_304,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    begin = time.monotonic()
    seen = 0
    while seen < records:
        messages = consumer.consume(min(10_000, records - seen), timeout=10)
        if not messages:
            raise RuntimeError(f"read {seen} of {records} records, then nothing for 10 s")
        error = next((m.error() for m in messages if m.error() is not None), None)
        if error is not None:
            raise KafkaException(error)
        seen += len(messages)
    seconds = time.monotonic() - begin
    consumer.close()
    if seen != records:
        raise RuntimeError(f"read {seen} records, {records} were written")
    return seconds


def latency_us(bootstrap: str, topic: str, *, messages: int, warm: int = 300) -> list[float]:
    """Microseconds from produce() to the acknowledgement of single 100-byte messages, one at a time."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 0, "socket.nagle.disable": True}
    )
    value = bytes(100)
    took: list[float] = []
    for i in range(messages + warm):
        begin = time.perf_counter()
        producer.produce(topic, value, partition=0)
        if producer.flush(30):
            raise RuntimeError("a single message was not acknowledged within 30 s")
        if i >= warm:
            took.append((time.perf_counter() - begin) * 1e6)
    return took
