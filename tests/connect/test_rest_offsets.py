"""PATCH offsets that mean nothing: refused, in a sentence that says what is wrong with which."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.connect_worker import STRING, WorkerProcess, lines_out, wait_for, worker_properties

TEXT = "first line\nsecond\r\nthird\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("offsets")
    (made / "in.txt").write_bytes(TEXT.encode())
    return made


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    name = f"offsets-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(60)
    return name


@pytest.fixture(scope="module")
def worker(bootstrap: str, directory: Path, topic: str) -> Iterator[WorkerProcess]:
    """Yields a worker with a source and a sink of one topic, both stopped."""
    process = WorkerProcess(worker_properties(bootstrap, f"g-{topic}"), directory)
    process.wait_ready()
    common = {"value__converter": STRING, "key__converter": STRING}
    source = {"connector__class": "FileStreamSource", "file": str(directory / "in.txt"), "topic": topic}
    sink = {"connector__class": "FileStreamSink", "file": str(directory / "out.txt"), "topics": topic}
    assert process.create("src", **source, **common).status == 201
    assert process.create("snk", **sink, **common).status == 201
    wait_for(lambda: "third" in lines_out(directory), lambda: process.log)
    for name in ("src", "snk"):
        process.request("PUT", f"/connectors/{name}/stop")
        process.wait_state(name, "STOPPED")
    yield process
    assert process.stop() == 0, process.log


def patched(worker: WorkerProcess, name: str, partition: Any, offset: Any) -> tuple[int, str]:
    body = {"offsets": [{"partition": partition, "offset": offset}]}
    answer = worker.request("PATCH", f"/connectors/{name}/offsets", body)
    return answer.status, answer.message


@pytest.mark.parametrize(
    ("position", "why"),
    [
        (99999999999999, "beyond the end of FILE, which has 25 bytes"),
        (26, "beyond the end"),
        (3, "in the middle of a line of FILE, which begins at byte 0"),
        (14, "in the middle of a line of FILE, which begins at byte 11"),
        (18, "in the middle of a line"),
        (-1, "non-negative"),
        ("3", "Long value"),
    ],
)
def test_rest_a_position_at_which_no_line_begins_is_refused(
    worker: WorkerProcess, directory: Path, position: Any, why: str
) -> None:
    path = str(directory / "in.txt")
    status, said = patched(worker, "src", {"filename": path}, {"position": position})
    assert status == 400
    assert why.replace("FILE", path) in said


def test_rest_a_partition_of_null_gets_no_offset_and_can_be_removed(worker: WorkerProcess) -> None:
    status, said = patched(worker, "src", None, {"position": 0})
    assert (status, "Partition objects cannot be null" in said) == (400, True)
    assert patched(worker, "src", None, None)[0] == 200
    assert patched(worker, "src", {"garbage": 1}, None)[0] == 200


def test_rest_offsets_of_topics_and_partitions_that_are_not_there(worker: WorkerProcess, topic: str) -> None:
    place = {"kafka_topic": topic, "kafka_partition": 5}
    status, said = patched(worker, "snk", place, {"kafka_offset": 1})
    assert (status, said) == (400, f"There is no partition 5 in topic '{topic}': it has 2, numbered from 0")
    place = {"kafka_topic": "no-such-topic", "kafka_partition": 0}
    status, said = patched(worker, "snk", place, {"kafka_offset": 1})
    assert (status, said) == (400, "There is no topic 'no-such-topic' to set an offset in")
    assert worker.get("/connectors/snk/offsets")["offsets"], "nothing was changed"
    assert patched(worker, "snk", place, None)[0] == 200, "what is not there can be removed"


def test_rest_a_source_goes_on_at_the_position_it_was_given(worker: WorkerProcess, directory: Path) -> None:
    path = str(directory / "in.txt")
    assert patched(worker, "src", {"filename": path}, {"position": 19}) == (
        200,
        "The offsets for this connector have been altered successfully",
    )
    before = lines_out(directory)
    for name in ("src", "snk"):
        assert worker.request("PUT", f"/connectors/{name}/resume").status == 202
    wait_for(lambda: len(lines_out(directory)) > len(before), lambda: worker.log)
    assert lines_out(directory)[len(before) :] == ["third"]


def test_rest_a_marker_of_a_transaction_is_no_lag(
    worker: WorkerProcess, bootstrap: str, directory: Path, topic: str
) -> None:
    name = f"{topic}-tx"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    for value in ("one", "two"):
        producer.begin_transaction()
        producer.produce(name, value.encode(), partition=0)
        producer.commit_transaction(60)
    sink = {"connector.class": "FileStreamSink", "file": str(directory / "tx.txt"), "topics": name}
    config = {**sink, "value.converter": STRING, "key.converter": STRING}
    assert worker.request("POST", "/connectors", {"name": "tx", "config": config}).status == 201

    def lag() -> Any:
        tasks = worker.get("/connectors/tx/progress").get("tasks")  # none while it is not known
        return tasks[0]["lag"] if tasks else None

    wait_for(lambda: (directory / "tx.txt").exists() and (directory / "tx.txt").read_text() == "one\ntwo\n")
    wait_for(lambda: lag() == 0, lambda: f"{lag()}\n{worker.log}")
    assert worker.request("DELETE", "/connectors/tx").status == 204
