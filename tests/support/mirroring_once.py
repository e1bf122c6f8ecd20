"""A worker that mirrors exactly once, and what readers of committed records see: for the tests that kill it."""

from __future__ import annotations

import uuid
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition
from support.connect_worker import WorkerProcess, wait_for, worker_properties
from support.mirroring import Row, props

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

    def __init__(
        self, source: str, target: str, topic: str, path: Path, *, once: bool = True, **more: str
    ) -> None:
        self.name = f"m{uuid.uuid4().hex[:8]}"
        self.target, self.topic, self.path = target, topic, path
        self.properties = worker_properties(
            target, self.name, **({"exactly.once.source.support": "enabled"} if once else {})
        )
        self.worker = WorkerProcess(self.properties, path).wait_ready()
        config = props(source, target, topics=topic, **more)
        config |= {"connector.class": KAFKA_NAME, "name": self.name}
        config |= {"exactly.once.support": "required"} if once else {}
        answer = self.worker.request("POST", "/connectors", {"name": self.name, "config": config})
        assert answer.status == 201, answer.body

    def kill(self) -> None:
        self.worker.process.kill()
        self.worker.end()
        self.worker = WorkerProcess(self.properties, self.path).wait_ready()

    def progress(self) -> dict:
        tasks = self.worker.get(f"/connectors/{self.name}/status").get("tasks") or [{}]
        return tasks[0].get("progress") or {}

    def trace(self) -> str:
        """Returns all that the connector's status says."""
        return str(self.worker.get(f"/connectors/{self.name}/status"))

    def details(self) -> dict:
        return self.progress().get("details") or {}

    def wait_for_records(self, count: int) -> list[tuple[int, bytes]]:
        """Waits until so many are committed."""
        found: list[tuple[int, bytes]] = []

        def enough() -> bool:
            found[:] = read_committed(self.target, f"A.{self.topic}")
            return len(found) >= count

        wait_for(enough, lambda: f"{len(found)} of {count}; {self.progress()}\n{self.worker.log}", 90)
        return found
