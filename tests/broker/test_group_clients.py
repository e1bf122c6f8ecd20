"""Consumer groups and idempotent producers with real clients against a real broker process."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support import kafka_oracle, needs
from support.broker import new_name, new_topic, wait_until

from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("processes")

QUIET = {"log_level": 0}  # a stopped broker is not worth lines on standard error


def produce(broker, topic: str, count: int, partitions: int, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    for i in range(first, first + count):
        producer.produce(topic, str(i).encode(), partition=i % partitions)
    assert producer.flush(60) == 0


class Member:
    """A confluent-kafka consumer that polls in a thread."""

    def __init__(self, broker, group: str, topic: str, **config) -> None:
        self.assigned: set[int] = set()
        self.rebalances = 0
        self.seen: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 30_000,  # nobody is to be missed while the machine stands still
                "heartbeat.interval.ms": 200,
                "reconnect.backoff.max.ms": 200,
                **QUIET,
                **config,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _on_assign(self, consumer, partitions) -> None:
        self.rebalances += 1
        self.assigned = {p.partition for p in partitions}

    def _on_revoke(self, consumer, partitions) -> None:
        self.assigned = set()

    def _poll(self) -> None:
        while not self._stop.is_set():
            message = self.consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.seen.append(int(message.value()))

    def stop(self) -> None:
        """Stop to poll, without leaving."""
        self._stop.set()
        self._thread.join()

    def close(self) -> None:
        self.stop()
        self.consumer.close()


@pytest.fixture
def members(broker):
    """Makes members and closes what is left of them."""
    made: list[Member] = []

    def make(group: str, topic: str, *, at=broker, **config) -> Member:
        made.append(Member(at, group, topic, **config))
        return made[-1]

    yield make
    for member in made:
        member.close()


def shares(*members: Member) -> list[set[int]]:
    return [m.assigned for m in members]


def balanced(partitions: int, *members: Member) -> bool:
    """Returns whether every partition belongs to exactly one member, and every member has some."""
    owned = [p for m in members for p in m.assigned]
    return sorted(owned) == list(range(partitions)) and all(m.assigned for m in members)


def test_members_share_partitions_and_inherit_them(broker, members):
    topic, group = new_topic(broker, 6), new_name("group")
    produce(broker, topic, 60, 6)
    a = members(group, topic)
    wait_until(lambda: balanced(6, a), "one member has all")
    b, c = members(group, topic), members(group, topic)
    wait_until(lambda: balanced(6, a, b, c), "three members share")
    b.close()
    wait_until(lambda: balanced(6, a, c), "two members inherit")
    wait_until(lambda: set(range(60)) <= set(a.seen + b.seen + c.seen), "everything was read")


def test_cooperative_rebalancing(broker, members):
    """Incremental assignment: the group joins twice for every change."""
    topic, group = new_topic(broker, 4), new_name("group")

    class Incremental(Member):
        def _on_assign(self, consumer, partitions):
            self.assigned = self.assigned | {p.partition for p in partitions}
            consumer.incremental_assign(partitions)

        def _on_revoke(self, consumer, partitions):
            self.assigned = self.assigned - {p.partition for p in partitions}
            consumer.incremental_unassign(partitions)

    how = {"partition.assignment.strategy": "cooperative-sticky"}
    a = Incremental(broker, group, topic, **how)
    try:
        wait_until(lambda: balanced(4, a), "one member has all")
        b = Incremental(broker, group, topic, **how)
        try:
            wait_until(lambda: balanced(4, a, b), "two members share")
        finally:
            b.close()
        wait_until(lambda: balanced(4, a), "one member has all again")
    finally:
        a.close()


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(broker, members):
    topic, group = new_topic(broker, 4), new_name("group")
    a = members(group, topic, **{"group.instance.id": "a"})
    b = members(group, topic, **{"group.instance.id": "b"})
    wait_until(lambda: balanced(4, a, b), "two members share")
    before, rebalances = b.assigned, a.rebalances
    b.close()
    again = members(group, topic, **{"group.instance.id": "b"})
    wait_until(lambda: again.assigned, "it has partitions again")
    assert again.assigned == before
    assert a.rebalances == rebalances
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(60)
    assert {m.group_instance_id for m in described.members} == {"a", "b"}


def test_admin(broker, members):
    topic, group = new_topic(broker, 2), new_name("group")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    produce(broker, topic, 10, 2)
    member = members(group, topic, **{"client.id": "me"})
    wait_until(lambda: len(member.seen) == 10, "all is read")
    member.stop()  # a commit that waits beside a poll in another thread does not leave the client
    member.consumer.commit(asynchronous=False)
    described = admin.describe_consumer_groups([group])[group].result(60)
    assert described.state.name == "STABLE"
    assert described.partition_assignor == "range"
    assert described.members[0].client_id == "me"
    assert {(p.topic, p.partition) for p in described.members[0].assignment.topic_partitions} == {
        (topic, 0),
        (topic, 1),
    }
    listed = {g.group_id: g for g in admin.list_consumer_groups().result(60).valid}
    assert listed[group].state.name == "STABLE"
    assert not listed[group].is_simple_consumer_group
    fetched = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    assert {(p.partition, p.offset) for p in fetched.topic_partitions} == {(0, 5), (1, 5)}
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(60)
    member.close()
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    admin.alter_consumer_group_offsets([moved])[group].result(60)
    fetched = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    assert {(p.partition, p.offset) for p in fetched.topic_partitions} == {(0, 2), (1, 5)}
    admin.delete_consumer_groups([group])[group].result(60)
    assert group not in {g.group_id for g in admin.list_consumer_groups().result(60).valid}


def test_a_simple_consumer_commits_without_a_group(broker):
    topic, group = new_topic(broker, 1), new_name("group")
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False, **QUIET}
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.commit(offsets=[TopicPartition(topic, 0, 7, "note")], asynchronous=False)
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
    assert (found.offset, found.metadata) == (7, "note")
    consumer.close()


def _read(consumer: Consumer, count: int, *, timeout_s: float = 60) -> list[int]:
    values: list[int] = []
    deadline = time.monotonic() + timeout_s
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(int(message.value()))
    assert len(values) == count
    return values


@pytest.mark.parametrize("kill", [False, True])
def test_a_group_resumes_after_a_broker_restart(tmp_path, kill):
    with EmbeddedBroker(tmp_path / "data") as broker:
        topic, group = new_topic(broker, 1), new_name("group")
        config = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
            "reconnect.backoff.max.ms": 100,
            **QUIET,
        }
        produce(broker, topic, 20, 1)
        consumer = Consumer(config)
        consumer.subscribe([topic])
        assert _read(consumer, 10) == list(range(10))
        consumer.commit(offsets=[TopicPartition(topic, 0, 10)], asynchronous=False)
        (broker.kill if kill else broker.stop)()
        broker.start()
        # The member is still one, in its generation: its heartbeat and its commit are good.
        assert _read(consumer, 10) == list(range(10, 20))
        wait_until(lambda: _commits(consumer, TopicPartition(topic, 0, 15)), "the commit is accepted")
        consumer.close()
        (broker.kill if kill else broker.stop)()
        broker.start()
        other = Consumer(config)
        other.subscribe([topic])
        assert _read(other, 5) == list(range(15, 20))
        other.close()


def _commits(consumer: Consumer, at: TopicPartition) -> bool:
    try:
        consumer.commit(offsets=[at], asynchronous=False)
    except KafkaException:
        return False
    return True


def test_acknowledged_commits_survive_kill_9(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker:
        topic, group = new_topic(broker, 1), new_name("group")
        config = {"bootstrap.servers": broker.bootstrap, "group.id": group, **QUIET}
        acknowledged = 0
        for life in range(3):
            consumer = Consumer(config)
            consumer.assign([TopicPartition(topic, 0)])
            (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
            assert found.offset == (acknowledged if life else -1001)
            for offset in range(acknowledged + 1, acknowledged + 50):
                consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
                acknowledged = offset
            broker.kill()
            broker.start()
            consumer.close()


def test_idempotent_producers_have_ids_of_their_own_across_restarts(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker:
        topic = new_topic(broker, 1)
        for life in range(2):
            for i in range(2):
                producer = Producer(
                    {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, **QUIET}
                )
                producer.produce(topic, f"{life}-{i}".encode())
                assert producer.flush(60) == 0
            if not life:
                broker.stop()
                broker.start()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", **QUIET})
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (0, 4)
        consumer.close()


async def test_aiokafka(broker):
    aiokafka = needs.module("aiokafka")
    topic, group = new_topic(broker, 4), new_name("group")
    produce(broker, topic, 40, 4)

    def member():
        return aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )

    async def take(consumer, count):
        values = []
        async with asyncio.timeout(60):
            while len(values) < count:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    values += [int(r.value) for r in records]
        return values

    a, b = member(), member()
    await a.start()
    try:
        await b.start()
        async with asyncio.timeout(60):
            while len(a.assignment()) != 2 or len(b.assignment()) != 2:
                await asyncio.gather(a.getmany(timeout_ms=50), b.getmany(timeout_ms=50))
        await b.stop()
        async with asyncio.timeout(60):
            while len(a.assignment()) != 4:
                await a.getmany(timeout_ms=50)
        await a.seek_to_beginning()
        assert sorted(await take(a, 40)) == list(range(40))
        await a.commit()
    finally:
        await a.stop()
        await b.stop()
    produce(broker, topic, 4, 4, first=40)
    c = member()
    await c.start()
    try:
        assert sorted(await take(c, 4)) == list(range(40, 44))
    finally:
        await c.stop()


class KafkaPythonMember:
    """A kafka-python consumer that polls in a thread.

    Its poll must not be short: one that times out while the group is being joined loses the assignment
    (kafka-python 3.0.12).
    """

    def __init__(self, kafka, broker, group: str, topic: str) -> None:
        self.values: list[int] = []
        self.consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.is_set():
            for records in self.consumer.poll(timeout_ms=1000).values():
                self.values += [int(r.value) for r in records]

    def owns(self) -> int:
        return len(self.consumer.assignment())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def close(self) -> None:
        self.stop()
        self.consumer.close()


def test_kafka_python(broker):
    kafka = needs.module("kafka")
    topic, group = new_topic(broker, 4), new_name("group")
    produce(broker, topic, 40, 4)
    a = KafkaPythonMember(kafka, broker, group, topic)
    b = KafkaPythonMember(kafka, broker, group, topic)
    try:
        wait_until(lambda: a.owns() == b.owns() == 2, "two members share", timeout_s=60)
        b.close()
        wait_until(lambda: a.owns() == 4, "one member inherits", timeout_s=60)
        wait_until(lambda: set(a.values) == set(range(40)), "everything was read", timeout_s=60)
        a.stop()
        a.consumer.commit()
        assert a.consumer.committed(kafka.TopicPartition(topic, 0)) == 10
    finally:
        a.close()
        b.close()


@pytest.mark.usefixtures("apache_kafka")
def test_apaches_group_tool(broker):
    oracle = kafka_oracle.require()
    topic, group = new_topic(broker, 1), new_name("group")
    produce(broker, topic, 10, 1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, **QUIET})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    consumer.close()

    def tool(*arguments: str) -> list[list[str]]:
        command = ("--bootstrap-server", broker.bootstrap, "--group", group, *arguments)
        ran = oracle.run("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *command)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return [line.split() for line in ran.stdout.splitlines()]

    assert [group, topic, "0", "4", "10", "6", "-", "-", "-"] in tool("--describe")
    assert [group, topic, "0", "0"] in tool("--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
    assert tool("--delete")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert group not in {g.group_id for g in admin.list_consumer_groups().result(60).valid}
