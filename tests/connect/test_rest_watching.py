"""A worker describes itself: progress, events as they happen, metrics, and the API's own description."""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.connect_worker import STRING, WorkerProcess, feed, wait_for, worker_properties

LINES = 50


@pytest.fixture(scope="module")
def worker(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    directory = tmp_path_factory.mktemp("watching")
    name = f"watch-{uuid.uuid4().hex[:8]}"
    running = WorkerProcess(worker_properties(bootstrap, name, **{"klamm.metrics.port": "0"}), directory)
    running.wait_ready()
    feed(directory, 0, LINES)
    answer = running.create(
        "src",
        connector__class="FileStreamSource",
        file=str(directory / "in.txt"),
        topic=name,
        value__converter=STRING,
        key__converter=STRING,
    )
    assert answer.status == 201, answer.body
    running.wait_state("src", "RUNNING", "RUNNING")
    yield running
    still = Events(running)  # a stream that is open does not hold the worker up
    assert running.stop() == 0, running.log
    still.close()


class Events:
    """A client of GET /events."""

    def __init__(self, worker: WorkerProcess, query: str = "", **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=60)
        self._connection.request("GET", f"/events{query}", headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()
        assert self._answer.headers["Content-Type"] == "text/event-stream"

    def next(self) -> dict[str, Any]:
        """Returns the next event: its id, kind and data."""
        found: dict[str, Any] = {}
        while True:
            line = self._answer.readline().decode()
            assert line, "the stream ended"
            if line == "\n" and found:
                return found
            field, _, text = line.rstrip("\n").partition(": ")
            if field == "id":
                found["id"] = int(text)
            elif field == "event":
                found["kind"] = text
            elif field == "data":
                found |= json.loads(text)

    def until(self, **wanted: Any) -> list[dict[str, Any]]:
        """Events up to the one that has these fields."""
        seen: list[dict[str, Any]] = []
        while not seen or any(seen[-1].get(k) != v for k, v in wanted.items()):
            seen.append(self.next())
        return seen

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def test_progress_of_a_connector(worker: WorkerProcess) -> None:
    def done() -> bool:
        return worker.get("/connectors/src/progress")["total"]["records"] == LINES

    wait_for(done, lambda: worker.get("/connectors/src/progress"))
    answer = worker.get("/connectors/src/progress")
    assert (answer["name"], answer["type"], answer["state"]) == ("src", "source", "RUNNING")
    [task] = answer["tasks"]
    assert (task["id"], task["state"], task["records"]) == (0, "RUNNING", LINES)
    assert 0 <= task["idle_ms"] <= answer["at_ms"] - task["last_ack_ms"] + 1
    assert answer["total"]["last_ack_ms"] == task["last_ack_ms"]
    assert task["bytes"] == answer["total"]["bytes"] == sum(len(f"line {i}") for i in range(LINES))
    assert worker.request("GET", "/connectors/nobody/progress").status == 404


def test_events_tell_a_connectors_life_in_order(worker: WorkerProcess, tmp_path: Path) -> None:
    events = Events(worker, "?connector=ev*")
    try:
        config = {"connector.class": "FileStreamSource", "file": str(tmp_path / "none"), "topic": "ev"}
        created = worker.request("POST", "/connectors", {"name": "ev", "config": config})
        assert created.status == 201, created.body
        life = events.until(kind="task.state", state="RUNNING")
        assert life[0]["kind"] == "connector.created"
        assert [e["tasks"] for e in life if e["kind"] == "tasks.config"] == [1]
        assert all(e["connector"] == "ev" for e in life)
        worker.request("PUT", "/connectors/ev/config", config | {"topic": "ev2"})
        changed = events.until(kind="connector.config")[-1]
        assert changed["changed"] == ["topic"]
        worker.request("PUT", "/connectors/ev/pause")
        assert events.until(kind="connector.target")[-1]["target"] == "PAUSED"
        events.until(kind="task.state", state="PAUSED")
        worker.request("DELETE", "/connectors/ev")
        last = events.until(kind="connector.deleted")[-1]
        ids = [e["id"] for e in life]
        assert ids == sorted(ids)
        assert last["id"] > ids[-1]
    finally:
        events.close()
    again = Events(worker, **{"Last-Event-ID": str(life[0]["id"])})
    try:
        assert again.next()["id"] == life[0]["id"] + 1  # what was missed comes first
    finally:
        again.close()


def test_events_refuse_what_makes_no_sense(worker: WorkerProcess) -> None:
    answer = worker.request("GET", "/events?kind=weather")
    assert (answer.status, "weather is no kind of event" in answer.message) == (400, True)
    answer = worker.request("GET", "/events", headers={"Last-Event-ID": "yesterday"})
    assert (answer.status, "must be a number" in answer.message) == (400, True)


def metrics(text: str) -> dict[str, list[Any]]:
    return {family.name: family.samples for family in text_string_to_metric_families(text)}


def test_metrics_under_the_names_of_the_usual_boards(worker: WorkerProcess) -> None:
    wait_for(lambda: worker.get("/connectors/src/progress")["total"]["records"] == LINES)
    found: dict[str, list[Any]] = {}

    def alone() -> bool:
        """Returns whether only ours are left: deleted connectors of other tests may still be on their way out."""
        answer = worker.request("GET", "/metrics")
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        found.clear()
        found.update(metrics(answer.body.decode()))
        counted = (found[f"kafka_connect_worker_{what}_count"][0].value for what in ("connector", "task"))
        return [*counted] == [1, 1]

    wait_for(alone, lambda: str(found))
    [status] = found["kafka_connect_connector_task_status"]
    assert status.labels == {"connector": "src", "task": "0", "status": "running"}
    [running] = found["kafka_connect_worker_connector_running_task_count"]
    assert (running.labels, running.value) == ({"connector": "src"}, 1)
    for key, value in (
        ("connector_class", "FileStreamSource"),
        ("connector_type", "source"),
        ("status", "running"),
    ):
        [info] = found[f"kafka_connect_connector_{key}"]
        assert (info.labels[key], info.value) == (value, 1)
    [records] = found["klamm_connect_task_records"]
    assert records.value == LINES
    [memory] = found["klamm_connect_task_resident_bytes"]
    assert memory.value > 1 << 20
    assert found["process_resident_memory_bytes"][0].value > 1 << 20
    posted = {"method": "POST", "path": "/connectors", "status": "201"}
    assert [s.value for s in found["klamm_connect_rest_requests"] if s.labels == posted] >= [1]


def test_openapi_describes_every_path(worker: WorkerProcess) -> None:
    document = worker.get("/openapi.json")
    assert document["openapi"] == "3.1.0"
    assert {"/connectors/{connector}/progress", "/events", "/metrics", "/connectors"} <= document[
        "paths"
    ].keys()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert any(status < "400" for status in operation["responses"]), (method, path)
