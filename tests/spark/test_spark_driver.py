"""The driver process: jobs from start to end, restarts, and that nothing stays behind when something is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import psutil
import pyarrow.parquet as parquet
import pytest
from support.broker import new_topic, wait_until
from support.klamm import klamm
from support.spark import (
    QUICK,
    a_job,
    all_gone,
    family,
    find_process,
    produce,
    read_to_end,
    require_spark,
    until_end,
    wait_event,
)

from klamm.testing import EmbeddedBroker
from klamm_spark.model import Job, Output, Query
from klamm_spark.process import DriverProcess
from klamm_spark.session import LOCAL_FILES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("apache_spark"), pytest.mark.timeout(900)]

MODULE = """
from pyspark.sql import functions as F

def split(df, spark):
    return {"even": df.where("n % 2 = 0").select("n"), "counts": df.groupBy("partition").count()}

def slowly(df, spark):
    slow = F.udf(lambda n: __import__("time").sleep(0.002) or n, "int")
    return df.select(slow("n").alias("n"), "partition", "offset")
"""


@pytest.fixture(autouse=True)
def _needs_spark() -> None:
    require_spark()


@pytest.fixture
def launch() -> Iterator[Callable[[Job], DriverProcess]]:
    """Starts drivers; none of them outlives the test."""
    launched: list[DriverProcess] = []

    def start(job: Job) -> DriverProcess:
        launched.append(DriverProcess(job))
        return launched[-1]

    yield start
    for driver in launched:
        driver.kill()


def numbers_in(spark: SparkSession, directory: Path) -> list[int]:
    """Returns what the file sink has committed (a killed batch's files do not count)."""
    return sorted(r["n"] for r in spark.read.parquet(str(directory / "out")).collect())


def run_now(job: Job) -> list[dict]:
    driver = DriverProcess(job)
    try:
        return until_end(driver)
    finally:
        driver.kill()


def now(job: Job) -> Job:

    return replace(job, available_now=True)


def test_a_killed_driver_changes_nothing_in_the_result(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, launch: Callable[[Job], DriverProcess]
) -> None:
    """Killed in the middle of a batch; then the files hold every record once.

    The first run writes its checkpoint as Spark would, the second one as we have it written: each reads the other's.
    """
    topic = new_topic(broker, 2)
    produce(broker.bootstrap, topic, ({"n": i} for i in range(3000)))
    (tmp_path / "slow_job.py").write_text(MODULE)
    job = a_job(
        broker.bootstrap, topic, tmp_path,
        query=Query(function="slow_job:slowly"), python_path=(str(tmp_path),), source={"max_offsets_per_trigger": 500},
    )  # fmt: skip
    (key, ours) = next(iter(LOCAL_FILES.items()))
    sparks = {key: ours.replace("FileSystemBased", "FileContextBased")}
    driver = launch(replace(job, spark=QUICK | sparks))
    wait_event(driver, "started")
    wait_event(driver, "progress")
    processes = family(driver.pid)
    os.kill(driver.pid, signal.SIGKILL)
    assert all_gone(processes, 60), "Java and its workers end with the driver"
    events = run_now(now(job))
    assert events[-1] == {"event": "ended", "code": 0}, events
    assert numbers_in(spark, tmp_path) == list(range(3000))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are forked on Linux only")
def test_python_processes_are_forked_from_one_import_and_go_on_when_that_process_is_gone(
    broker: EmbeddedBroker, tmp_path: Path, launch: Callable[[Job], DriverProcess]
) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, [{"n": 1}])
    driver = launch(a_job(broker.bootstrap, topic, tmp_path))
    assert wait_event(driver, "progress")["rows"] == 1
    java, server = (
        find_process(driver.pid, "org.apache.spark"),
        find_process(driver.pid, "klamm_spark.fork_server"),
    )
    assert java is not None
    assert server is not None
    started = [p.cmdline() for p in java.children() if "python" in p.name()]
    assert started
    assert all("launch.py" in " ".join(command) for command in started), started
    forked = {" ".join(p.cmdline()).strip() for p in server.children()}
    assert "python -m pyspark.daemon pyspark.worker" in forked, forked
    server.kill()
    produce(broker.bootstrap, topic, [{"n": 2}])
    while wait_event(driver, "progress")["rows"] != 1:
        pass


def test_nothing_stays_when_the_parent_is_killed(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, [{"n": 1}])
    pipeline = tmp_path / "p.toml"
    secret = {"spark.hadoop.fs.s3a.secret.key": "hush-hush"}
    pipeline.write_text(toml(broker.bootstrap, topic, tmp_path, secret))
    command = [str(Path(sys.executable).with_name("klamm")), "spark", "run", str(pipeline)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            line = parent.stdout.readline()
            assert line.startswith("ready job=numbers queries=files driver="), line
            processes = family(parent.pid)
            java = find_process(parent.pid, "org.apache.spark")
            assert java is not None
            assert "hush-hush" not in " ".join(java.cmdline())
        finally:
            parent.kill()
    assert all_gone(processes, 60), "nobody waits for a batch any more"


def toml(bootstrap: str, topic: str, directory: Path, spark: Mapping[str, str] = {}) -> str:
    settings = "\n".join(f'"{k}" = "{v}"' for k, v in {**QUICK, **spark}.items())
    return f"""
[spark]
{settings}
[job]
name = "numbers"
checkpoint = "{directory}/checkpoint"
master = "local[2]"
[source]
topics = ["{topic}"]
bootstrap_servers = "{bootstrap}"
starting_offsets = "earliest"
value_format = "json"
schema = "n INT"
[query]
sql = "SELECT n, _corrupt FROM input"
[[outputs]]
name = "files"
format = "parquet"
options.path = "{directory}/out"
"""


def test_the_command_ends_with_what_is_there(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, [{"n": 1}, b"no json", {"n": 2}])
    pipeline = tmp_path / "p.toml"
    pipeline.write_text(toml(broker.bootstrap, topic, tmp_path))
    done = klamm("spark", "run", "--available-now", str(pipeline), timeout_s=200)
    assert done.returncode == 0, done.stderr
    assert "ready job=numbers queries=files" in done.stdout
    assert "stopped: 3 records read" in done.stderr
    assert committed(tmp_path) == [(0, "no json"), (1, ""), (2, "")]


def test_the_command_runs_a_job_and_drains_on_ctrl_c(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, [{"n": 1}, b"no json", {"n": 2}])
    pipeline = tmp_path / "p.toml"
    pipeline.write_text(toml(broker.bootstrap, topic, tmp_path))
    command = [str(Path(sys.executable).with_name("klamm")), "spark", "run", str(pipeline)]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert server.stdout.readline().startswith("ready ")
    wait_until(lambda: len(committed(tmp_path)) == 3, "three rows", timeout_s=120)
    produce(broker.bootstrap, topic, [{"n": 3}])
    wait_until(lambda: len(committed(tmp_path)) == 4, "the fourth row", timeout_s=120)
    assert committed(tmp_path) == [(0, "no json"), (1, ""), (2, ""), (3, "")]
    processes = family(server.pid)
    os.killpg(server.pid, signal.SIGINT)  # as a terminal does: to the command and all that is in its group
    _, errors = server.communicate(timeout=60)
    assert server.returncode == 0, errors
    assert all_gone(processes, 60)


def committed(directory: Path) -> list[tuple[int, str]]:
    """Returns the rows of the files that the sink's list of batches names."""
    log = directory / "out" / "_spark_metadata"
    batches = [path.read_text().splitlines() for path in log.glob("[0-9]*")]
    assert all(lines[0] == "v1" for lines in batches)
    files = [json.loads(line)["path"] for lines in batches for line in lines[1:]]
    rows = [row for file in files for row in parquet.read_table(unquote(urlparse(file).path)).to_pylist()]
    return sorted((row["n"] or 0, row["_corrupt"] or "") for row in rows)


def test_a_job_that_cannot_start_is_one_sentence(broker: EmbeddedBroker, tmp_path: Path) -> None:
    pipeline = tmp_path / "p.toml"
    pipeline.write_text(toml(broker.bootstrap, "absent-topic", tmp_path))
    done = klamm("spark", "run", str(pipeline), timeout_s=200)
    said = [line for line in done.stderr.splitlines() if line.startswith("klamm: ")]
    assert said == [f"klamm: there is no absent-topic on {broker.bootstrap}"], done.stderr
    assert done.returncode == 2


def test_a_function_with_several_results_goes_to_several_outputs(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    """One to a topic, one (counts, updated) to a database; a checkpoint that does not fit is said."""
    topic, even = new_topic(broker, 2), new_topic(broker)
    produce(broker.bootstrap, topic, ({"n": i} for i in range(100)))
    (tmp_path / "fan_job.py").write_text(MODULE)
    outputs = (
        Output("numbers", "klamm", query="SELECT to_json(struct(*)) AS value FROM even", options={"topic": even}),
        Output("counts", "sql", mode="update", options={"url": f"sqlite:///{tmp_path}/c.db", "table": "c", "keys": "partition", "create": "true"}),
    )  # fmt: skip
    job = a_job(
        broker.bootstrap, topic, tmp_path,
        query=Query(function="fan_job:split"), outputs=outputs, python_path=(str(tmp_path),), available_now=True,
    )  # fmt: skip
    for total in (100, 150):
        events = run_now(job)
        assert events[-1]["code"] == 0, events
        import sqlite3

        with sqlite3.connect(tmp_path / "c.db") as db:
            assert db.execute("SELECT sum(count) FROM c").fetchone() == (total,)
        produce(broker.bootstrap, topic, ({"n": i} for i in range(100, 150)))
    assert Counter(values(broker.bootstrap, even)) == Counter(f'{{"n":{i}}}' for i in range(0, 150, 2))

    other = a_job(
        broker.bootstrap, topic, tmp_path,
        query=Query(sql="SELECT n, partition, count(*) AS count FROM input GROUP BY n, partition"),
        outputs=(outputs[1],), available_now=True,
    )  # fmt: skip
    failed = next(e for e in run_now(other) if e["event"] == "failed")
    assert "was written by another version of this query" in failed["message"], failed
    assert not failed["retriable"]


def values(bootstrap: str, topic: str) -> list[str]:
    return [(m.value() or b"").decode() for m in read_to_end(bootstrap, topic)]


def test_a_service_managers_sigterm_reaches_java_too(
    broker: EmbeddedBroker, tmp_path: Path, launch: Callable[[Job], DriverProcess]
) -> None:
    driver = launch(a_job(broker.bootstrap, new_topic(broker), tmp_path))
    wait_event(driver, "progress")
    processes = family(driver.pid)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    events = until_end(driver)
    # A lag is said of a query that has said nothing for a while
    assert [e["event"] for e in events if e["event"] not in {"progress", "lag"}] == ["stopped", "ended"]
    assert events[-1]["code"] == 0
    assert all_gone(processes, 60)


def test_a_killed_java_is_said(
    broker: EmbeddedBroker, tmp_path: Path, launch: Callable[[Job], DriverProcess]
) -> None:
    """Python sees a refused connection, which told nobody what had happened."""
    driver = launch(a_job(broker.bootstrap, new_topic(broker), tmp_path))
    wait_event(driver, "progress")
    java = find_process(driver.pid, "org.apache.spark")
    assert java is not None
    java.kill()
    failed = next(e for e in until_end(driver) if e["event"] == "failed")
    assert failed["message"].startswith("Spark's Java process ended while the job ran (killed by SIGKILL")
    assert failed["error"] == "JavaEndedError"
    assert failed["retriable"]
