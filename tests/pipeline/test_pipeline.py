"""The whole pipeline on genuine parts, every stage killed on the way, and compared line by line at the end."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.elasticsearch import require
from support.klamm import KLAMM
from support.spark import require_spark

from klamm.demo.logs import report
from klamm.demo.logs.pipeline import Pipeline
from klamm.demo.logs.target import ElasticsearchTarget, SqliteTarget, Target
from klamm.testing.elasticsearch import ElasticsearchServer
from klamm_spark.java import need_java

pytestmark = [pytest.mark.usefixtures("apache_spark"), pytest.mark.timeout(900)]
PATIENCE_S = 300
RATE, TOTAL = 150, 3000


@pytest.fixture(autouse=True)
def _spark_is_here() -> None:
    require_spark()


def command_line(process: psutil.Process) -> str:
    """Empty for a process that has ended meanwhile, as Spark's short-lived workers do."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def wait_for(found: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + within_s
    while not found():
        assert time.monotonic() < until, f"not within {within_s} s: {what}"
        time.sleep(0.2)


@contextmanager
def running(directory: Path, target: Target) -> Iterator[Pipeline]:
    target.prepare()
    with Pipeline(directory, target, java=need_java().environment()) as pipeline:
        pipeline.start_processing(print)
        pipeline.start_logging(seed=5, rate=RATE, total=TOTAL)
        yield pipeline


def kill_on_the_way(pipeline: Pipeline, more: Callable[[], None] = lambda: None) -> None:
    """Kill -9 and start again: agent, Spark's driver, and what else there is; each while lines are being written."""
    wait_for(lambda: pipeline.agent.status().get("acked", 0) > 100, "lines acknowledged")
    pipeline.agent.process.kill()
    pipeline.agent.process.start()
    wait_for(lambda: pipeline.check() or pipeline.target.count() > 0, "the first documents")
    pipeline.spark.process.kill()
    pipeline.spark.start()
    more()
    pipeline.wait_for_spark()


def reconciled(pipeline: Pipeline) -> report.Report:
    pipeline.run(lambda readings: None, patience_s=PATIENCE_S)
    pipeline.stop()
    return report.make(pipeline.files, pipeline.target, note="", seconds=1)


@pytest.mark.usefixtures("elasticsearch")
def test_into_elasticsearch_through_kills_of_agent_spark_and_elasticsearch(tmp_path):
    with ElasticsearchServer(require()) as server:
        target = ElasticsearchTarget(server.url, "test-logs")

        def kill_server() -> None:
            server.kill()
            server.start()

        with running(tmp_path, target) as pipeline:
            kill_on_the_way(pipeline, kill_server)
            found = reconciled(pipeline)
            assert found.complete, json.dumps(found.as_dict(), indent=1)
            assert found.comparison.source_lines == found.comparison.documents == TOTAL
            assert found.files == 11
            assert found.rates.windows >= 10

            # The report sees what happens behind the pipeline's back: a document removed, and a stray one
            client = target._client
            hit = client.search(index=target.index("events"), size=1)["hits"]["hits"][0]
            client.delete(index=hit["_index"], id=hit["_id"], refresh=True)
            after = report.make(pipeline.files, target, note="", seconds=1)
            assert not after.complete
            assert [line.id for line in after.comparison.missing.items] == [hit["_source"]["event.id"]]
            line = after.comparison.missing.items[0]
            with Path(line.file).open("rb") as file:
                file.seek(line.offset)
                assert line.id.encode() in file.readline()

            client.index(index=hit["_index"], id=hit["_id"], document=hit["_source"])
            client.index(index=hit["_index"], id="stray", document={**hit["_source"], "event.id": "f" * 32})
            after = report.make(pipeline.files, target, note="", seconds=1)
            assert not after.complete
            assert [(d.id, d.key) for d in after.comparison.unexpected.items] == [
                ("f" * 32, f"{hit['_index']}/stray")
            ]
            assert after.comparison.missing.count == 0


def test_into_sqlite_through_kills_of_agent_and_spark(tmp_path):
    target = SqliteTarget(tmp_path / "documents.db")
    with running(tmp_path, target) as pipeline:
        kill_on_the_way(pipeline)
        found = reconciled(pipeline)
        assert found.complete, json.dumps(found.as_dict(), indent=1)
        assert found.comparison.documents == TOTAL

    with sqlite3.connect(target.file) as connection:
        id_, key = connection.execute("SELECT event_id, doc_id FROM events LIMIT 1").fetchone()
        connection.execute("DELETE FROM events WHERE doc_id = ?", (key,))
        connection.execute(
            "INSERT INTO events (doc_id, event_id) SELECT 'again', event_id FROM events LIMIT 1"
        )
        connection.execute("UPDATE rates SET errors = errors + 1 WHERE rowid = 1")
    connection.close()
    after = report.make(pipeline.files, target, note="", seconds=1)
    assert not after.complete
    assert [line.id for line in after.comparison.missing.items] == [id_]
    assert after.comparison.duplicates.count == 1
    assert len(after.rates.differences) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_command(tmp_path, number):
    words = [
        "demo",
        "logs",
        "--target",
        "sqlite",
        "--seconds",
        "600",
        "--rate",
        "20",
        "--data-dir",
        str(tmp_path),
    ]
    with subprocess.Popen([str(KLAMM), *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "generator" in line:
                break
        started = psutil.Process(process.pid).children(recursive=True)
        names = " ".join(map(command_line, started))
        for part in (
            "klamm_spark.driver",
            "agent start",
            "generator",
            "broker start",
            "connect distributed",
            "java",
        ):
            assert part in names, part
        process.send_signal(number)
        assert process.wait(90) == (130 if number == signal.SIGINT else -signal.SIGKILL)
    wait_for(lambda: not [p for p in started if p.is_running() and command_line(p)], "all children gone", 60)
    if number == signal.SIGINT:
        assert list(tmp_path.iterdir()) == []


def test_a_stage_that_fails_is_named_and_ends_the_command(tmp_path):
    words = [
        "demo",
        "logs",
        "--target",
        "sqlite",
        "--seconds",
        "600",
        "--rate",
        "20",
        "--data-dir",
        str(tmp_path),
    ]
    with subprocess.Popen(
        [str(KLAMM), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if "generator" in line:
                break
        agent = next(
            p
            for p in psutil.Process(process.pid).children(recursive=True)
            if "agent start" in command_line(p)
        )
        agent.kill()
        said = process.stderr.read()
        assert process.wait(90) == 1
    assert "klamm: stage agent: the process ended (signal SIGKILL)" in said
    (kept,) = tmp_path.iterdir()
    assert f"the logs of all stages are in {kept}" in said
    assert {path.name for path in kept.iterdir()} == {"agent.log", "generator.log", "klamm.log", "spark.log"}
