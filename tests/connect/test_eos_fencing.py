"""Fencing before exactly-once tasks start: the right producers are fenced, and cannot write any more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from support.broker import broker, new_name, new_topic  # noqa: F401
from support.connect_worker import STRING, WorkerProcess, wait_for, worker_properties
from support.exactly_once import committed_values
from support.runtime import SOURCE, install_plugins
from support.runtime_broker import read_all

from klamm.connect.herding.fencing import Plan, fence, plan
from klamm.connect.model import TaskId, transactional_id
from klamm.connect.topics.config_topic import (
    ConfigState,
    connector_record,
    delete_records,
    fencing_record,
    task_records,
)
from klamm.connect.topics.fenced_writer import Fenced, FencedWriter, leader_transactional_id
from klamm.testing import EmbeddedBroker


def state(*steps: str | int) -> ConfigState:
    """Returns a state. `"c"`: a connector's config, a number n: n tasks are committed, `"fn"`: the record of n tasks, `"d"`: deleted."""
    found = ConfigState()
    for step in steps:
        match step:
            case int(count):
                records = task_records("src", [{"task": str(i)} for i in range(count)])
            case "c":
                records = [connector_record("src", {"connector.class": "S"})]
            case "d":
                records = delete_records("src")
            case text:
                records = [fencing_record("src", int(str(text)[1:]))]
        for key, value in records:
            found.apply(key, value)
    return found


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["c"], Plan.NOTHING),
        (["c", 2], Plan.RECORD),
        (["c", 2, "f2"], Plan.NOTHING),
        (["c", 2, "f2", 3], Plan.FENCE),
        (["c", 1, "f1", 1], Plan.RECORD),
        (["c", 1, "f1", 2], Plan.FENCE),
        (["c", 2, "f2", 1], Plan.FENCE),
        (["c", 2, "f2", 0], Plan.FENCE),
        (["c", 2, "f2", "d", "c", 1], Plan.FENCE),
    ],
)
def test_what_is_done_before_tasks_start_is_kafkas_rule(steps: list[str | int], expected: Plan) -> None:
    assert plan(state(*steps), "src") is expected


def test_ids_are_kafkas() -> None:
    assert transactional_id("connect-cluster", TaskId("my-src", 3)) == "connect-cluster-my-src-3"
    assert leader_transactional_id("g") == "connect-cluster-g"
    assert fencing_record("src", 2) == ("tasks-fencing-src", b'{"task-count":2}')


def test_what_is_fenced_cannot_commit(broker: EmbeddedBroker) -> None:  # noqa: F811
    topic, ids = new_topic(broker), [new_name("g-src"), new_name("g-src")]
    producers = []
    for each in ids:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": each, "log_level": 0})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, each)
        producer.flush(60)
        producers.append(producer)
    fence({"bootstrap.servers": broker.bootstrap}, ids)
    for producer in producers:
        with pytest.raises(KafkaException):
            producer.commit_transaction(60)
    assert committed_values(broker.bootstrap, topic) == []


async def test_a_new_leader_fences_the_one_before_it(broker: EmbeddedBroker) -> None:  # noqa: F811
    topic, group = new_topic(broker), new_name("g")
    client = {"bootstrap.servers": broker.bootstrap}
    old, new = FencedWriter(client, group), FencedWriter(client, group)
    with pytest.raises(Fenced, match="not claimed"):
        await old.write(topic, [("k", b"0")])
    await old.claim()
    await old.write(topic, [("a", b"1"), ("b", b"2")])
    await new.claim()
    with pytest.raises(Fenced):
        await old.write(topic, [("k", b"never")])
    assert not old.claimed
    await new.write(topic, [("k", b"3")])
    values = await asyncio.to_thread(committed_values, broker.bootstrap, topic)
    assert values == [b"1", b"2", b"3"]


@pytest.fixture(scope="module")
def worker(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    properties = worker_properties(bootstrap, new_name("eos"), **{"exactly.once.source.support": "enabled"})
    directory = tmp_path_factory.mktemp("worker")
    started = WorkerProcess(properties, directory, python_path=install_plugins(directory / "plugins"))
    try:
        yield started.wait_ready()
    finally:
        started.end()


def test_a_task_count_record_follows_each_set_of_tasks(
    worker: WorkerProcess, bootstrap: str, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    name = new_name("src")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": name,
        "value.converter": STRING,
    }
    assert worker.request("POST", "/connectors", {"name": name, "config": config}).status == 201
    wait_for(lambda: committed_values(bootstrap, name) == [b"a"], lambda: worker.log[-3000:])
    config |= {"batch.size": "7"}
    assert worker.request("PUT", f"/connectors/{name}/config", config).status == 200
    with (tmp_path / "in.txt").open("a") as f:
        f.write("b\n")
    wait_for(lambda: len(committed_values(bootstrap, name)) > 1, lambda: worker.log[-3000:])
    assert committed_values(bootstrap, name) == [b"a", b"b"]
    worker.wait_state(name, "RUNNING", "RUNNING")


def test_fewer_tasks_fence_those_that_are_no_more(worker: WorkerProcess, bootstrap: str) -> None:
    name = new_name("src")
    config = {
        "connector.class": SOURCE,
        "topic": name,
        "limit": "300",
        "tasks.max": "3",
        "value.converter": STRING,
    }
    assert worker.request("POST", "/connectors", {"name": name, "config": config}).status == 201
    worker.wait_state(name, "RUNNING", "RUNNING", "RUNNING", "RUNNING")
    wait_for(lambda: len(committed_values(bootstrap, name)) == 900, lambda: worker.log[-3000:])
    assert worker.request("PUT", f"/connectors/{name}/config", config | {"tasks.max": "1"}).status == 200
    worker.wait_state(name, "RUNNING", "RUNNING")
    wait_for(lambda: task_counts(bootstrap, worker, name) == [3, 1], lambda: worker.log[-3000:])
    assert f"connector {name}: fencing the producers of its 3 former tasks" in worker.log
    assert len(committed_values(bootstrap, name)) == 900


def task_counts(bootstrap: str, worker: WorkerProcess, name: str) -> list[int]:
    """Returns the task count records of a connector, in order."""
    found = read_all(bootstrap, worker.topic("config"))
    return [json.loads(m.value())["task-count"] for m in found if m.key() == f"tasks-fencing-{name}".encode()]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"connector.class": "FileStreamSource", "exactly.once.support": "Required"}, None),
        (
            {"connector.class": SOURCE, "exactly.once.support": "required"},
            "The connector does not implement the API required for preflight validation of exactly-once source support",
        ),
        (
            {"connector.class": "FileStreamSource", "transaction.boundary": "connector"},
            "does not support connector-defined transaction boundaries",
        ),
        (
            {"connector.class": "FileStreamSource", "transaction.boundary": "sometimes"},
            "String must be one of (case insensitive): POLL, INTERVAL, CONNECTOR",
        ),
        (
            {"connector.class": "FileStreamSource", "topic.creation.default.partitions": "0"},
            "Number of partitions must be positive, or -1 to use the broker's default",
        ),
        (
            {"connector.class": "FileStreamSource", "topic.creation.groups": "a,a"},
            "Duplicate alias provided.",
        ),
    ],
)
def test_what_a_source_asks_for_is_checked(
    worker: WorkerProcess, more: dict[str, str], why: str | None
) -> None:
    config = {"name": "checked", "file": "/x", "topic": "t", **more}
    plugin = config["connector.class"]
    answer = worker.request("PUT", f"/connector-plugins/{plugin}/config/validate", config)
    assert answer.status == 200, answer.body
    errors = [e for row in answer.json["configs"] for e in row["value"]["errors"]]
    assert (errors == []) if why is None else any(why in e for e in errors), errors
