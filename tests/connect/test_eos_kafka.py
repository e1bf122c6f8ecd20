"""Exactly once on Apache Kafka, and between Apache's workers and ours: each takes over what the other was in the middle of."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker import new_name
from support.connect_worker import STRING, WorkerProcess, wait_for, worker_properties
from support.exactly_once import Feeder, check_exactly_once, committed_values, kill_9, task_pid
from support.kafka_broker import KafkaBroker
from support.kafka_connect import KafkaConnectWorker

pytestmark = pytest.mark.usefixtures("apache_kafka")

ENABLED = {"exactly.once.source.support": "enabled", "task.restart.backoff.ms": "50"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def create(worker: WorkerProcess, name: str, path: Path) -> None:
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(path),
        "topic": name,
        "batch.size": "200",
        "key.converter": STRING,
        "value.converter": STRING,
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }
    answer = worker.request("POST", "/connectors", {"name": name, "config": config})
    assert answer.status == 201, answer.body


def committed(address: str, topic: str) -> int:
    try:
        return len(committed_values(address, topic))
    except KeyError:
        return 0


def test_kill_9_of_a_task_on_apache_kafka(kafka: KafkaBroker, tmp_path: Path) -> None:
    rng, name = random.Random(3), new_name("src")
    worker = WorkerProcess(worker_properties(kafka.address, new_name("g"), **ENABLED), tmp_path)
    try:
        worker.wait_ready(60)
        with Feeder(tmp_path / "in.txt", lines_per_s=3_000) as feeder:
            create(worker, name, feeder.path)
            worker.wait_state(name, "RUNNING", "RUNNING")
            kills = 0
            while kills < 4:
                time.sleep(rng.uniform(0.1, 0.8))
                kills += kill_9(task_pid(worker.process.pid, f"{name}-0"))
            count = feeder.stop()
        wait_for(lambda: committed(kafka.address, name) >= count, lambda: worker.log[-3000:], 120)
        check_exactly_once(kafka.address, name, count)
    finally:
        worker.end()


def test_apaches_worker_and_ours_take_over_from_each_other(kafka: KafkaBroker, tmp_path: Path) -> None:
    """Apache's worker is killed in the middle of it, then ours: the next one reads the other's offsets and fencing."""
    properties = worker_properties(kafka.address, new_name("g"), **ENABLED)
    name, workers = new_name("src"), []
    theirs = {k: v for k, v in properties.items() if not k.startswith("task.restart")}
    try:
        with Feeder(tmp_path / "in.txt", lines_per_s=1_000) as feeder:
            for turn, kind in enumerate(
                (KafkaConnectWorker, WorkerProcess, KafkaConnectWorker, WorkerProcess)
            ):
                given = theirs if kind is KafkaConnectWorker else properties
                worker = kind(given, tmp_path).wait_ready(90)
                workers.append(worker)
                if turn == 0:
                    create(worker, name, feeder.path)
                before = committed(kafka.address, name)
                wait_for(
                    lambda before=before: committed(kafka.address, name) > before + 500,
                    lambda worker=worker: worker.log[-4000:],
                    90,
                )
                if turn < 3:
                    worker.stop(signal.SIGKILL)
            count = feeder.stop()
        wait_for(lambda: committed(kafka.address, name) >= count, lambda: workers[-1].log[-3000:], 120)
        check_exactly_once(kafka.address, name, count)
    finally:
        for worker in workers:
            worker.end()
