"""A cluster with life in it: groups of both protocols with members, static ones too, and transactions under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import wait_until


@contextmanager
def living(address: str, topic: str) -> Iterator[None]:
    """Lives until the end: groups `static`, `plain`, `modern` read the topic; `tx-0` is open on partition 0, `tx-1` committed."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
    producers = [_transaction(address, topic, i) for i in range(2)]
    producers[1].commit_transaction(60)
    members = [
        *(
            _member(address, "static", {"group.instance.id": f"instance-{i}", "client.id": "shared"})
            for i in range(2)
        ),
        _member(address, "plain", {"client.id": "a-client-id-of-more-than-fifteen-letters"}),
        *(_member(address, "modern", {"group.protocol": "consumer", "client.id": f"m{i}"}) for i in range(2)),
    ]
    for member in members:
        member.subscribe([topic])
    stop = threading.Event()
    thread = threading.Thread(target=_poll, args=(members, stop))
    thread.start()
    try:
        wait_until(lambda: all(m.assignment() for m in members), "all members have partitions", timeout_s=60)
        _commit(members, topic)
        wait_until(lambda: _stable(admin), "all members have told their groups what they have")
        yield
    finally:
        stop.set()
        thread.join()
        for member in members:
            member.close()
        producers[0].abort_transaction(60)


def _member(address: str, group: str, config: dict[str, str]) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **config,
        }
    )


def _transaction(address: str, topic: str, number: int) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": f"tx-{number}",
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=number)
    assert producer.flush(60) == 0
    return producer


def _stable(admin: AdminClient) -> bool:
    found = admin.describe_consumer_groups(["static", "plain", "modern"]).values()
    return all(group.result(60).state is ConsumerGroupState.STABLE for group in found)


def _poll(members: list[Consumer], stop: threading.Event) -> None:
    while not stop.is_set():
        for member in members:
            member.poll(0.02)


def _commit(members: list[Consumer], topic: str) -> None:
    """Commits one offset of each partition that is assigned."""
    for member in members:
        offsets = [TopicPartition(topic, tp.partition, 0) for tp in member.assignment()]

        def done(member: Consumer = member, offsets: list[TopicPartition] = offsets) -> bool:
            try:
                member.commit(offsets=offsets, asynchronous=False)
            except KafkaException:  # the member has just been given another generation
                return False
            return True

        wait_until(done, "an offset is committed", timeout_s=60)
