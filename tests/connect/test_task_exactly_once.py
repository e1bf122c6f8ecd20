"""A sink whose target keeps the offsets, under kill -9, errors and rebalances: each record is there once."""

import asyncio
import random
import sqlite3

from confluent_kafka import Producer
from support.broker import broker, new_name, new_topic  # noqa: F401
from support.connect_worker import WorkerProcess, worker_properties
from support.connect_worker import wait_for as until
from support.exactly_once import kill_9
from support.runtime import Watched, task_spec, wait_for, worker_props

from klamm.connect.model import Kind, TaskId
from klamm.connect.settings.restart_policy import RestartPolicy

# One of the tasks may get all the kills, and who was pushed out by the other one fails, too.
PATIENT = RestartPolicy(max_restarts=100, backoff_ms=50, backoff_max_ms=100)
JSON = "org.apache.kafka.connect.json.JsonConverter"


def numbers(path):
    connection = sqlite3.connect(path, timeout=60)
    try:
        return [n for (n,) in connection.execute("SELECT n FROM lines ORDER BY n")]
    finally:
        connection.close()


def count(path):
    try:
        return len(numbers(path))
    except sqlite3.OperationalError:
        return 0  # no table yet


def fill(broker, topic, first, last, partitions):  # noqa: F811
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(first, last):
        producer.produce(topic, b'{"n": %d}' % n, partition=n % partitions)
    assert producer.flush(60) == 0


def spec(broker, name, topic, path, number=0):  # noqa: F811
    config = {
        "topics": topic, "connection.url": f"sqlite:///{path}", "auto.create": "true", "exactly.once": "true",
        "table.name.format": "lines", "retry.backoff.ms": "20", "max.retries": "1000", "topic": "",
        "consumer.override.session.timeout.ms": "6000", "consumer.override.max.poll.records": "20",
    }  # fmt: skip
    worker = worker_props(
        broker.bootstrap, **{"value.converter": JSON, "value.converter.schemas.enable": "false"}
    )
    return task_spec(name, config, kind=Kind.SINK, plugin="SqlSink", worker=worker, number=number)


async def test_each_record_is_in_the_database_once_whoever_is_killed_when(broker, tmp_path):  # noqa: F811
    """Insert mode, no key: what was written twice would be there twice. Two tasks share two partitions and change places."""
    kills, seed = 6, random.randrange(2**32)
    rng, path = random.Random(seed), tmp_path / "x.db"
    topic, name, total = new_topic(broker, partitions=2), new_name("sql"), 3_000
    async with Watched(PATIENT) as w:
        tasks = [TaskId(name, n) for n in range(2)]
        for n in range(2):
            await w.supervisor.start_task(spec(broker, name, topic, path, n))
        share = total // kills
        for kill in range(kills):
            await asyncio.to_thread(fill, broker, topic, kill * share, (kill + 1) * share, 2)
            await wait_for(
                lambda floor=kill * share: count(path) > floor, lambda: f"{seed} {w.events[-3:]}", 60
            )
            await asyncio.sleep(rng.random() * 0.2)
            kill_9(w.supervisor.pid(rng.choice(tasks)))
        done = share * kills
        await wait_for(lambda: count(path) >= done, lambda: f"seed {seed}: {count(path)} {w.events[-3:]}", 90)
        for task in tasks:
            await w.supervisor.stop_task(task)
    assert numbers(path) == list(range(done)), f"seed {seed}"


def test_offsets_that_rest_changes_are_those_of_the_database(bootstrap, tmp_path):
    """PATCH and DELETE …/offsets move the table, and the connector begins there."""
    path, topic = tmp_path / "x.db", new_name()
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(5):
        producer.produce(topic, b'{"n": %d}' % n)
    assert producer.flush(60) == 0
    worker = WorkerProcess(worker_properties(bootstrap, new_name("eo")), tmp_path)
    try:
        worker.wait_ready()
        answer = worker.create(
            "eo",
            connector__class="SqlSink",
            topics=topic,
            connection__url=f"sqlite:///{path}",
            auto__create="true",
            exactly__once="true",
            table__name__format="lines",
            value__converter=JSON,
            value__converter__schemas__enable="false",
        )
        assert answer.status == 201, answer.body
        until(lambda: count(path) == 5, lambda: worker.log, 60)
        place = {"kafka_topic": topic, "kafka_partition": 0}
        for method, offsets, rows in (("PATCH", {"kafka_offset": 3}, 7), ("DELETE", None, 12)):
            assert worker.request("PUT", "/connectors/eo/stop").status == 204
            until(lambda: worker.get("/connectors/eo/status")["tasks"] == [], lambda: worker.log)
            body = None if offsets is None else {"offsets": [{"partition": place, "offset": offsets}]}
            assert worker.request(method, "/connectors/eo/offsets", body).status == 200
            assert worker.request("PUT", "/connectors/eo/resume").status == 202
            until(lambda rows=rows: count(path) == rows, lambda: f"{count(path)} {worker.log}", 60)
    finally:
        worker.end()
