"""Commands about a job that need no Spark: its status, its schema, its metrics."""

from __future__ import annotations

import json
import re
import signal
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import typer
from support.broker import wait_until
from support.klamm import klamm
from support.private import not_private, umask

from klamm.cli.spark_follow import Failing, follow, metrics
from klamm_base.errors import ConfigError
from klamm_spark.beside import SCHEMA, STATUS, LocalFiles
from klamm_spark.lock import in_use, locked
from klamm_spark.model import Job, Source
from klamm_spark.status import JobStatus

JOB = """
[job]
name = "orders"
checkpoint = "{checkpoint}"
[source]
topics = ["orders"]
bootstrap_servers = "127.0.0.1:9"
value_format = "json"
schema = "{schema}"
[[outputs]]
format = "parquet"
"""


def files(directory: Path, schema: str = "infer", **kept: Any) -> str:
    """Returns a job's file, and what it keeps beside its checkpoint."""
    checkpoint = directory / "cp"
    checkpoint.mkdir(exist_ok=True)
    for name, data in kept.items():
        (checkpoint / {"status": STATUS, "schema_file": SCHEMA}[name]).write_text(json.dumps(data))
    pipeline = directory / "job.toml"
    pipeline.write_text(JOB.format(checkpoint=checkpoint, schema=schema))
    return str(pipeline)


def running() -> dict[str, Any]:
    status = JobStatus("orders", pid=1)
    status.take({"event": "started", "queries": ["parquet"], "spark": "4.3.0"}, 100.0)
    status.take(
        {"event": "progress", "query": "parquet", "batch": 4, "rows": 7, "late": 0, "lag": {"orders": 3}},
        101.0,
    )
    return status.to_json()


@pytest.mark.usefixtures("processes")
def test_a_job_that_runs_and_one_that_was_killed(tmp_path: Path) -> None:
    pipeline = files(tmp_path, status=running())
    done = klamm("spark", "status", pipeline)
    assert done.stdout.startswith("orders KILLED since "), done.stdout + done.stderr
    with locked(tmp_path / "cp", threading.Event()):
        assert in_use(tmp_path / "cp")
        done = klamm("spark", "status", pipeline)
        assert done.stdout.startswith("orders RUNNING since ")
        found = json.loads(klamm("spark", "status", pipeline, "-o", "json").stdout)
    assert not in_use(tmp_path / "cp")
    assert found[0]["queries"]["parquet"]["rows"] == 7


def test_a_checkpoint_that_klamm_makes_is_for_its_owner_alone(tmp_path: Path) -> None:
    checkpoint = tmp_path / "cp"
    with umask(0), locked(checkpoint, threading.Event()):
        LocalFiles(checkpoint).write("deeper/klamm-status.json", b"{}")
    assert not_private(checkpoint) == {}


@pytest.mark.usefixtures("processes")
def test_the_status_is_that_of_the_last_batch(tmp_path: Path) -> None:
    """A batch right behind another one counts, too, and what an earlier process said does not."""
    from klamm_spark.driver import StatusFile

    def shown() -> dict[str, Any]:
        return json.loads((tmp_path / "cp" / STATUS).read_text())

    files(tmp_path, status=running())
    written = StatusFile(Job("orders", str(tmp_path / "cp"), Source(), ()))
    assert (shown()["state"], shown()["queries"]) == ("STARTING", {})
    written.take({"event": "started", "queries": ["parquet"], "spark": "4.3.0"})
    for batch in range(3):
        written.take({"event": "progress", "query": "parquet", "batch": batch, "rows": 7})
    wait_until(lambda: shown()["queries"]["parquet"]["rows"] == 21, "the last batch", timeout_s=60)
    written.take({"event": "waiting", "for": "the source: refused"})
    with locked(tmp_path / "cp", threading.Event()):
        done = klamm("spark", "status", files(tmp_path))
    assert re.match(r"orders RUNNING since \S+ \S+, waiting for the source: refused\n", done.stdout)
    written.take({"event": "progress", "query": "parquet", "batch": 3, "rows": 1})
    wait_until(lambda: shown()["waiting"] is None, "the source is back", timeout_s=60)


@pytest.mark.usefixtures("processes")
def test_there_is_nothing_to_tell_yet(tmp_path: Path) -> None:
    pipeline = files(tmp_path)
    for command, said in (("status", "was not started here yet"), ("schema", "has not read JSON values yet")):
        done = klamm("spark", command, pipeline)
        assert done.returncode == 1
        assert said in done.stderr
    for command, code, said in (
        ("status", 1, "ask the job itself ([metrics] port, or the connector's status)"),
        (
            "schema",
            1,
            "its schema is in klamm-schema.json there; to change it, write it into [source] schema",
        ),
        ("reset", 2, "remove it with the tool of its store, and give starting_offsets in [source]"),
    ):
        done = klamm("spark", command, pipeline, "--checkpoint", "s3a://bucket/x")
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr == f"klamm: the checkpoint s3a://bucket/x is not on this machine: {said}\n"


@pytest.mark.usefixtures("processes")
def test_a_schema_is_shown_and_what_came_since_is_taken_in(tmp_path: Path) -> None:
    entry = {"kind": "new", "field": "x", "was": None, "now": "BIGINT", "seen": "BIGINT", "count": 4}
    kept = {
        "version": 1, "inferred": True, "schema": "`id` BIGINT", "topics": {"orders": {"type": {"struct": {"id": "BIGINT"}}}},
        "drift": {"orders": {"found": [entry], "records": 4, "more": 0}},
    }  # fmt: skip
    pipeline = files(tmp_path, schema_file=kept)
    rows = json.loads(klamm("spark", "schema", pipeline, "-o", "json").stdout)
    assert [(r["field"], r["type"], r["drift"], r["count"]) for r in rows] == [("id", "BIGINT", None, None), ("x", "BIGINT", "new", 4)]  # fmt: skip
    rows = json.loads(klamm("spark", "schema", pipeline, "--adopt", "-o", "json").stdout)
    assert [(r["field"], r["drift"]) for r in rows] == [("id", None), ("x", None)]
    pipeline = files(tmp_path, "id BIGINT", schema_file=kept | {"inferred": False})
    done = klamm("spark", "schema", pipeline, "--adopt")
    assert done.returncode == 2
    assert "the schema stands in the job's file" in done.stderr


def test_metrics_are_served_while_a_job_runs() -> None:
    status = JobStatus("orders")
    with metrics(status, "127.0.0.1", 0) as port:
        status.take({"event": "started", "queries": [], "spark": "4"}, 1.0)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert 'klamm_spark_up{job="orders"} 1' in answer.read().decode()
        with (
            pytest.raises(
                ConfigError,
                match=rf"\[metrics\] port = {port}: cannot listen on 127.0.0.1: .*already in use",
            ),
            metrics(status, "127.0.0.1", port),
        ):
            pass
    with metrics(status, "127.0.0.1", None) as nothing:
        assert nothing is None


class _Driver:
    """A driver process that says this and ends."""

    pid = 1

    def __init__(self, *events: dict[str, Any], code: int = 0, asked: int | None = None) -> None:
        self._events: list[dict[str, Any] | None] = [*events, {"event": "ended", "code": code}]
        self._asked = asked

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        if self._asked is not None:
            signal.raise_signal(self._asked)
            self._asked = None
            return None
        return self._events.pop(0)

    def ask_to_stop(self) -> None:
        pass

    def stop(self) -> int:
        return 0


def test_a_lag_that_spark_does_not_say_is_no_zero(capsys: pytest.CaptureFixture[str]) -> None:
    """Spark has no latest offsets for a batch that runs again after a kill."""
    figures = {"rows": 5, "rows_per_s": 1.0, "duration_ms": 7, "state_rows": 0, "lost": 0}
    events = [
        {"event": "progress", "query": "parquet", "batch": n, "lag": lag} | figures
        for n, lag in ((1, {}), (2, {"orders": 0}))
    ]
    assert follow(_Driver(*events), JobStatus("orders"), Failing(lambda key: key)) == 0  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert "batch=1 rows=5 rows/s=1 lag=- ms=7" in said
    assert "batch=2 rows=5 rows/s=1 lag=0 ms=7" in said


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_the_job_starts_is_told_as_one(asked: int, capsys: pytest.CaptureFixture[str]) -> None:
    told = JobStatus("orders"), Failing(lambda key: key)
    assert follow(_Driver(code=-signal.SIGTERM, asked=asked), *told) == 0  # type: ignore[arg-type]
    assert capsys.readouterr().err == "stopped: the job had not begun\n"
    with pytest.raises(typer.Exit):
        follow(_Driver(code=1, asked=asked), *told)  # type: ignore[arg-type]
    assert "did not stop in time and was ended" in capsys.readouterr().err
    with pytest.raises(typer.Exit):
        follow(_Driver(code=-signal.SIGTERM), *told)  # type: ignore[arg-type]
    assert "ended unexpectedly (exit code -15)" in capsys.readouterr().err
