"""The proof of exactly once: task, worker and broker are killed with SIGKILL under load, and a reader of what is committed
sees every line of the file once, in order.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker import new_name
from support.connect_worker import STRING, WorkerProcess, free_port, wait_for, worker_properties
from support.exactly_once import Feeder, check_exactly_once, committed_values, kill_9, task_pid

from klamm.testing import EmbeddedBroker

ENABLED = {
    "exactly.once.source.support": "enabled",
    "task.restart.backoff.ms": "50",
    "task.restart.backoff.max.ms": "200",
    "task.restart.max": "1000",
    "session.timeout.ms": "6000",
}

Start = Callable[..., WorkerProcess]


@pytest.fixture
def own_broker(processes: None, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    config = {
        "num.partitions": "1",
        "transaction.state.log.num.partitions": "2",
        "group.min.session.timeout.ms": "1000",
    }
    with EmbeddedBroker(tmp_path / "broker" / "data", port=free_port(), config=config) as running:
        yield running


@pytest.fixture
def start(own_broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Start]:
    """Starts workers of one group."""
    group = new_name("eos")
    started: list[WorkerProcess] = []
    port = free_port()

    def make(**more: Any) -> WorkerProcess:
        given = {**ENABLED, "listeners": f"http://127.0.0.1:{port}", **more}
        properties = worker_properties(own_broker.bootstrap, group, **given)
        started.append(WorkerProcess(properties, tmp_path))
        return started[-1].wait_ready()

    yield make
    for worker in started:
        worker.end()


def create(worker: WorkerProcess, path: Path, **more: str) -> str:
    """Creates a file source; its topic has its name."""
    name = new_name("src")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(path),
        "topic": name,
        "batch.size": "200",
        "key.converter": STRING,
        "value.converter": STRING,
        "exactly.once.support": "required",
        **more,
    }
    answer = worker.request("POST", "/connectors", {"name": name, "config": config})
    assert answer.status == 201, answer.body
    return name


def wait_all(worker: WorkerProcess, bootstrap: str, topic: str, count: int, timeout_s: float = 60) -> None:
    def done() -> bool:
        return len(committed_values(bootstrap, topic)) >= count

    wait_for(done, lambda: f"{worker.state(topic)} {worker.log[-4000:]}", timeout_s)


def test_kill_9_of_the_task_repeats_and_loses_no_line(
    own_broker: EmbeddedBroker, start: Start, tmp_path: Path
) -> None:
    rng, worker = random.Random(5), start()
    with Feeder(tmp_path / "in.txt", lines_per_s=10_000) as feeder:
        name = create(worker, feeder.path)
        worker.wait_state(name, "RUNNING", "RUNNING")
        kills = 0
        while kills < 4:
            time.sleep(rng.uniform(0.02, 0.4))
            kills += kill_9(task_pid(worker.process.pid, f"{name}-0"))
        count = feeder.stop()
    wait_all(worker, own_broker.bootstrap, name, count, 120)
    check_exactly_once(own_broker.bootstrap, name, count)


@pytest.mark.parametrize("boundary", ["poll", "interval"])
def test_kill_9_of_task_worker_and_broker_in_turns(
    own_broker: EmbeddedBroker, start: Start, tmp_path: Path, boundary: str
) -> None:
    rng, worker = random.Random(11), start()
    with Feeder(tmp_path / "in.txt", lines_per_s=5_000) as feeder:
        more = {"transaction.boundary": boundary, "transaction.boundary.interval.ms": "300"}
        name = create(worker, feeder.path, **more)
        worker.wait_state(name, "RUNNING", "RUNNING")
        for _ in range(3):
            time.sleep(rng.uniform(0.1, 0.6))
            wait_for(lambda: kill_9(task_pid(worker.process.pid, f"{name}-0")))
            time.sleep(rng.uniform(0.1, 1.0))
            own_broker.kill()
            time.sleep(rng.uniform(0.0, 0.5))
            own_broker.start()
            time.sleep(rng.uniform(0.1, 1.0))
            worker.stop(signal.SIGKILL)
            worker = start()
        count = feeder.stop()
    wait_all(worker, own_broker.bootstrap, name, count, 120)
    check_exactly_once(own_broker.bootstrap, name, count)


@pytest.mark.parametrize("boundary", ["poll", "interval"])
def test_kill_9_of_a_task_that_follows_logs(
    own_broker: EmbeddedBroker, start: Start, tmp_path: Path, boundary: str
) -> None:
    """LogTail gives out whole reads, whose records have one position: none comes twice where that is a transaction."""
    rng, worker = random.Random(7), start()
    logs = tmp_path / "logs"
    logs.mkdir()
    with Feeder(logs / "in.log", lines_per_s=10_000) as feeder:
        more = {"connector.class": "LogTail", "paths": f"{logs}/*.log", "scan.interval.ms": "50"}
        more |= {"transaction.boundary": boundary, "transaction.boundary.interval.ms": "300"}
        name = create(worker, feeder.path, **more)
        worker.wait_state(name, "RUNNING", "RUNNING")
        kills = 0
        while kills < 6:
            time.sleep(rng.uniform(0.05, 0.8))
            kills += kill_9(task_pid(worker.process.pid, f"{name}-0"))
        count = feeder.stop()
    wait_all(worker, own_broker.bootstrap, name, count, 120)
    check_exactly_once(own_broker.bootstrap, name, count)


def test_a_zombie_that_was_asleep_is_fenced_and_writes_nothing(
    own_broker: EmbeddedBroker, start: Start, tmp_path: Path
) -> None:
    """Worker and task are stopped in their tracks (SIGSTOP); another worker takes over; then the first wake up."""
    import psutil

    first = start(**{"session.timeout.ms": "3000", "heartbeat.interval.ms": "500"})
    with Feeder(tmp_path / "in.txt", lines_per_s=5_000) as feeder:
        name = create(first, feeder.path)
        first.wait_state(name, "RUNNING", "RUNNING")
        wait_for(lambda: committed_values(own_broker.bootstrap, name))
        asleep = [
            psutil.Process(first.process.pid),
            *psutil.Process(first.process.pid).children(recursive=True),
        ]
        # The task first: it must be in the middle of its work when it wakes.
        for process in reversed(asleep):
            process.suspend()
        second = start(
            **{"session.timeout.ms": "3000", "heartbeat.interval.ms": "500",
               "listeners": "http://127.0.0.1:0"}
        )  # fmt: skip
        before = len(committed_values(own_broker.bootstrap, name))
        wait_for(
            lambda: len(committed_values(own_broker.bootstrap, name)) > before + 5_000,
            lambda: second.log[-3000:],
        )
        # The task first, again: the worker ends it as soon as it wakes.
        for process in reversed(asleep):
            process.resume()
        wait_for(lambda: "The worker stops everything" in first.log, lambda: first.log[-3000:])
        before = len(committed_values(own_broker.bootstrap, name))
        wait_for(
            lambda: len(committed_values(own_broker.bootstrap, name)) > before + 5_000,
            lambda: second.log[-3000:],
        )
        count = feeder.stop()
    wait_all(second, own_broker.bootstrap, name, count, 120)
    check_exactly_once(own_broker.bootstrap, name, count)
