"""A worker's life: it goes on where it was, waits for its broker, says what is wrong with its settings."""

from __future__ import annotations

import signal
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import wait_until
from support.connect_worker import (
    STRING,
    WorkerProcess,
    feed,
    free_port,
    lines_out,
    wait_for,
    worker_properties,
)

from klamm.testing import EmbeddedBroker

Start = Callable[..., WorkerProcess]


@pytest.fixture
def name() -> str:
    return f"w{uuid.uuid4().hex[:8]}"


@pytest.fixture
def start(bootstrap: str, tmp_path: Path, name: str) -> Iterator[Start]:
    """Starts workers of one group; those that still run at the end are killed."""
    started: list[WorkerProcess] = []

    def make(**more: Any) -> WorkerProcess:
        properties = worker_properties(more.pop("bootstrap", bootstrap), name, **more)
        started.append(WorkerProcess(properties, tmp_path))
        return started[-1]

    yield make
    for worker in started:
        worker.end()


def pipe(worker: WorkerProcess, name: str, directory: Path) -> None:
    """in.txt -> topic -> out.txt."""
    source = {"connector__class": "FileStreamSource", "file": str(directory / "in.txt"), "topic": name}
    sink = {"connector__class": "FileStreamSink", "file": str(directory / "out.txt"), "topics": name}
    for kind, config in ((f"{name}-src", source), (f"{name}-snk", sink)):
        answer = worker.create(kind, value__converter=STRING, key__converter=STRING, **config)
        assert answer.status == 201, answer.body


def wait_lines(directory: Path, count: int, worker: WorkerProcess) -> None:
    expected = {f"line {i}" for i in range(count)}
    wait_for(
        lambda: expected <= set(lines_out(directory)),
        lambda: f"{len(set(lines_out(directory)))} of {count} lines\n{worker.log}",
    )


def test_rest_worker_that_was_stopped_goes_on_where_it_was(start: Start, name: str, tmp_path: Path) -> None:
    feed(tmp_path, 0, 100)
    first = start().wait_ready()
    pipe(first, name, tmp_path)
    wait_lines(tmp_path, 100, first)
    first.request("PUT", f"/connectors/{name}-snk/pause")
    first.wait_state(f"{name}-snk", "PAUSED", "PAUSED")
    assert first.stop() == 0, first.log
    feed(tmp_path, 100, 50)
    second = start().wait_ready()
    second.wait_state(f"{name}-src", "RUNNING", "RUNNING")
    second.wait_state(f"{name}-snk", "PAUSED", "PAUSED")
    assert second.get("/connectors") == [f"{name}-src", f"{name}-snk"]
    assert len(lines_out(tmp_path)) == 100
    second.request("PUT", f"/connectors/{name}-snk/resume")
    wait_lines(tmp_path, 150, second)
    # A clean stop commits: nothing comes twice.
    assert len(lines_out(tmp_path)) == 150

    def records() -> int | None:
        task = second.get(f"/connectors/{name}-src/status")["tasks"][0]
        return task.get("progress", {}).get("records")

    wait_for(lambda: records() == 50, lambda: f"{records()}\n{second.log}")
    assert second.stop() == 0, second.log


def test_rest_worker_killed_again_and_again_loses_no_line(start: Start, name: str, tmp_path: Path) -> None:
    port = free_port()  # the same port: the worker takes its own place in the group at once
    # The sink's next task waits until the killed one's session has ended.
    sessions = {"consumer.session.timeout.ms": "1500", "consumer.heartbeat.interval.ms": "400"}
    # A worker that waited for its former self would do so for minutes.
    patience = {"session.timeout.ms": "300000", "rebalance.timeout.ms": "300000"}
    more = {"listeners": f"http://127.0.0.1:{port}", **sessions, **patience}
    worker = start(**more).wait_ready()
    pipe(worker, name, tmp_path)
    sent = 0
    for _ in range(2):
        feed(tmp_path, sent, 200)
        sent += 200
        wait_for(lambda: len(lines_out(tmp_path)) > sent - 200, lambda: worker.log)
        worker.stop(signal.SIGKILL)
        worker = start(**more).wait_ready(60)
    wait_lines(tmp_path, sent, worker)
    assert worker.stop() == 0, worker.log


def test_rest_answers_while_the_worker_waits_for_its_broker(start: Start, tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "late", port=free_port())
    rest = free_port()
    worker = start(bootstrap=broker.bootstrap, listeners=f"http://127.0.0.1:{rest}")
    worker.port = rest

    def health() -> int:
        try:
            return worker.request("GET", "/health").status
        except OSError:
            return 0

    wait_for(lambda: health() == 503, lambda: worker.log)
    answer = worker.request("GET", "/connectors")
    assert (answer.status, answer.message) == (503, "Worker is still starting up.")
    wait_for(lambda: f"waiting for the broker at {broker.bootstrap}" in worker.log, lambda: worker.log)
    with broker:
        worker.wait_ready()
        assert worker.get("/health")["status"] == "healthy"
        assert worker.stop() == 0, worker.log


def test_rest_worker_can_be_stopped_while_it_waits(start: Start) -> None:
    worker = start(bootstrap=f"127.0.0.1:{free_port()}")
    wait_for(lambda: "waiting for the broker" in worker.log, lambda: worker.log)
    assert worker.stop(signal.SIGINT) == 0, worker.log
    assert "Traceback" not in worker.log


def test_rest_worker_survives_its_broker(start: Start, name: str, tmp_path: Path) -> None:
    config = {"num.partitions": "1"}
    with EmbeddedBroker(tmp_path / "data", port=free_port(), config=config) as broker:
        worker = start(bootstrap=broker.bootstrap).wait_ready()
        pipe(worker, name, tmp_path)
        feed(tmp_path, 0, 10)
        wait_lines(tmp_path, 10, worker)
        broker.kill()
        assert worker.get(f"/connectors/{name}-src/status")["connector"]["state"] == "RUNNING"
        assert worker.request("GET", "/connectors").status == 200
        feed(tmp_path, 10, 10)
        broker.start()
        wait_lines(tmp_path, 20, worker)
        # and it can still write its topics; 409 when it was away for so long that its session is over
        said: list[object] = []

        def paused() -> bool:
            answer = worker.request("PUT", f"/connectors/{name}-src/pause")
            said.append((answer.status, answer.body))
            assert answer.status in {202, 409}, said
            return answer.status == 202

        wait_until(paused, f"the pause is taken: {said}", timeout_s=60)
        worker.wait_state(f"{name}-src", "PAUSED", "PAUSED")
        assert worker.stop() == 0, worker.log


def test_rest_worker_refuses_a_topic_that_deletes_records(start: Start, bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(f"{name}-status", 1, 1, config={"cleanup.policy": "delete"})
    admin.create_topics([topic])[f"{name}-status"].result(60)
    worker = start()
    assert worker.wait_exit() == 2
    assert f"Topic '{name}-status' supplied via the 'status.storage.topic' property" in worker.log
    assert "cleanup.policy=delete" in worker.log
    assert "Traceback" not in worker.log


def test_rest_worker_refuses_a_config_topic_of_several_partitions(
    start: Start, bootstrap: str, name: str
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(f"{name}-config", 2, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])[f"{name}-config"].result(60)
    worker = start()
    assert worker.wait_exit() == 1
    assert "required to have a single partition, but it has 2" in worker.log


def test_rest_worker_starts_beside_a_plugin_that_kills_whoever_imports_it(
    bootstrap: str, name: str, tmp_path: Path
) -> None:
    info = tmp_path / "plugins" / "deadly-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[klamm]\ndeadly = deadly\n")
    module = info.parent / "deadly.py"
    module.write_text("import os\nos._exit(7)\n")
    worker = WorkerProcess(worker_properties(bootstrap, name), tmp_path, python_path=str(info.parent))
    try:
        worker.wait_ready()
        assert "org.apache.kafka.connect.file.FileStreamSourceConnector" in [
            p["class"] for p in worker.get("/connector-plugins")
        ]
        (broken,) = [p for p in worker.get("/connector-plugins/packages") if p["name"] == "deadly"]
        assert broken["state"] == "broken"
        pipe(worker, name, tmp_path)
        worker.wait_state(f"{name}-src", "RUNNING", "RUNNING")
    finally:
        assert worker.stop() == 0, worker.log


def test_rest_worker_names_a_port_that_is_taken(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        worker = start(listeners=f"http://127.0.0.1:{port}")
        assert worker.wait_exit() == 1
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in worker.log


def test_rest_worker_names_a_converter_that_is_not_installed(start: Start) -> None:
    worker = start(**{"value.converter": "x.JsonConverter"})
    assert worker.wait_exit() == 2
    assert (
        "Invalid value x.JsonConverter for configuration value.converter: Class x.JsonConverter could not be found; did you "
        "mean JsonConverter? `klamm connector plugins --all` lists all"
    ) in worker.log


def test_rest_converters_go_by_all_their_names(start: Start, name: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    worker = start().wait_ready()
    for i, converter in enumerate(
        ("StringConverter", "String", "klamm_plugins.converters.string.StringConverter")
    ):
        config = {
            "connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": f"{name}-short",
            "value.converter": converter,
        }  # fmt: skip
        made = worker.request("POST", "/connectors", {"name": f"{name}-{i}", "config": config})
        assert made.status == 201, made.json
        worker.wait_state(f"{name}-{i}", "RUNNING", "RUNNING")
