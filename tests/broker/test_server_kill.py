"""`kill -9` of the broker under load, at random moments: what was acknowledged is there, offsets never go back."""

from __future__ import annotations

import random
import threading
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.broker import new_topic, wait_until

from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("processes")

PARTITIONS = 2


class Load:
    """A producer in a thread, which notes the offset of every acknowledged record."""

    def __init__(self, broker: EmbeddedBroker, topic: str, *, idempotent: bool) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.duplicates: list[tuple[int, int]] = []
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer({
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": idempotent,
            "linger.ms": 1,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "message.timeout.ms": 60_000,
        })  # fmt: skip
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(20):
                value = b"%d:" % number + bytes(number % 700)
                self._producer.produce(
                    self._topic, value, partition=number % PARTITIONS, on_delivery=self._delivered
                )
                number += 1
            self._producer.poll(0.002)
            while len(self._producer) > 50_000:  # its queue is full at twice that, when a start takes long
                self._producer.poll(0.1)
        self.left = self._producer.flush(60)

    def _delivered(self, error, message) -> None:
        if error is None:
            where = (message.partition(), message.offset())
            if where in self.acknowledged:
                self.duplicates.append(where)
            self.acknowledged[where] = message.value()


def read_all(broker: EmbeddedBroker, topic: str) -> dict[tuple[int, int], bytes]:
    reader = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "check", "enable.auto.commit": False, "check.crcs": True,
    })  # fmt: skip
    partitions = [TopicPartition(topic, p, 0) for p in range(PARTITIONS)]
    ends = {p.partition: reader.get_watermark_offsets(p, timeout=60)[1] for p in partitions}
    reader.assign(partitions)
    found: dict[tuple[int, int], bytes] = {}
    deadline = time.monotonic() + 60
    while len(found) < sum(ends.values()) and time.monotonic() < deadline:
        for message in reader.consume(500, 0.2):
            assert message.error() is None
            found[message.partition(), message.offset()] = message.value()
    reader.close()
    for partition, end in ends.items():
        assert sorted(o for p, o in found if p == partition) == list(range(end)), "offsets have no gaps"
    return found


def check_kills(tmp_path, *, kills: int, idempotent: bool, seed: int) -> None:
    chance = random.Random(seed)
    with EmbeddedBroker(tmp_path / "data", config={"log.segment.bytes": "1048576"}) as broker:
        topic = new_topic(broker, partitions=PARTITIONS)
        with Load(broker, topic, idempotent=idempotent) as load:
            for _ in range(kills):
                before = len(load.acknowledged)
                wait_until(lambda: len(load.acknowledged) > before + 50, "records acknowledged", timeout_s=60)
                time.sleep(chance.random() * 0.3)
                broker.kill()
                broker.start()
        found = read_all(broker, topic)
        lost = [where for where, value in load.acknowledged.items() if found.get(where) != value]
        assert not lost, (
            f"{len(lost)} of {len(load.acknowledged)} acknowledged records lost, first {lost[:3]} (seed {seed})"
        )
        assert not load.duplicates, f"offsets acknowledged twice: {load.duplicates[:3]} (seed {seed})"
        if idempotent:
            assert load.left == 0
            values = sorted(int(v.partition(b":")[0]) for v in found.values())
            assert values == list(range(len(values))), f"a record is there twice or not at all (seed {seed})"


@pytest.mark.parametrize("idempotent", [True, False])
def test_nothing_acknowledged_is_lost(tmp_path, idempotent):
    check_kills(tmp_path, kills=3, idempotent=idempotent, seed=random.randrange(1 << 30))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_nothing_acknowledged_is_lost_in_many_kills(tmp_path, seed):
    check_kills(tmp_path, kills=12, idempotent=seed % 2 == 0, seed=seed)


def test_metadata_is_whole_after_a_kill_during_creations(tmp_path):
    """Topics that were answered exist with all their partitions; those that were not, exist wholly or not at all."""
    from confluent_kafka.admin import AdminClient, NewTopic

    with EmbeddedBroker(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "socket.timeout.ms": 3000})
        answered = []
        for number in range(30):
            future = admin.create_topics([NewTopic(f"t{number}", 5, 1)], operation_timeout=1)[f"t{number}"]
            if number == 20:
                broker.kill()
                break
            future.result(60)
            answered.append(f"t{number}")
        broker.start()
        found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
        assert set(answered) <= found.keys()
        assert all(len(topic.partitions) == 5 for name, topic in found.items() if name.startswith("t"))
