"""Mirror topics in tests: the bytes of logs at both clusters, transactions, states, promotion by the command."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from support.broker import wait_until
from support.mirroring import Row, Running, props

from klamm_kafka.client import Cluster
from klamm_mirror.raw import whole_batches
from klamm_mirror.settings.keep_offsets import KEEP, PROMOTED, STATE
from klamm_mirror.topics import internal_topics

Offsets = list[tuple[int, bytes | None]]


def keeping(source: str, target: str, topics: str, **more: str) -> Running:
    """Returns a flow that keeps offsets and names."""
    config = props(
        source, target, topics=topics, replication__policy__class="IdentityReplicationPolicy", **more
    )
    return Running(config | {KEEP: "true"})


def log_bytes(bootstrap: str, topic: str, partition: int = 0) -> bytes:
    """Returns all batches of a partition as its broker sends them, byte for byte."""

    async def read() -> bytes:
        found = bytearray()
        async with Cluster(bootstrap) as cluster:
            offset = await internal_topics.offset_of(cluster, topic, -2, partition=partition)
            end = await internal_topics.offset_of(cluster, topic, -1, partition=partition)
            while offset < end:
                data = (await internal_topics.fetch(cluster, topic, offset, partition=partition)).records
                for pos, header in whole_batches(data or b""):
                    if header.next_offset > offset:
                        found += data[pos : pos + header.size]
                        offset = header.next_offset
        return bytes(found)

    return asyncio.run(read())


def end_of(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Returns the log end offset."""

    async def read() -> int:
        async with Cluster(bootstrap) as cluster:
            return await internal_topics.offset_of(cluster, topic, -1, partition=partition)

    return asyncio.run(read())


def same_ends(source: str, target: str, topic: str, partition: int = 0) -> bool:
    """Decides whether the copy has everything by now."""
    ends = end_of(source, topic, partition), end_of(target, topic, partition)
    return ends[0] == ends[1]


def read_offsets(bootstrap: str, topic: str, isolation: str, partition: int = 0) -> Offsets:
    """Returns offsets and values of all that a reader of this isolation gets by now."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
         "auto.offset.reset": "earliest", "isolation.level": isolation, "enable.partition.eof": True}
    )  # fmt: skip
    found: Offsets = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            for m in consumer.consume(10_000, 1.0):
                if m.error() is None:
                    found.append((m.offset(), m.value()))
                elif m.error().code() == KafkaError._PARTITION_EOF:
                    return found
    finally:
        consumer.close()


def transactions(bootstrap: str, topic: str, name: str, ends: Sequence[bool], count: int = 20) -> Producer:
    """Writes transactions of `count` records each, which commit (True) or abort. Returns the producer, whose next one is open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(60)
    for number, commits in enumerate(ends):
        producer.begin_transaction()
        for i in range(count):
            producer.produce(topic, f"{name}-{number}-{i}".encode(), f"k{i % 5}".encode(), 0)
        producer.flush(60)
        if commits:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    producer.begin_transaction()
    return producer


def refusal(bootstrap: str, topic: str, rows: Sequence[Row], **config: str) -> KafkaError | None:
    """Writes rows as an ordinary producer. Returns the first error that a record got; None when all were taken."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **config})
    errors: list[KafkaError] = []
    for key, value, headers, timestamp in rows:
        producer.produce(
            topic, value, key, 0, headers=headers or None, timestamp=timestamp,
            on_delivery=lambda error, _: errors.append(error) if error is not None else None,
        )  # fmt: skip
    assert producer.flush(60) == 0
    return errors[0] if errors else None


def promote_by_config(bootstrap: str, topic: str) -> None:
    """Promotes a topic by its setting alone, as any admin client may."""
    entry = ConfigEntry(STATE, PROMOTED, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)


def state(bootstrap: str, topic: str) -> str | None:
    """Returns a topic's mirror state; None for a topic that has none."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = admin.describe_configs([resource])[resource].result(60).get(STATE)
    return None if entry is None else str(entry.value)


def wait_same(source: str, target: str, topic: str) -> None:
    wait_until(lambda: same_ends(source, target, topic), f"the copy of {topic} has everything")
