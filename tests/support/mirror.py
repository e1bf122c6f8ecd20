"""`klamm mirror start` in tests: its file, and what producers and consumers at both clusters see."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.klamm import Server, gone, klamm

QUICK = {
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
}
"""No long waits. Nothing is said of replicas: there are as many as the cluster has brokers."""
BATCH = 200
"""Records between two looks at whether there are enough."""


def mirror_file(path: Path, clusters: dict[str, str], settings: dict[str, str]) -> Path:
    """Returns mm2.properties for clusters by alias (bootstrap servers), quick, with `settings` on top."""
    lines = {"clusters": ",".join(clusters), **QUICK}
    lines |= {f"{alias}.bootstrap.servers": servers for alias, servers in clusters.items()}
    path.write_text("".join(f"{k}={v}\n" for k, v in (lines | settings).items()))
    return path


def kill(server: Server, victim: str) -> None:
    """Kills the `supervisor` that watches over the flows, or the processes of all flows (`flow`), with all of their children."""
    assert server.process is not None
    supervisor = psutil.Process(server.process.pid)
    for process in [supervisor] if victim == "supervisor" else supervisor.children(recursive=True):
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended with its parent
        assert gone(process.pid)


def produce(bootstrap: str, topic: str, values: Iterable[str]) -> None:
    """Writes records, which are acknowledged when it returns."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(60) == 0


def read_all(
    bootstrap: str, topic: str, enough: Callable[[list[str]], bool], timeout_s: float = 60
) -> list[str]:
    """Returns the values of a topic from its beginning on, in order of arrival, until there are enough."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"reader-{time.monotonic_ns()}", "enable.auto.commit": False,
         "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 200}
    )  # fmt: skip
    return _consume(consumer, topic, enough, timeout_s)


def read_as(
    bootstrap: str, group: str, topic: str, enough: Callable[[list[str]], bool], timeout_s: float = 60
) -> list[str]:
    """Reads as a member of a group until there is enough; commits it and leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    return _consume(consumer, topic, enough, timeout_s, commit=True)


def _consume(
    consumer: Consumer,
    topic: str,
    enough: Callable[[list[str]], bool],
    timeout_s: float,
    *,
    commit: bool = False,
) -> list[str]:
    values: list[str] = []
    deadline = time.monotonic() + timeout_s
    try:
        consumer.subscribe([topic])
        while not enough(values):
            assert time.monotonic() < deadline, f"{topic}: {len(values)} records within {timeout_s} s"
            values += [r.value().decode() for r in consumer.consume(BATCH, 0.2) if not r.error()]
        if commit and values:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """Returns a group's committed offset; negative when there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        return int(consumer.committed([TopicPartition(topic, partition)], 60)[0].offset)
    finally:
        consumer.close()


def status(path: Path) -> dict[str, dict[str, Any]]:
    """The flows' statuses by name, as `klamm mirror status` prints them now."""
    shown = klamm("mirror", "status", str(path), "-o", "json")
    assert shown.returncode in {0, 3}, shown.stderr
    return {flow["flow"]: flow for flow in json.loads(shown.stdout)["flows"]}


def states(path: Path) -> list[str]:
    """The states of all connectors and tasks of all flows."""
    connectors = [c for flow in status(path).values() for c in flow["connectors"]]
    return [part["state"] for c in connectors for part in (c, *c["tasks"])]


def topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics)
