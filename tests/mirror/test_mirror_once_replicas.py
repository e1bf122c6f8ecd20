"""Exactly once while a partition of the target has too few replicas in sync: the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.connect_worker import wait_for
from support.exactly_once import committed_values
from support.kafka_broker import KafkaBroker
from support.kafka_cluster import SecondNode
from support.mirroring import change
from support.mirroring_once import Mirror, read_committed

from klamm.testing import EmbeddedBroker

BATCH = 50
MIN_ISR = "min.insync.replicas"
LACK = "A.shop-0 has 1 replica in sync, and needs 2 (min.insync.replicas)"


class Shop:
    """Topics at the source, a mirror, and what has come to the target. Places are topics with partitions."""

    def __init__(self, source: str, mirror: Mirror) -> None:
        self.source, self.mirror = source, mirror
        self.target = AdminClient({"bootstrap.servers": mirror.target, "log_level": 0})
        self.sent: dict[tuple[str, int], list[bytes]] = {}

    def make(self, copy: NewTopic) -> None:
        """Makes a topic, after its copy."""
        self.target.create_topics([copy])[copy.topic].result(60)
        topic = copy.topic.removeprefix("A.")
        admin = AdminClient({"bootstrap.servers": self.source})
        admin.create_topics([NewTopic(topic, copy.num_partitions)])[topic].result(60)

    def write(self, *places: tuple[str, int]) -> None:
        """Writes a batch of records into each of these partitions."""
        producer = Producer({"bootstrap.servers": self.source})
        for place in places:
            sent = self.sent.setdefault(place, [])
            more = [b"%d" % i for i in range(len(sent), len(sent) + BATCH)]
            for value in more:
                producer.produce(place[0], value, partition=place[1])
            sent += more
        assert producer.flush(30) == 0

    def wait_for_copies(self, *places: tuple[str, int]) -> None:
        """Waits until readers of committed records see all records of these partitions, each once."""
        for place in places:
            self.until(lambda place=place: len(self.copied(place)) >= len(self.sent[place]))
            assert self.copied(place) == self.sent[place]

    def copied(self, place: tuple[str, int]) -> list[bytes]:
        return [value for _, value in read_committed(self.mirror.target, f"A.{place[0]}", place[1])]

    def in_sync(self, topic: str, partition: int) -> list[int]:
        """Returns the nodes that are in sync with the leader of a copy."""
        return self.target.list_topics(topic, timeout=10).topics[topic].partitions[partition].isrs

    def why(self) -> str:
        return self.mirror.details().get("why") or ""

    def until(self, condition) -> None:
        wait_for(condition, lambda: f"{self.mirror.progress()}\n{self.mirror.worker.log}", 90)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Shop, SecondNode]]:
    """A copy at three nodes of Apache Kafka: partition 0 needs the second of them, partition 1 does not."""
    (tmp_path / "one").mkdir()
    with EmbeddedBroker(tmp_path / "a") as source, KafkaBroker(tmp_path / "one") as first:
        # The worker's own topics are at the first node, which stays.
        often = {"refresh.topics.interval.seconds": "1", "mirror.transaction.interval.ms": "1000"}
        mirror = Mirror(source.bootstrap, first.address, "shop", tmp_path, **often)
        try:
            with (
                SecondNode(first, tmp_path / "two") as second,
                SecondNode(first, tmp_path / "three", number=3),
            ):
                found = Shop(source.bootstrap, mirror)
                config = {MIN_ISR: "2", "retention.ms": "-1"}
                found.make(NewTopic("A.shop", 2, replica_assignment=[[1, 2], [1, 3]], config=config))
                yield found, second
        finally:
            mirror.worker.end()


@pytest.mark.usefixtures("apache_kafka", "processes")
def test_a_partition_under_min_isr_does_not_stop_the_others(shop):
    shop, second = shop
    low, fine = ("shop", 0), ("shop", 1)
    shop.write(low, fine)
    shop.wait_for_copies(low, fine)

    second.stop()
    shop.until(lambda: shop.in_sync("A.shop", 0) == [1])
    for _ in range(3):
        shop.write(low, fine)
        shop.wait_for_copies(fine)
    assert len(shop.copied(low)) == BATCH
    shop.until(lambda: shop.why() == LACK)
    assert shop.mirror.progress()["waiting_for"] == "target"
    assert "going on at the committed offsets" not in shop.mirror.worker.log

    # A transaction that has the partition already cannot end. Nobody can go on, and the status says why.
    change(shop.target, "A.shop", MIN_ISR, "1")
    shop.wait_for_copies(low)
    shop.write(low)
    values = committed_values
    shop.until(lambda: len(values(shop.mirror.target, "A.shop", isolation="read_uncommitted")) == 9 * BATCH)
    change(shop.target, "A.shop", MIN_ISR, "2")
    shop.write(low, fine)
    shop.until(lambda: "the transaction before is not over" in shop.why())
    second.start()
    shop.wait_for_copies(low, fine)


@pytest.mark.usefixtures("processes")
def test_a_topic_that_needs_more_replicas_than_it_has_does_not_stop_the_others(tmp_path: Path):
    with EmbeddedBroker(tmp_path / "a") as source, EmbeddedBroker(tmp_path / "b") as target:
        mirror = Mirror(
            source.bootstrap,
            target.bootstrap,
            "shop,stock",
            tmp_path,
            **{"refresh.topics.interval.seconds": "1"},
        )
        try:
            shop = Shop(source.bootstrap, mirror)
            low, fine = ("shop", 0), ("stock", 0)
            shop.make(NewTopic("A.shop", 1, config={MIN_ISR: "2"}))
            shop.make(NewTopic("A.stock", 1))
            shop.write(low, fine)
            shop.until(lambda: shop.why() == LACK)
            for _ in range(3):
                shop.write(low, fine)
                shop.wait_for_copies(fine)
            assert mirror.worker.log.count("going on at the committed offsets") <= 1
            change(shop.target, "A.shop", MIN_ISR, "1")
            shop.wait_for_copies(low)
        finally:
            mirror.worker.end()
