"""Topics for tests of backups: written with confluent-kafka, and read back record by record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from support.klamm import klamm

Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes]]]
"""Offset, timestamp, key, value, headers."""


def write(bootstrap: str, topic: str, start: int, count: int, partitions: int = 1, **settings: Any) -> None:
    """Write records with keys, headers and timestamps of their own, to partitions in turn."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            **settings,
        }
    )
    for i in range(start, start + count):
        producer.produce(
            topic, b"value %d " % i * 5, b"key-%d" % i, partition=i % partitions,
            timestamp=1_700_000_000_000 + i, headers=[("n", b"%d" % i)],
        )  # fmt: skip
    assert producer.flush(30) == 0


def write_transaction(bootstrap: str, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
    """Write a transaction to partition 0."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, b"tx", partition=0, timestamp=1_700_000_500_000)
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def read(bootstrap: str, topic: str, partitions: int = 1) -> dict[int, list[Row]]:
    """Return the committed records of all partitions."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest", "enable.auto.commit": False,
         "isolation.level": "read_committed", "enable.partition.eof": True}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    rows: dict[int, list[Row]] = {p: [] for p in range(partitions)}
    left = set(rows)
    while left:
        message = consumer.poll(30)
        assert message is not None, f"{topic}: no answer"
        if message.error():
            left.discard(message.partition())
            continue
        rows[message.partition()].append(
            (
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                message.headers() or [],
            )
        )
    consumer.close()
    return rows


def contents(rows: dict[int, list[Row]]) -> dict[int, list[Any]]:
    """Return rows without their offsets."""
    return {p: [row[1:] for row in found] for p, found in rows.items()}


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Set offsets of a group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(t, p, o) for (t, p), o in offsets.items()], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, places: Sequence[tuple[str, int]]) -> list[int]:
    """Return offsets of a group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(t, p) for t, p in places], timeout=30)
    consumer.close()
    return [tp.offset for tp in found]


def backup(*args: object) -> str:
    """Run `klamm backup`, which must succeed, and return what it says."""
    done = klamm("backup", *map(str, args))
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def topic_configs(bootstrap: str, topic: str) -> str:
    """Return the configs that were set for a topic, as CSV."""
    entity = ("--entity-type", "topics", "--entity-name", topic)
    done = klamm("config", "describe", *entity, "-b", bootstrap, "-o", "csv")
    assert done.returncode == 0, done.stderr
    return done.stdout
