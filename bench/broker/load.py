"""The load: librdkafka (C) through confluent-kafka, the same client and settings for both brokers."""

from __future__ import annotations

import threading
import time
import uuid

from bench.servers import CERTIFICATE
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BATCH_BYTES = 131072


def client(bootstrap: str) -> dict[str, str | int]:
    """Returns the settings of every client; an address with `SSL://` before it is reached with TLS."""
    config: dict[str, str | int] = {"bootstrap.servers": bootstrap, "log_level": 3}
    if bootstrap.startswith("SSL://"):
        config |= {
            "security.protocol": "ssl",
            "ssl.ca.location": str(CERTIFICATE.with_name("ca.pem")),
            "ssl.endpoint.identification.algorithm": "none",
        }
    return config


def create_topic(bootstrap: str, partitions: int, topic: str | None = None) -> str:
    topic = topic or f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(client(bootstrap))
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    return topic


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient(client(bootstrap))  # must outlive the result
    admin.delete_topics([topic])[topic].result(30)


def payload(size: int) -> bytes:
    """A value of so many bytes that compresses about as a log line does (to a third)."""
    line = bytearray()
    n = 0
    while len(line) < size:
        n += 1
        line += b'{"ts":%d,"level":"INFO","service":"cart","id":"%08x","msg":"order %d placed"},' % (
            1_700_000_000_000 + n * 7919, n * 2654435761 % 2**32, n * 104729 % 10_007
        )  # fmt: skip
    return bytes(line[:size])


def produce(
    bootstrap: str,
    topic: str,
    *,
    records: int,
    size: int,
    partitions: int,
    acks: str = "1",
    codec: str = "none",
    first_partition: int = 0,
) -> float:
    """Send `records` values of `size` bytes, all acknowledged; returns seconds. `acks=all` is idempotent as well."""
    failed: list[str] = []
    producer = Producer(
        {
            **client(bootstrap),
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": codec,
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            "delivery.report.only.error": True,
        }
    )
    chunk = [{"value": payload(size)} for _ in range(max(1, min(2000, 2_048_000 // size)))]
    begin = time.monotonic()
    sent = 0
    while sent < records:
        todo = chunk[: min(len(chunk), records - sent)]
        partition = (first_partition + sent // len(chunk)) % partitions
        done = producer.produce_batch(topic, todo, partition=partition, on_delivery=_collect(failed))
        sent += done
        producer.poll(0 if done == len(todo) else 0.01)
    left = producer.flush(120)
    seconds = time.monotonic() - begin
    if left or failed:
        raise RuntimeError(f"{left} records not acknowledged, {len(failed)} failed: {failed[:1]}")
    return seconds


def produce_steadily(bootstrap: str, topic: str, mb_s: int, stop: threading.Event) -> None:
    """Send 1 KB records at so many MB/s until `stop` is set."""
    producer = Producer({**client(bootstrap), "acks": 1, "linger.ms": 5, "batch.size": BATCH_BYTES})
    chunk = [{"value": payload(1000)}] * (mb_s * 1000 // 100)
    due, n = time.monotonic(), 0
    while not stop.is_set():
        producer.produce_batch(topic, chunk, partition=n % 4)
        producer.poll(0)
        n, due = n + 1, due + 0.01
        time.sleep(max(0, due - time.monotonic()))
    if producer.flush(30):
        raise RuntimeError("the load beside was not acknowledged within 30 s")


def _collect(failed: list[str]):
    return lambda err, _msg: failed.append(str(err)) if err is not None else None


class Countdown:
    """Counts the records that are still to come, over all readers of a topic."""

    def __init__(self, records: int) -> None:
        self.left = records
        self._lock = threading.Lock()

    def take(self, n: int) -> None:
        with self._lock:
            self.left -= n


def consume(
    bootstrap: str,
    topic: str,
    *,
    partitions: range | int,
    records: int = 0,
    remaining: Countdown | None = None,
) -> float:
    """Read partitions from the beginning until `records` (or `remaining`, over all readers) have come; returns seconds."""
    left = remaining or Countdown(records)
    consumer = Consumer(
        {
            **client(bootstrap),
            "group.id": f"{topic}-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 131_072,
            "fetch.message.max.bytes": 4_194_304,
        }
    )
    mine = range(partitions) if isinstance(partitions, int) else partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in mine])
    begin = last = time.monotonic()
    while left.left > 0:
        messages = consumer.consume(max(1, min(2_000, left.left)), timeout=0.05)
        now = time.monotonic()
        if messages:
            last = now
        elif now - last > 30:
            raise RuntimeError(f"{left.left} records are missing and nothing has come for 30 s")
        error = next((m.error() for m in messages if m.error() is not None), None)
        if error is not None:
            raise KafkaException(error)
        left.take(len(messages))
    seconds = time.monotonic() - begin
    consumer.close()
    if left.left:
        raise RuntimeError(f"{-left.left} records more than were written have come")
    return seconds


def latency_us(
    bootstrap: str, topic: str, *, messages: int, warm: int = 300, acks: str = "1", size: int = 100
) -> list[float]:
    """Microseconds from produce() to the acknowledgement of single messages, one at a time."""
    return _latency_us(client(bootstrap), topic, messages, warm, acks, size)


def latency_alone_us(*, messages: int, warm: int = 300, size: int = 100) -> list[float]:
    """The same with librdkafka's mock broker: a thread of the client's own process that keeps nothing.

    So much of each figure is the client's and the loopback's, whatever the broker is.
    """
    return _latency_us({"test.mock.num.brokers": 1, "log_level": 2}, "alone", messages, warm, "all", size)


def _latency_us(
    to: dict[str, str | int], topic: str, messages: int, warm: int, acks: str, size: int
) -> list[float]:
    producer = Producer({**to, "acks": acks, "linger.ms": 0, "socket.nagle.disable": True})
    value = bytes(size)
    took: list[float] = []
    for i in range(messages + warm):
        begin = time.perf_counter()
        producer.produce(topic, value, partition=0)
        if producer.flush(30):
            raise RuntimeError("a single message was not acknowledged within 30 s")
        if i >= warm:
            took.append((time.perf_counter() - begin) * 1e6)
    return took
