"""Flows both ways, exactly once, under kills of the mirror and of both brokers, while topics rotate and transactions abort.

Each record and a sample of offsets is checked, under both replication policies. KLAMM_KILLS sets the number of kills for each
(30); KLAMM_SEED chooses them.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.broker import new_name, new_topic, wait_until
from support.gaps import make
from support.kafka_broker import KafkaBroker
from support.klamm import Server
from support.mirror import kill, mirror_file
from support.mirroring_once import Mirror, read_committed

from klamm.testing import EmbeddedBroker
from klamm_kafka.client import Cluster
from klamm_mirror.offsets.segment_topic import SegmentReader

KILLS = int(os.environ.get("KLAMM_KILLS", "30"))
SEED = int(os.environ.get("KLAMM_SEED", "7"))
PARTITIONS = 2
KILLS_PER_TOPIC = 4
MANY = 1_200
SAMPLE = 11
IDENTITY, DEFAULT = "IdentityReplicationPolicy", "DefaultReplicationPolicy"
Row = tuple[int, bytes]


class Writer(threading.Thread):
    """Writes records that begin with its alias into the topic of the hour, in transactions; each third one is aborted.

    A broker that is killed leaves some outcomes open: what the source says is committed is the truth.
    """

    def __init__(self, alias: str, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        self.stopping = threading.Event()
        self.written = 0
        self._alias, self._servers = alias, bootstrap

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._write_with(self._producer())
            except KafkaException:
                time.sleep(0.2)  # fenced, or no broker: another producer goes on

    def _producer(self) -> Producer:
        config = {"bootstrap.servers": self._servers, "transactional.id": f"writer-{self._alias}"}
        producer = Producer({**config, "linger.ms": 1})
        producer.init_transactions(30)
        return producer

    def _write_with(self, producer: Producer) -> None:
        for round_ in range(1_000_000):
            if self.stopping.is_set():
                return
            producer.begin_transaction()
            for _ in range(10):
                value = f"{self._alias}-{self.written}".encode()
                producer.produce(self.topic, value, partition=self.written % PARTITIONS)
                self.written += 1
            if round_ % 3 == 2:
                producer.flush(10)
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
            time.sleep(0.03)


class World:
    """Two clusters, flows both ways by one policy, and writers at both."""

    def __init__(self, brokers: dict[str, EmbeddedBroker], policy: str, path: Path) -> None:
        self.brokers, self.policy = brokers, policy
        self.prefix = new_name("soak")
        self.topics: list[str] = []
        one, other = brokers
        settings = {
            f"{one}->{other}.enabled": "true", f"{other}->{one}.enabled": "true",
            "topics": f"{self.prefix}.*", "replication.policy.class": policy, "emit.heartbeats.enabled": "false",
            **{f"{alias}.exactly.once.source.support": "enabled" for alias in brokers},
        }  # fmt: skip
        addresses = {alias: broker.bootstrap for alias, broker in brokers.items()}
        self.file = mirror_file(path / "mm2.properties", addresses, settings)
        self.rotate()
        self.writers = {a: Writer(a, b.bootstrap, self.topics[-1]) for a, b in brokers.items()}
        self.server = Server("mirror", "start", str(self.file))

    def rotate(self) -> None:
        """Goes on with a new topic at both clusters."""
        self.topics.append(f"{self.prefix}-{len(self.topics)}")
        for broker in self.brokers.values():
            make(broker.bootstrap, self.topics[-1], PARTITIONS)

    def strike(self, chance: random.Random) -> None:
        """Kills one of the processes, and starts it again."""
        victim = chance.choice(["flow", "supervisor", *self.brokers])
        if victim in self.brokers:
            self.brokers[victim].kill()
            time.sleep(chance.uniform(0, 0.5))
            self.brokers[victim].start()
            return
        kill(self.server, victim)
        if victim == "supervisor":
            self.server.stop()
            self.server = Server("mirror", "start", str(self.file))

    def flows(self) -> Iterator[tuple[str, str]]:
        one, other = self.brokers
        yield from [(one, other), (other, one)]

    def rows(self, at: str, topic: str, partition: int, of: str) -> list[Row]:
        """The committed records of a topic at a cluster that were written at cluster `of`."""
        name = topic if self.policy == IDENTITY or at == of else f"{of}.{topic}"
        found = read_committed(self.brokers[at].bootstrap, name, partition)
        return [(offset, value) for offset, value in found if value.startswith(f"{of}-".encode())]

    def check(self, topic: str) -> int:
        """Checks a topic that nobody writes any more. Returns the number of its records."""
        return sum(
            asyncio.run(self._check(source, target, topic, partition))
            for source, target in self.flows()
            for partition in range(PARTITIONS)
        )

    async def _check(self, source: str, target: str, topic: str, partition: int) -> int:
        sent = self.rows(source, topic, partition, source)
        wait_until(
            lambda: len(self.rows(target, topic, partition, source)) >= len(sent), f"{topic}", timeout_s=120
        )
        got = self.rows(target, topic, partition, source)
        assert [v for _, v in got] == [v for _, v in sent], (source, target, topic, partition)
        there = {value: offset for offset, value in got}
        async with Cluster(self.brokers[target].bootstrap) as cluster:
            reader = SegmentReader(cluster, f"mm2-offset-segments.{source}.internal")
            assert await reader.catch_up()
        for offset, value in [*sent[::SAMPLE], *sent[-1:]]:
            assert reader.store.translate((topic, partition), offset) == there[value], (topic, value)
            assert reader.store.translate_back((topic, partition), there[value]) == offset, (topic, value)
        return len(sent)

    def delete(self, topic: str) -> None:
        """Deletes a topic where it is written; its copy stays. Under one name, the opposite flow would make it again."""
        if self.policy == DEFAULT:
            for broker in self.brokers.values():
                admin = AdminClient({"bootstrap.servers": broker.bootstrap})
                admin.delete_topics([topic])[topic].result(60)

    def end(self) -> None:
        for writer in self.writers.values():
            writer.stopping.set()
        self.server.stop()


@contextmanager
def worlds(policy: str, path: Path) -> Iterator[World]:
    a, b = new_name("a"), new_name("b")
    with EmbeddedBroker(path / "a") as one, EmbeddedBroker(path / "b") as other:
        world = World({a: one, b: other}, policy, path)
        try:
            yield world
        finally:
            world.end()


@pytest.mark.usefixtures("soak")
@pytest.mark.timeout(300 + 60 * KILLS)
@pytest.mark.parametrize("policy", [DEFAULT, IDENTITY])
def test_records_of_both_sides_come_once_whatever_is_killed(tmp_path: Path, policy: str):
    print(f"seed {SEED}, {KILLS} kills, {policy}")
    chance = random.Random(SEED)
    records = checked = 0
    with worlds(policy, tmp_path) as world:
        for writer in world.writers.values():
            writer.start()
        for number in range(1, KILLS + 1):
            time.sleep(chance.uniform(0.3, 2))
            world.strike(chance)
            if number % KILLS_PER_TOPIC == 0:
                world.rotate()
                for writer in world.writers.values():
                    writer.topic = world.topics[-1]
            if number % KILLS_PER_TOPIC == 2 and len(world.topics) > checked + 2:
                records += world.check(world.topics[checked])
                world.delete(world.topics[checked])
                checked += 1
        for writer in world.writers.values():
            writer.stopping.set()
            writer.join(90)
            assert not writer.is_alive()
        records += sum(world.check(topic) for topic in world.topics[checked:])
    print(f"{records} records of {len(world.topics)} topics checked")
    assert records > 10 * KILLS


def read_everything(bootstrap: str, topic: str, partitions: int) -> dict[int, list[int]]:
    """The committed numbers of all partitions."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
         "auto.offset.reset": "earliest", "isolation.level": "read_committed", "enable.partition.eof": True}
    )  # fmt: skip
    found: dict[int, list[int]] = {p: [] for p in range(partitions)}
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in found])
        while len(ended) < partitions:
            for m in consumer.consume(10_000, 1.0):
                if m.error() is None:
                    found[m.partition()].append(int(m.value()))
                elif m.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(m.partition())
    finally:
        consumer.close()
    return found


@pytest.mark.usefixtures("soak")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["klamm", pytest.param("apache", marks=pytest.mark.needs("apache_kafka"))])
def test_one_task_writes_transactions_over_many_partitions(tmp_path: Path, kind: str):
    (tmp_path / "kafka").mkdir()
    target = EmbeddedBroker(tmp_path / "b") if kind == "klamm" else KafkaBroker(tmp_path / "kafka", {})
    with EmbeddedBroker(tmp_path / "a") as source, target:
        address = target.address if isinstance(target, KafkaBroker) else target.bootstrap
        topic = new_topic(source, MANY)
        mirror = Mirror(source.bootstrap, address, topic, tmp_path)
        producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 50})
        wanted: list[int] = []
        try:
            for round_ in range(4):
                for number in range(5 * round_, 5 * round_ + 5):
                    wanted.append(number)
                    for partition in range(MANY):
                        producer.produce(topic, b"%d" % number, partition=partition)
                        producer.poll(0)
                assert producer.flush(60) == 0
                time.sleep(1.5 * round_)
                if round_ < 3:
                    mirror.kill()
            whole = dict.fromkeys(range(MANY), wanted)
            remote = f"A.{topic}"

            def arrived() -> bool:
                found = read_everything(address, remote, MANY)
                return sum(map(len, found.values())) >= MANY * len(wanted)

            wait_until(arrived, "all records", timeout_s=300)
            assert read_everything(address, remote, MANY) == whole
        finally:
            mirror.worker.end()
