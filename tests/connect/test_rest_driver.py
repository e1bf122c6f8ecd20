"""Connectors with driver tasks as their users see them: status, offsets, topics, and a worker that is killed."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.connect_worker import WorkerProcess, wait_for, worker_properties
from support.runtime import DRIVER_SINK, DRIVER_SOURCE, install_plugins
from support.runtime_broker import fill, read_all, sink_lines, whole_lines
from typer.testing import CliRunner

from klamm.cli.main import app


@pytest.fixture
def name() -> str:
    return f"w{uuid.uuid4().hex[:8]}"


@pytest.fixture
def start(bootstrap: str, tmp_path: Path, name: str) -> Iterator[Callable[[], WorkerProcess]]:
    """Starts workers of one group."""
    path, started = install_plugins(tmp_path / "site"), []

    def make() -> WorkerProcess:
        started.append(WorkerProcess(worker_properties(bootstrap, name), tmp_path, python_path=path))
        return started[-1].wait_ready()

    yield make
    for worker in started:
        worker.end()


def topic_of(bootstrap: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


def test_rest_shows_and_alters_a_drivers_offsets_and_shows_its_figures(start, bootstrap, name):
    worker, topic = start(), topic_of(bootstrap, name)
    assert worker.create(name, connector__class=DRIVER_SOURCE, topic=topic, limit="300").status == 201

    def done() -> bool:
        found = progress(worker, name)
        return (found.get("records"), found.get("waiting_for")) == (300, "input")

    wait_for(done, lambda: f"{progress(worker, name)}\n{worker.log}")
    assert progress(worker, name)["details"] == {"at": 300}
    assert worker.get(f"/connectors/{name}/topics") == {name: {"topics": [topic]}}
    partition = {"task": "0"}
    assert worker.get(f"/connectors/{name}/offsets") == {
        "offsets": [{"partition": partition, "offset": {"n": 300}}]
    }
    shown = CliRunner().invoke(app, ["connector", "status", name, "--url", f"http://127.0.0.1:{worker.port}"])
    assert "task 0: at 300" in shown.output, shown.output

    assert worker.request("PUT", f"/connectors/{name}/pause").status == 202
    worker.wait_state(name, "PAUSED", "PAUSED")
    assert worker.request("PUT", f"/connectors/{name}/stop").status == 204
    worker.wait_state(name, "STOPPED")
    bad = {"offsets": [{"partition": partition, "offset": {"n": "x"}}]}
    assert worker.request("PATCH", f"/connectors/{name}/offsets", bad).status == 400
    good = {"offsets": [{"partition": partition, "offset": {"n": 290}}]}
    answer = worker.request("PATCH", f"/connectors/{name}/offsets", good)
    assert (answer.status, answer.message) == (
        200,
        "The offsets for this connector have been altered successfully",
    )
    assert worker.request("PUT", f"/connectors/{name}/resume").status == 202
    wait_for(lambda: len(read_all(bootstrap, topic)) >= 310, lambda: worker.log)
    assert [int(m.value()) for m in read_all(bootstrap, topic)] == [*range(300), *range(290, 300)]


def test_rest_alters_the_group_of_a_sinks_driver(start, bootstrap, name, tmp_path):
    worker, topic, out = start(), topic_of(bootstrap, name), tmp_path / "out"
    fill(bootstrap, topic, [str(n) for n in range(20)])
    config = {"connector__class": DRIVER_SINK, "topics": topic, "topic": topic, "file": str(out)}
    assert worker.create(name, **config).status == 201
    wait_for(lambda: progress(worker, name).get("records") == 20, lambda: worker.log)
    place = {"kafka_topic": topic, "kafka_partition": 0}
    shown = worker.get(f"/connectors/{name}/offsets")
    assert shown == {"offsets": [{"partition": place, "offset": {"kafka_offset": 20}}]}
    assert worker.request("PUT", f"/connectors/{name}/stop").status == 204
    worker.wait_state(name, "STOPPED")
    change = {"offsets": [{"partition": place, "offset": {"kafka_offset": 15}}]}
    assert worker.request("PATCH", f"/connectors/{name}/offsets", change).status == 200
    assert worker.request("PUT", f"/connectors/{name}/resume").status == 202
    wait_for(lambda: len(sink_lines(out)) == 25, lambda: worker.log)
    assert [o for o, _ in sink_lines(out)] == [*range(20), *range(15, 20)]


def progress(worker: WorkerProcess, name: str) -> dict:
    tasks = worker.get(f"/connectors/{name}/status").get("tasks")  # none while it is not known
    return tasks[0].get("progress", {}) if tasks else {}


def test_a_worker_that_is_killed_leaves_a_driver_that_goes_on_where_it_was(start, bootstrap, name, tmp_path):
    first, topic, out = start(), topic_of(bootstrap, name), tmp_path / "out"
    source = {"connector__class": DRIVER_SOURCE, "topic": topic, "limit": "2000", "pace__s": "0.05"}
    assert first.create(f"{name}-src", **source).status == 201
    sink = {"connector__class": DRIVER_SINK, "topics": topic, "topic": topic, "file": str(out)}
    assert first.create(f"{name}-snk", **sink).status == 201
    wait_for(lambda: len(sink_lines(out)) > 200, lambda: first.log)
    first.stop(signal.SIGKILL)
    second = start()
    wait_for(lambda: progress(second, f"{name}-src").get("details") == {"at": 2000}, lambda: second.log)
    fill(bootstrap, topic, ["last"])
    wait_for(lambda: '"last"]\n' in out.read_text(), lambda: second.log)
    found = read_all(bootstrap, topic)
    numbers = [int(m.value()) for m in found[:-1]]
    assert sorted(set(numbers)) == list(range(2000)), "nothing lost"
    assert len(numbers) <= 2000 + 300, "what was committed did not come again"
    offsets = [offset for offset, _ in whole_lines(out)]
    assert sorted(set(offsets)) == list(range(len(found)))
