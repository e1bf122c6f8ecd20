"""`kill -9` of the broker under load while a group commits: acknowledged commits stay, positions never go back."""

from __future__ import annotations

import random
import threading
import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from support.broker import new_topic, wait_until
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

GROUP = "g"
ALONE = "alone"
RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


class Load(threading.Thread):
    """Produces numbers, in order and each exactly once, until it is stopped."""

    def __init__(self, broker: EmbeddedBroker, topic: str) -> None:
        super().__init__()
        self.stopped = threading.Event()
        self._topic = topic
        self._producer = Producer({
            "bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 1,
            "message.timeout.ms": 60_000, **RECONNECT,
        })  # fmt: skip

    def run(self) -> None:
        number = 0
        while not self.stopped.is_set():
            for _ in range(5):
                self._producer.produce(self._topic, b"%d" % number, partition=0)
                number += 1
            self._producer.poll(0.002)
            while len(self._producer) > 50_000:  # its queue is full at twice that, when a start takes long
                self._producer.poll(0.1)
        self.left = self._producer.flush(60)


class Member(threading.Thread):
    """A consumer that lives through all kills, and commits what it has read, each time waiting for the answer."""

    def __init__(self, broker: EmbeddedBroker, topic: str) -> None:
        super().__init__()
        self.stopped = threading.Event()
        self.acknowledged: list[int] = []
        self.attempted = 0
        self.numbers: list[int] = []
        self._topic = topic
        self._consumer = Consumer({
            "bootstrap.servers": broker.bootstrap, "group.id": GROUP, "enable.auto.commit": False,
            "auto.offset.reset": "error", "fetch.wait.max.ms": 20, "session.timeout.ms": 45_000, **RECONNECT,
        })  # fmt: skip
        self._consumer.subscribe([topic])

    def run(self) -> None:
        while not self.stopped.is_set():
            messages = [m for m in self._consumer.consume(50, 0.02) if m.error() is None]
            if not messages:
                continue
            self.numbers += [int(m.value()) for m in messages]
            self.attempted = messages[-1].offset() + 1
            try:
                self._consumer.commit(
                    offsets=[TopicPartition(self._topic, 0, self.attempted)], asynchronous=False
                )
            except KafkaException:
                continue  # not acknowledged: it may have been written or not
            self.acknowledged.append(self.attempted)
        self._consumer.close()


class Committer(threading.Thread):
    """Commits rising offsets for a group without members, until the broker is killed; it repeats nothing.

    Nobody else commits for that group, so what a broker has after its start is what it has kept.
    """

    def __init__(self, broker: EmbeddedBroker, topic: str, start: int) -> None:
        super().__init__()
        self.acknowledged = start
        self.count = 0
        self.error = 0
        self._topic = topic
        self._port = int(broker.bootstrap.rpartition(":")[2])

    def run(self) -> None:
        with RawClient(self._port) as client:
            while not self.error:
                part = OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=self.acknowledged + 1, committed_metadata=""
                )
                asked = OffsetCommitRequestTopic(name=self._topic, partitions=[part])
                try:
                    answer = client.request(OffsetCommitRequest(group_id=ALONE, topics=[asked]), version=9)
                except OSError:
                    return
                self.error = answer.topics[0].partitions[0].error_code
                if not self.error:
                    self.acknowledged += 1
                    self.count += 1


def committed(broker: EmbeddedBroker, topic: str, group: str = GROUP) -> int:
    """Returns what the broker says, read as an administrator would, by somebody who has no memory of the group."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        return reader.committed([TopicPartition(topic, 0)], timeout=60)[0].offset
    finally:
        reader.close()


def check_kills(tmp_path, *, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    said = f"(seed {seed})"
    config = {"log.segment.bytes": "1048576", "group.initial.rebalance.delay.ms": "0"}
    with EmbeddedBroker(tmp_path / "data", config=config) as broker:
        topic = new_topic(broker)
        start = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
        start.commit(
            offsets=[TopicPartition(topic, 0, 0)], asynchronous=False
        )  # so that no reset is ever right
        start.close()
        committed(broker, topic, ALONE)  # its coordinator serves when this is answered
        load, member = Load(broker, topic), Member(broker, topic)
        load.start()
        member.start()
        last_seen = alone = 0
        try:
            for _ in range(kills):
                before = len(member.acknowledged)
                committer = Committer(broker, topic, alone)
                committer.start()
                wait_until(
                    lambda: len(member.acknowledged) > before + 5 and committer.count > 5,
                    "commits acknowledged",
                )
                time.sleep(chance.random() * 0.2)
                broker.kill()
                acknowledged = member.acknowledged[-1]
                committer.join()
                assert committer.error == 0
                broker.start()
                alone = committed(broker, topic, ALONE)
                assert 0 <= alone - committer.acknowledged <= 1, (
                    f"{committer.acknowledged} was acknowledged, {alone} is there {said}"
                )
                found = committed(broker, topic)
                assert found >= acknowledged, f"{acknowledged} was acknowledged, {found} is there {said}"
                assert found >= last_seen, f"{last_seen} was there, now {found} {said}"
                last_seen = found
            before = len(member.acknowledged)
            wait_until(lambda: len(member.acknowledged) > before + 1, "commits go on", timeout_s=60)
        finally:
            for thread in (load, member):
                thread.stopped.set()
            for thread in (load, member):
                thread.join()
        assert load.left == 0
        assert committed(broker, topic) >= member.acknowledged[-1] > 0
        assert member.acknowledged == sorted(member.acknowledged)
        assert member.numbers == list(range(len(member.numbers))), f"read twice, or left out {said}"


@pytest.mark.usefixtures("processes")
def test_acknowledged_commits_survive_kills(tmp_path):
    check_kills(tmp_path, kills=3, seed=random.randrange(1 << 30))


@pytest.mark.usefixtures("processes")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(4))
def test_acknowledged_commits_survive_many_kills(tmp_path, seed):
    check_kills(tmp_path, kills=12, seed=seed)
