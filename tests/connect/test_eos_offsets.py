"""Offsets topics of single connectors, exactly once or not, and how REST reads and changes what is in them (KIP-875)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from support.broker import new_name
from support.connect_worker import STRING, WorkerProcess, wait_for, worker_properties
from support.exactly_once import committed_values


@pytest.fixture(scope="module", params=["enabled", "disabled"])
def worker(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    properties = worker_properties(
        bootstrap, new_name("eos"), **{"exactly.once.source.support": request.param}
    )
    started = WorkerProcess(properties, tmp_path_factory.mktemp("worker"))
    try:
        yield started.wait_ready()
    finally:
        started.end()


def source(worker: WorkerProcess, path: Path, **more: str) -> str:
    name = new_name("src")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(path),
        "topic": name,
        "key.converter": STRING,
        "value.converter": STRING,
        **more,
    }
    answer = worker.request("POST", "/connectors", {"name": name, "config": config})
    assert answer.status == 201, answer.body
    return name


def has_read(worker: WorkerProcess, name: str, records: int) -> bool:
    tasks = worker.request("GET", f"/connectors/{name}/status").json.get("tasks", [])
    return bool(tasks) and tasks[0].get("progress", {}).get("records") == records


def stop(worker: WorkerProcess, name: str) -> None:
    assert worker.request("PUT", f"/connectors/{name}/stop").status == 204
    worker.wait_state(name, "STOPPED")


def stored(bootstrap: str, topic: str, name: str) -> dict[str, Any]:
    """Returns the newest offsets of a connector in a topic, by file."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": new_name(), "isolation.level": "read_committed",
         "enable.partition.eof": True, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
    )  # fmt: skip
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    left, found = set(partitions), {}
    while left:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            left.discard(message.partition())
            continue
        connector, partition = json.loads(message.key())
        if connector == name:
            value = message.value()
            found[partition["filename"]] = None if value is None else json.loads(value)
    consumer.close()
    return found


def test_a_connector_keeps_its_offsets_in_its_own_topic(
    worker: WorkerProcess, bootstrap: str, tmp_path: Path
) -> None:
    path, own = tmp_path / "in.txt", new_name("offsets")
    path.write_text("a\nbb\nccc\n")
    name = source(worker, path, **{"offsets.storage.topic": own})
    wait_for(lambda: has_read(worker, name, 3), lambda: worker.log[-3000:])
    stop(worker, name)
    for topic in (own, worker.topic("offset")):  # the task may still be on its way out
        wait_for(
            lambda topic=topic: stored(bootstrap, topic, name) == {str(path): {"position": 9}},
            lambda: worker.log[-3000:],
        )
    resource = ConfigResource(ResourceType.TOPIC, own)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([resource])[resource].result(60)
    assert found["cleanup.policy"].value == "compact"

    partition = {"filename": str(path)}
    both = [{"partition": partition, "offset": {"position": 9}}]
    assert worker.get(f"/connectors/{name}/offsets") == {"offsets": both}
    back = {"offsets": [{"partition": partition, "offset": {"position": 2}}]}
    answer = worker.request("PATCH", f"/connectors/{name}/offsets", back)
    assert answer.status == 200, answer.body
    assert worker.get(f"/connectors/{name}/offsets") == back
    assert stored(bootstrap, own, name) == {str(path): {"position": 2}}
    assert worker.request("PUT", f"/connectors/{name}/resume").status == 202
    wait_for(lambda: has_read(worker, name, 2), lambda: worker.log[-3000:])
    stop(worker, name)
    expected = [b"a", b"bb", b"ccc", b"bb", b"ccc"]
    wait_for(lambda: committed_values(bootstrap, name) == expected, lambda: worker.log[-3000:])

    answer = worker.request("DELETE", f"/connectors/{name}/offsets")
    assert answer.json["message"].endswith("reset successfully")
    assert worker.get(f"/connectors/{name}/offsets") == {"offsets": []}
    assert stored(bootstrap, own, name) == {str(path): None}
    assert stored(bootstrap, worker.topic("offset"), name) == {str(path): None}


def test_offsets_in_the_workers_topic_are_changed_and_reset(
    worker: WorkerProcess, bootstrap: str, tmp_path: Path
) -> None:
    path = tmp_path / "in.txt"
    path.write_text("a\nbb\nccc\n")
    name = source(worker, path)
    wait_for(lambda: has_read(worker, name, 3), lambda: worker.log[-3000:])
    stop(worker, name)
    back = {"offsets": [{"partition": {"filename": str(path)}, "offset": {"position": 5}}]}
    assert worker.request("PATCH", f"/connectors/{name}/offsets", back).status == 200
    assert worker.get(f"/connectors/{name}/offsets") == back
    assert worker.request("PUT", f"/connectors/{name}/resume").status == 202
    wait_for(lambda: has_read(worker, name, 1), lambda: worker.log[-3000:])
    stop(worker, name)
    expected = [b"a", b"bb", b"ccc", b"ccc"]
    wait_for(lambda: committed_values(bootstrap, name) == expected, lambda: worker.log[-3000:])
    assert worker.request("DELETE", f"/connectors/{name}/offsets").status == 200
    assert worker.get(f"/connectors/{name}/offsets") == {"offsets": []}


def test_a_connector_that_gets_a_topic_of_its_own_goes_on_where_it_was(
    worker: WorkerProcess, bootstrap: str, tmp_path: Path
) -> None:
    path, own = tmp_path / "in.txt", new_name("offsets")
    path.write_text("a\nbb\n")
    name = source(worker, path)
    wait_for(lambda: has_read(worker, name, 2), lambda: worker.log[-3000:])
    config = worker.get(f"/connectors/{name}/config") | {"offsets.storage.topic": own}
    assert worker.request("PUT", f"/connectors/{name}/config", config).status == 200
    # The old task must not be the one that reads the next line.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait_for(lambda: own in admin.list_topics(timeout=60).topics, lambda: worker.log[-3000:])
    with path.open("a") as f:
        f.write("ccc\n")
    wait_for(lambda: len(committed_values(bootstrap, name)) >= 3, lambda: worker.log[-3000:])
    stop(worker, name)
    assert committed_values(bootstrap, name) == [b"a", b"bb", b"ccc"]
    assert stored(bootstrap, own, name) == {str(path): {"position": 9}}


def test_an_own_topic_that_is_not_compacted_is_refused(
    worker: WorkerProcess, bootstrap: str, tmp_path: Path
) -> None:
    from confluent_kafka.admin import NewTopic

    own = new_name("offsets")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(own, 1, 1)])[own].result(60)
    (tmp_path / "in.txt").write_text("a\n")
    name = source(worker, tmp_path / "in.txt", **{"offsets.storage.topic": own})
    worker.wait_state(name, "RUNNING", "FAILED")
    trace = worker.get(f"/connectors/{name}/status")["tasks"][0]["trace"]
    assert f"Topic '{own}' supplied via the 'offsets.storage.topic' property" in trace
    assert "cleanup.policy=compact" in trace
