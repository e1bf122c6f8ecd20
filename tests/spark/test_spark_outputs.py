"""Outputs and sources that are Spark's own: tables by JDBC (Derby, which comes with Spark), files, a cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from support import needs
from support.broker import new_topic, wait_until
from support.spark import QUICK, a_job, produce, read_to_end, require_spark, until_end

from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError
from klamm_spark.beside import POSITION
from klamm_spark.java import need_java
from klamm_spark.model import Job, Output, Poll, Query, Source
from klamm_spark.process import DriverProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_job(job: Job) -> list[dict[str, Any]]:
    """Spark gives a Python worker ten seconds to start; where a machine stands still for as long the job is run again."""
    for _ in range(3):
        driver = DriverProcess(job)
        try:
            events = until_end(driver, timeout_s=400)
        finally:
            driver.kill()
        if not any("failed to connect back" in e.get("message", "") for e in events):
            break
    return events


def failure(events: list[dict[str, Any]]) -> str:
    return next(e["message"] for e in events if e["event"] == "failed")


def records(bootstrap: str, topic: str) -> list[tuple[str, Any]]:
    return [((m.key() or b"").decode(), json.loads(m.value() or b"")) for m in read_to_end(bootstrap, topic)]


def test_outputs_take_turns(spark: SparkSession, tmp_path: Path) -> None:
    """Shows that the tasks of each output wait in a pool of their own, and that pools share the slots."""
    from klamm_spark.outputs import start_output

    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    outputs = (Output("one", "noop"), Output("other", "noop"))
    job = Job("turns", str(tmp_path), Source("127.0.0.1:9", topics=("t",)), outputs)
    queries = [start_output(job, output, rate) for output in outputs]
    try:
        for query in queries:
            wait_until(lambda query=query: query.lastProgress, "no batch", timeout_s=120)
    finally:
        for query in queries:
            query.stop()
    scheduler = spark.sparkContext._jsc.sc()
    assert scheduler.getSchedulingMode().toString() == "FAIR"
    assert all(scheduler.getPoolForName(output.name).isDefined() for output in outputs)
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10 seconds", 10), ("5ms", 0.005), ("2 minutes", 120), ("1 milliseconds", 0.001), ("1h", 3600)],
)
def test_times_as_the_file_says_them(text: str, seconds: float) -> None:
    needs.module("pyspark", extra="spark")
    from klamm_spark.polled import seconds as read

    assert read(text) == pytest.approx(seconds)
    with pytest.raises(ConfigError, match="is no time"):
        read("soon")


class Reports(list[dict[str, Any]]):
    send = list.append


class Once(threading.Event):
    """Lets a loop run so many times, without its waiting."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds

    def wait(self, timeout: float | None = None) -> bool:
        self.rounds -= 1
        return self.rounds <= 0


def polled(tmp_path: Path, errors: list[Exception | None], **changes: Any) -> tuple[Any, Reports]:
    """Returns a source whose reads end like this, one after the other."""
    needs.module("pyspark", extra="spark")
    from klamm_spark.polled import Polled

    reports, poll = Reports(), changes.pop("poll", Poll("1 seconds", "id"))
    source, spark = Source(format="jdbc", read="batch", poll=poll), changes.pop("spark", None)
    job = Job("x", str(tmp_path), source, (Output("o", "noop"),), **changes)

    class Scripted(Polled):
        def _once(self) -> None:
            if (error := errors.pop(0)) is not None:
                raise error

    return Scripted(job, spark, reports), reports  # type: ignore[arg-type]


def test_a_source_that_is_away_is_asked_again(tmp_path: Path) -> None:
    errors = [OSError("refused"), OSError("refused"), None, OSError("refused"), None]
    reading, reports = polled(tmp_path, errors)
    reading.run(Once(5))
    assert not errors
    assert [e["for"] for e in reports] == ["the source: refused"] * 3
    with pytest.raises(ConfigError):
        polled(tmp_path, [ConfigError("no such column")])[0].run(Once(5))
    with pytest.raises(OSError, match="refused"):
        polled(tmp_path, [OSError("refused") for _ in range(11)])[0].run(Once(20))
    with pytest.raises(OSError, match="refused"):
        polled(tmp_path, [OSError("refused")], poll=Poll())[0].run(Once(1))


def test_a_read_that_was_cut_off_by_a_stop_is_no_failure(tmp_path: Path) -> None:
    class Stop(threading.Event):
        batch_s = 0.0

    cancelled = threading.Event()

    class Context:
        cancelAllJobs = cancelled.set  # noqa: N815

    class Spark:
        sparkContext = Context  # noqa: N815

    stop = Stop()
    reading, reports = polled(tmp_path, [], spark=Spark)

    def long_read() -> None:
        stop.set()
        assert cancelled.wait(60)
        raise OSError("cancelled")

    reading._once = long_read
    reading.run(stop)
    assert cancelled.is_set()
    assert reports == []


def test_what_is_read_once_is_not_read_again_by_a_restart(tmp_path: Path) -> None:
    never: list[Exception | None] = [AssertionError("it was read")]
    polled(tmp_path, never, poll=Poll(), position='{"column": null, "value": null, "batch": 0}')[0].run(
        Once(1)
    )
    assert len(never) == 1
    polled(tmp_path, [None], poll=Poll(), position="{}")[0].run(Once(1))


class ScriptedQuery:
    """A streaming query that describes itself as told."""

    name = "q"

    def __init__(self, error: str | None, rounds: int = 0) -> None:
        self._error, self._rounds = error, rounds

    def exception(self) -> str | None:
        return self._error

    @property
    def isActive(self) -> bool:  # noqa: N802
        self._rounds -= 1
        return self._rounds > 0


@pytest.mark.parametrize(
    ("error", "starts"), [("Python worker failed to connect back.", 1), ("something else", 0), (None, 0)]
)
def test_a_python_process_that_was_too_slow_is_no_end(error: str | None, starts: int) -> None:
    needs.module("pyspark", extra="spark")
    from klamm_spark.running import RESTARTS_MAX, _watch

    started: list[int] = []

    def again(number: int) -> Any:
        started.append(number)
        return ScriptedQuery(None, 2)

    queries: list[Any] = [ScriptedQuery(None, 2), ScriptedQuery(error)]
    _watch(queries, again, Once(99))  # type: ignore[arg-type]
    assert started == [1] * starts
    if starts:
        assert queries[1].exception() is None
        started.clear()

        def in_vain(number: int) -> Any:
            started.append(number)
            return ScriptedQuery(error, 9)

        queries = [ScriptedQuery(error)]
        _watch(queries, in_vain, Once(99))  # type: ignore[arg-type]
        assert len(started) == RESTARTS_MAX


def test_jars_of_the_connector_stand_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs.module("pyspark", extra="spark")
    from klamm_spark.running import _settings

    def jars(**more: str) -> str | None:
        source = Source("h:1", ("t",), connector="spark")
        settings = {f"spark.{k}": v for k, v in more.items()}
        return _settings(Job("x", "/cp", source, (Output("o", "jdbc"),), spark=settings)).get("spark.jars")

    monkeypatch.setenv("KLAMM_SPARK_KAFKA_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match="klamm spark setup --kafka-connector"):
        jars()
    assert jars(jars="/own.jar") == "/own.jar", "it may be in there"
    ours = tmp_path / "spark-sql-kafka-0-10_2.13-4.2.0.jar"
    ours.touch()
    assert jars() == str(ours)
    assert jars(jars="/jdbc.jar") == f"/jdbc.jar,{ours}"
    assert jars(jars="/jdbc.jar,/spark-sql-kafka-0-10_2.13-4.3.0.jar") == "/jdbc.jar,/spark-sql-kafka-0-10_2.13-4.3.0.jar"  # fmt: skip


class RunningQuery:
    """A query in the middle of a batch, which ends when it was looked at so often."""

    isActive = True  # noqa: N815
    status: ClassVar = {"isTriggerActive": True}

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self.stopped_after: int | None = None

    @property
    def lastProgress(self) -> dict[str, int]:  # noqa: N802
        self._looks -= 1
        return {"batchId": 4 + (self._looks < 0)}

    def stop(self) -> None:
        self.stopped_after = self.lastProgress["batchId"]


def test_each_query_may_end_its_own_batch() -> None:
    needs.module("pyspark", extra="spark")
    from klamm_spark.running import _stop_queries

    queries: list[Any] = [RunningQuery(2), RunningQuery(5)]
    _stop_queries(queries, 60)
    assert [q.stopped_after for q in queries] == [5, 5]


def test_how_a_query_looks_is_kept_by_a_later_batch_where_it_cannot_be_at_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    needs.module("pyspark", extra="spark")
    from klamm_spark import running
    from klamm_spark.beside import PLAN, LocalFiles, read_json

    checkpoint, said = tmp_path / "cp", []
    output = Output("o", "json")
    one: Any = SimpleNamespace(
        output=output, plan={"kind": "projection"}, standing=SimpleNamespace(fresh=False)
    )
    job = Job("x", str(checkpoint), Source("h:1", ("t",)), (output,))
    kept = running._Kept(job, [one], LocalFiles(checkpoint), None)

    def batch(number: int) -> None:
        standing: Any = SimpleNamespace(took=lambda event: None)
        progress = {"name": "x/o", "batchId": number}
        running._tell(progress, SimpleNamespace(send=said.append), kept, standing)  # type: ignore[arg-type]

    checkpoint.touch()  # no directory
    batch(7)
    assert "the form of query o could not be kept beside the checkpoint" in caplog.text
    checkpoint.unlink()
    batch(8)
    assert read_json(LocalFiles(checkpoint), PLAN)["outputs"] == {"o": one.plan}
    assert [event["batch"] for event in said] == [7, 8]


def test_complete_takes_the_place_of_files_and_is_added_to_topics(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    from klamm_spark.outputs import write_batch

    topic, directory = new_topic(broker), tmp_path / "out"
    outputs = (
        Output("topic", "klamm", mode="complete", options={"topic": topic}),
        Output("files", "json", mode="complete", options={"path": str(directory)}),
    )
    job = a_job(broker.bootstrap, topic, tmp_path, outputs=outputs)
    for number in range(2):
        frame = spark.createDataFrame([("k", json.dumps({"n": number}))], "key STRING, value STRING")
        for output in outputs:
            write_batch(job, output, frame, number)
    assert [value["n"] for _, value in records(broker.bootstrap, topic)] == [0, 1]
    assert [r["value"] for r in spark.read.json(str(directory)).collect()] == ['{"n": 1}']


@pytest.mark.usefixtures("apache_spark")
@pytest.mark.timeout(900)
def test_tables_by_jdbc_and_files_of_another_checkpoint(broker: EmbeddedBroker, tmp_path: Path) -> None:
    require_spark()
    topic, back = new_topic(broker), new_topic(broker)
    produce(broker.bootstrap, topic, ({"n": i, "s": f"s{i % 3}"} for i in range(30)))
    derby = {
        "url": f"jdbc:derby:{tmp_path}/db;create=true",
        "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    }
    outputs = (
        Output("rows", "jdbc", query="SELECT n, s FROM input", options=derby | {"dbtable": "ITEMS"}),
        Output("counts", "jdbc", mode="complete", query="SELECT s, count(*) AS c FROM input GROUP BY s", options=derby | {"dbtable": "COUNTS"}),
        Output("files", "json", query="SELECT n FROM input", options={"path": str(tmp_path / "out")}),
    )  # fmt: skip
    quiet = QUICK | {"spark.driver.extraJavaOptions": QUICK["spark.driver.extraJavaOptions"] + f" -Dderby.system.home={tmp_path}"}  # fmt: skip
    job = a_job(
        broker.bootstrap, topic, tmp_path, source={"schema": "n INT, s STRING"}, query=Query(), outputs=outputs,
        available_now=True, spark=quiet,
    )  # fmt: skip
    for _ in range(2):
        events = run_job(job)
        assert events[-1]["code"] == 0, events
        produce(broker.bootstrap, topic, ({"n": i, "s": f"s{i % 3}"} for i in range(30, 36)))

    assert "holds batches up to" in failure(
        run_job(dataclasses.replace(job, checkpoint=str(tmp_path / "other")))
    )

    to_topic = Job(
        "back", str(tmp_path / "back"), Source(broker.bootstrap, format="jdbc", read="batch", options=derby | {"dbtable": "ITEMS"}, poll=Poll(column="n", start="3")),
        (Output("topic", "klamm", options={"topic": back}, value="json", key=("n",)),), Query("SELECT * FROM input WHERE n <> 7"),
        "local[2]", quiet,
    )  # fmt: skip
    events = run_job(to_topic)
    assert events[-1]["code"] == 0, events
    expected = Counter(str(n) for n in range(4, 36) if n != 7)
    assert Counter(key for key, _ in records(broker.bootstrap, back)) == expected
    assert records(broker.bootstrap, back)[0][1] == {"n": 4, "s": "s1"}
    assert json.loads((tmp_path / "back" / POSITION).read_text()) == {
        "column": "n",
        "value": "35",
        "batch": 0,
    }
    counts = dataclasses.replace(
        to_topic,
        source=dataclasses.replace(to_topic.source, options=derby | {"dbtable": "COUNTS"}, poll=Poll()),
        query=Query(), outputs=(dataclasses.replace(to_topic.outputs[0], key=("s",)),), checkpoint=str(tmp_path / "c"),
    )  # fmt: skip
    assert run_job(counts)[-1]["code"] == 0
    found = {key: value["c"] for key, value in records(broker.bootstrap, back) if key.startswith("s")}
    assert found == {"s0": 12, "s1": 12, "s2": 12}, "complete takes the place of what was there"


@pytest.fixture
def cluster(processes: None, tmp_path: Path) -> Iterator[str]:
    """Yields a standalone cluster of Spark's on loopback: a master and a worker; its address."""
    require_spark()
    import pyspark

    home = Path(pyspark.__file__).parent
    env = os.environ | need_java().environment() | {
        "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = tmp_path / f"{name}.log"
        main = f"org.apache.spark.deploy.{name.lower()}.{name}"
        with log.open("wb") as out:
            running.append(
                subprocess.Popen(
                    [
                        str(home / "bin" / "spark-class"),
                        main,
                        "--host",
                        "127.0.0.1",
                        "--webui-port",
                        "0",
                        *arguments,
                    ],
                    env=env,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                )
            )
        return log

    def said(log: Path, pattern: str) -> re.Match[str]:
        wait_until(
            lambda: re.search(pattern, log.read_text()) is not None, f"{pattern} in {log}", timeout_s=180
        )
        found = re.search(pattern, log.read_text())
        assert found is not None
        return found

    try:
        master = said(start("Master", "--port", "0"), r"Starting Spark master at (spark://\S+)\s")[1]
        said(start("Worker", "--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"), master), "registered with master")  # fmt: skip
        yield master
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(60)


@pytest.mark.timeout(900)
def test_a_job_on_a_standalone_cluster(
    broker: EmbeddedBroker, spark: SparkSession, cluster: str, tmp_path: Path
) -> None:
    """The same job, another master: executors are processes of the worker, and find our data source."""
    topic, out = new_topic(broker, 2), new_topic(broker)
    produce(broker.bootstrap, topic, ({"n": i} for i in range(200)))
    settings = QUICK | {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
    }
    outputs = (
        Output("files", "parquet", query="SELECT n, partition, offset FROM input", options={"path": str(tmp_path / "out")}),
        Output("topic", "klamm", query="SELECT n FROM input WHERE n < 20", options={"topic": out}, value="json", key=("n",)),
    )  # fmt: skip
    job = a_job(
        broker.bootstrap, topic, tmp_path, query=Query(), outputs=outputs, master=cluster, spark=settings, available_now=True
    )  # fmt: skip
    events = run_job(job)
    assert events[-1]["code"] == 0, events
    assert sorted(r["n"] for r in spark.read.parquet(str(tmp_path / "out")).collect()) == list(range(200))
    assert Counter(key for key, _ in records(broker.bootstrap, out)) == Counter(str(n) for n in range(20))
