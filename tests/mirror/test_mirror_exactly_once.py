"""MirrorSourceConnector with `exactly.once.source.support=enabled`: each record once, whatever is killed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from support.broker import new_topic
from support.connect_worker import WorkerProcess, wait_for, worker_properties
from support.mirroring import Row, produce, props

from klamm.testing import EmbeddedBroker

KAFKA_NAME = "org.apache.kafka.connect.mirror.MirrorSourceConnector"


def numbered(first: int, count: int) -> list[Row]:
    return [(None, b"%d" % i, [], 1_700_000_000_000 + i) for i in range(first, first + count)]


def read_committed(bootstrap: str, topic: str, partition: int = 0) -> list[tuple[int, bytes]]:
    """Offsets and values of all records that are committed by now."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
         "auto.offset.reset": "earliest", "isolation.level": "read_committed", "enable.partition.eof": True}
    )  # fmt: skip
    found: list[tuple[int, bytes]] = []
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


class Mirror:
    """A worker at the target that runs the connector, and dies at will."""

    def __init__(self, source: EmbeddedBroker, target: EmbeddedBroker, topic: str, path: Path) -> None:
        self.name = f"m{uuid.uuid4().hex[:8]}"
        self.target, self.topic, self.path = target, topic, path
        self.properties = worker_properties(
            target.bootstrap, self.name, **{"exactly.once.source.support": "enabled"}
        )
        self.worker = WorkerProcess(self.properties, path).wait_ready()
        config = props(source.bootstrap, target.bootstrap, topics=topic)
        config |= {"connector.class": KAFKA_NAME, "name": self.name, "exactly.once.support": "required"}
        answer = self.worker.request("POST", "/connectors", {"name": self.name, "config": config})
        assert answer.status == 201, answer.body

    def kill(self) -> None:
        self.worker.process.kill()
        self.worker.end()
        self.worker = WorkerProcess(self.properties, self.path).wait_ready()

    def progress(self) -> dict:
        tasks = self.worker.get(f"/connectors/{self.name}/status").get("tasks") or [{}]
        return tasks[0].get("progress") or {}

    def wait_for_records(self, count: int) -> list[tuple[int, bytes]]:
        """Waits until so many are committed."""
        found: list[tuple[int, bytes]] = []

        def enough() -> bool:
            found[:] = read_committed(self.target.bootstrap, f"A.{self.topic}")
            return len(found) >= count

        wait_for(enough, lambda: f"{len(found)} of {count}; {self.progress()}\n{self.worker.log}", 90)
        return found


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    with EmbeddedBroker(tmp_path / "a") as source, EmbeddedBroker(tmp_path / "b") as target:
        yield source, target


@pytest.mark.usefixtures("processes")
def test_each_record_comes_once_after_kills_of_every_process(clusters, tmp_path: Path):
    source, target = clusters
    topic = new_topic(source)
    mirror = Mirror(source, target, topic, tmp_path)
    sent: list[Row] = []
    try:
        for round_, victim in enumerate([None, "mirror", "target", "source", "mirror"]):
            more = numbered(len(sent), 5_000)
            produce(source.bootstrap, topic, more[:2_500])
            if victim == "mirror":
                mirror.kill()
            elif victim is not None:
                broker = target if victim == "target" else source
                broker.kill()
                broker.start()
            produce(source.bootstrap, topic, more[2_500:])
            sent += more
            if round_ % 2:
                mirror.wait_for_records(len(sent))
        got = mirror.wait_for_records(len(sent))
        assert [value for _, value in got] == [value for _, value, _, _ in sent]
    finally:
        mirror.worker.end()


@pytest.mark.usefixtures("processes")
def test_aborted_records_are_refused_with_exactly_once(clusters, tmp_path: Path):
    source, target = clusters
    mirror = Mirror(source, target, new_topic(source), tmp_path)
    try:
        config = mirror.worker.get(f"/connectors/{mirror.name}/config")
        config["source.consumer.isolation.level"] = "read_uncommitted"
        answer = mirror.worker.request("PUT", f"/connectors/{mirror.name}/config", config)
        assert answer.status == 400
        assert "exactly" in answer.json["message"]
    finally:
        mirror.worker.end()
