"""SparkSink: its configuration, and a real job through a real worker."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from support.broker import broker, new_name, new_topic, wait_until  # noqa: F401  the fixture
from support.connect_worker import WorkerProcess, worker_properties
from support.spark import QUICK, all_gone, family, find_process, produce, require_spark

from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError
from klamm_connectors.spark import common_config, driver_task
from klamm_connectors.spark.driver_task import bounded
from klamm_connectors.spark.sink import config
from klamm_connectors.spark.sink.connector import SparkSinkConnector
from klamm_connectors.spark.sink.task import SparkSinkTask
from klamm_plugins.errors import ConnectError
from klamm_plugins.testing import ConnectorConformance, MemoryDriverContext

CLIENT = {
    "bootstrap.servers": "h:1",
    "security.protocol": "SASL_SSL",
    "group.id": "connect-x",
    "auto.offset.reset": "earliest",
}
PROPS = {
    "name": "x",
    "topics": "a,b",
    "output.format": "parquet",
    "output.options.path": "/out",
    "value.format": "json",
    "value.schema": "n INT",
    "query.sql": "SELECT * FROM input",
    "query.view.v": "SELECT 1",
    "spark.sql.shuffle.partitions": "2",
    "value.converter": "ignored",
}


def test_keys_whose_ends_users_choose_get_no_warning() -> None:
    from klamm.connect.child.calls import _taken

    free = {"spark.jars": "j", "query.view.v": "SELECT 1", "output.options.url": "u"}
    assert _taken(SparkSinkConnector, {**free, "sparks.jars": "j"}) == list(free)


class TestConformance(ConnectorConformance):
    connector = SparkSinkConnector

    def props(self, tmp_path: Path) -> dict[str, str]:
        return PROPS


def test_a_configuration_is_a_job() -> None:
    job = config.parse(PROPS, CLIENT, "/cp", "earliest")
    assert (job.name, job.checkpoint, job.source.topics) == ("x", "/cp", ("a", "b"))
    assert job.spark == {"spark.sql.shuffle.partitions": "2"}
    assert job.source.options == {"kafka.security.protocol": "SASL_SSL"}, (
        "Spark keeps offsets itself: no group"
    )
    assert job.outputs[0].options == {"path": "/out"}
    assert dict(job.query.views) == {"v": "SELECT 1"}


@pytest.mark.parametrize(
    ("change", "key", "said"),
    [
        ({"query.sqll": "x"}, "query.sqll", "SparkSink has no configuration query.sqll"),
        ({"output.mode": "upsert"}, "output.mode", "must be one of: append, update, complete"),
        ({"value.schema": None}, "value.schema", "needs a schema"),
        ({"query.function": "a:b"}, "query.sql", "not both"),
        ({"output.format": None}, "output.format", "Missing required configuration"),
    ],
)
def test_what_is_wrong_is_said_at_its_key(change: dict[str, Any], key: str, said: str) -> None:
    props = {k: v for k, v in (PROPS | change).items() if v is not None}
    found = {v.name: v.errors for v in SparkSinkConnector.validate(props) if v.errors}
    assert key in found, found
    assert said in " ".join(found[key])
    with pytest.raises(ConfigError):
        SparkSinkConnector().start(props)


def test_checkpoints_of_clusters_do_not_mix() -> None:
    env = {"KLAMM_SPARK_DIR": "/data"}
    assert common_config.default_checkpoint("a/b", "id1", env) == "/data/a%2fb-id1"


def test_a_status_is_not_too_long() -> None:
    few = {"rows": 1, "lag": {"t": 1}, "metrics": [["a", {}, 1]]}
    assert bounded(few) == few
    topics = {f"topic-{n}": n for n in range(300)}
    many = few | {
        "drift": {t: {"found": ["x" * 100]} for t in topics},
        "metrics": [["m", {"topic": t}, 1] for t in topics],
    }
    assert "drift" not in bounded(many), "what is needed least goes first"
    assert bounded(many)["lag"] == {"t": 1}
    for size in (10, 300, 3000):
        long = {
            "lag": {f"topic-{n}": n for n in range(size)},
            "metrics": [["x" * 99, {"a": "b" * 99}, 1]] * size,
            "rows": 1,
        }
        assert len(json.dumps(bounded(long))) <= 15_000


def documents(directory: Path) -> list[int]:
    """Returns numbers of the JSON files that the sink has committed."""
    names = set()
    for log in (directory / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines():
            if line.startswith("{"):
                names.add(Path(json.loads(line)["path"]).name)
    lines = [x for n in names for x in (directory / n).read_text().splitlines()]
    return sorted(json.loads(x)["n"] for x in lines)


class ScriptedDriver:
    """A job's process that says this."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self._events = list(events)

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        return self._events.pop(0) if self._events else None

    def kill(self) -> None:
        self._events.clear()


STOPPED = ({"event": "stopped", "rows": 0}, {"event": "ended", "code": 0})


@pytest.mark.parametrize("early", [True, False])
def test_a_job_that_somebody_else_stopped_is_started_again(
    early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task was idle and RUNNING for ever: only a job that ends by itself may do so."""
    started = {"event": "started", "queries": ["output"], "spark": "4", "java": 17}

    def task(trigger: str) -> SparkSinkTask:
        events = STOPPED if early else (started, *STOPPED)
        monkeypatch.setattr(driver_task, "DriverProcess", lambda job: ScriptedDriver(*events))
        found = SparkSinkTask()
        found.initialize(MemoryDriverContext(PROPS))
        job = config.parse(PROPS | {"trigger": trigger}, CLIENT, "/cp", "earliest")
        monkeypatch.setattr(found, "describe", lambda props: job)
        return found

    def work(one: SparkSinkTask) -> None:
        one._launch()
        one.run()

    with pytest.raises(ConnectError, match="was told to stop, not by this worker"):
        work(task("5 seconds"))
    work(task("available_now"))


@pytest.mark.usefixtures("apache_spark")
@pytest.mark.timeout(900)
def test_a_worker_runs_a_spark_job(broker: EmbeddedBroker, tmp_path: Path) -> None:  # noqa: F811
    """Data, progress, group offsets; pause and resume; a killed driver; deletion leaves no process."""
    require_spark()
    topic, name = new_topic(broker, 2), new_name("spark")
    produce(broker.bootstrap, topic, ({"n": i} for i in range(300)))
    worker = WorkerProcess(worker_properties(broker.bootstrap, new_name("group")), tmp_path).wait_ready()
    body = {
        "connector.class": "SparkSink",
        "topics": topic,
        "value.format": "json",
        "value.schema": "n INT",
        "query.sql": "SELECT n FROM input WHERE n >= 0",
        "output.format": "json",
        "output.options.path": str(tmp_path / "out"),
        "checkpoint.location": str(tmp_path / "cp"),
        "spark.master": "local[2]",
        "task.restart.backoff.ms": "200",
        **QUICK,
    }
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"connect-{name}"})

    def task() -> dict[str, Any]:
        return worker.get(f"/connectors/{name}/status")["tasks"][0]

    def java() -> psutil.Process | None:
        return find_process(worker.process.pid, "org.apache.spark")

    def progress() -> dict[str, Any]:
        return task().get("progress") or {}

    def settled(count: int) -> None:
        wait_until(
            lambda: (tmp_path / "out").exists() and len(documents(tmp_path / "out")) >= count,
            f"{count} rows",
            timeout_s=240,
        )
        assert documents(tmp_path / "out") == list(range(count))

    try:
        answer = worker.request("PUT", f"/connectors/{name}/config", body)
        assert answer.status == 201, answer.body
        settled(300)
        wait_until(lambda: progress().get("records") == 300, "the progress")
        assert task()["state"] == "RUNNING"
        wait_until(lambda: progress().get("lag") == 0, "the lag")
        places = [TopicPartition(topic, p) for p in (0, 1)]
        wait_until(
            lambda: sum(max(0, p.offset) for p in consumer.committed(places, 60)) == 300,
            "the group's offsets",
        )

        worker.request("PUT", f"/connectors/{name}/pause")
        wait_until(lambda: task()["state"] == "PAUSED" and not java(), "the pause", timeout_s=90)
        produce(broker.bootstrap, topic, ({"n": i} for i in range(300, 400)))
        worker.request("PUT", f"/connectors/{name}/resume")
        settled(400)

        driver = wait_until(java, "Spark's Java").ppid()
        os.kill(driver, signal.SIGKILL)
        produce(broker.bootstrap, topic, ({"n": i} for i in range(400, 450)))
        settled(450)
        wait_until(lambda: task()["state"] == "RUNNING", "the restart", timeout_s=90)
        # Rows are in the files a moment before their batch is done, and only then do their offsets count
        wait_until(
            lambda: sum(p.offset for p in consumer.committed(places, 60)) == 450,
            "the last offsets",
            timeout_s=90,
        )

        processes = family(wait_until(java, "Spark's Java").ppid())
        worker.request("DELETE", f"/connectors/{name}")
        assert all_gone(processes, 60)
        assert "did not stop within" not in worker.log, (
            "the driver's end fits into the time that a task has for its stop"
        )
    finally:
        consumer.close()
        print(worker.log)
        worker.stop(timeout_s=60)
