"""While a batch takes long: what its writer waits for, its lag, and a terminal without stack traces."""

from __future__ import annotations

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from support.broker import wait_until
from support.klamm import klamm
from support.spark import produce

from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError
from klamm_spark import events, figures
from klamm_spark.datasource.options import client_config, write_options
from klamm_spark.datasource.outlet import NotWrittenError, Outlet
from klamm_spark.elasticsearch_http import endpoint
from klamm_spark.elasticsearch_template import Template, TemplateError, install
from klamm_spark.lock import locked
from klamm_spark.model import Job, Output, Source
from klamm_spark.outputs import options
from klamm_spark.sql import SqlStreamWriter, sql_target
from klamm_spark.standing import EVERY_S, WARN_EVERY_S, Standing
from klamm_spark.status import JobStatus
from klamm_spark.trace_filter import TraceFilter


class Told:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def send(self, event: dict[str, Any]) -> None:
        self.events.append(event)


def job(directory: Path) -> Job:
    outputs = (Output("waits", "elasticsearch"), Output("moves", "parquet"))
    return Job("orders", str(directory), Source(bootstrap_servers="127.0.0.1:9", topics=("t",)), outputs)


def test_a_batch_that_takes_long_has_the_lag_of_now_and_says_what_it_waits_for(tmp_path: Path) -> None:
    told, began = Told(), time.monotonic()
    standing = Standing(job(tmp_path), told, lambda asked: dict.fromkeys(asked, 100))
    for name in ("waits", "moves"):
        standing.took({"query": name, "offsets": {"t": {"0": 40, "1": 90}}})
    standing.look(began + EVERY_S / 2)
    assert told.events == []
    standing._at["moves"] = began + 10 * EVERY_S
    figures.wait(figures.option("waits"), "http://es:9200: Connection refused")
    try:
        now = time.monotonic() + EVERY_S
        for seconds in (0.0, WARN_EVERY_S / 2, WARN_EVERY_S):
            standing.look(now + seconds)
    finally:
        figures.wait(figures.option("waits"), None)
    lags = [e for e in told.events if e["event"] == "lag"]
    assert lags == [{"event": "lag", "query": "waits", "lag": {"t": 70}}] * 3
    waits = [e for e in told.events if e["event"] == "waiting"]
    assert (
        waits
        == [
            {
                "event": "waiting",
                "for": "the output waits: http://es:9200: Connection refused",
                "output": "waits",
            }
        ]
        * 2
    ), "once, and again after half a minute"
    standing.look(now + 3 * WARN_EVERY_S)
    assert told.events[-1]["event"] == "lag", "nothing is waited for any more"


def test_before_the_first_batch_the_checkpoint_says_what_is_read_next(tmp_path: Path) -> None:
    output = tmp_path / "waits"
    for name, text in (
        ("metadata", '{"id": "a"}'),
        ("commits/4", "v1"),
        ("offsets/4", 'v1\n{}\n{"partitions": {"t": {"0": 7}}}'),
    ):
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text(text)
    told = Told()
    Standing(job(tmp_path), told, lambda asked: dict.fromkeys(asked, 10)).look(time.monotonic() + EVERY_S)
    assert told.events == [{"event": "lag", "query": "waits", "lag": {"t": 3}}]


def test_the_status_keeps_what_an_output_waits_for_until_it_moves() -> None:
    status = JobStatus("orders")
    progress = {"event": "progress", "query": "waits", "batch": 1, "rows": 1, "lag": {"t": 0}}
    status.take(progress, 1.0)
    status.take({"event": "waiting", "for": "the output waits: refused", "output": "waits"}, 2.0)
    status.take({"event": "lag", "query": "waits", "lag": {"t": 9}}, 3.0)
    status.take(progress | {"query": "moves"}, 4.0)
    assert (status.waiting, status.lag()) == ("the output waits: refused", 9)
    status.take(progress | {"batch": 2}, 5.0)
    assert (status.waiting, status.lag()) == (None, 0)


def test_a_template_waits_for_a_server_that_is_away_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str | None] = []
    # A clock that moves when something was said, whatever the machine does meanwhile
    clock = SimpleNamespace(monotonic=lambda: 50.0 * len(said), sleep=lambda seconds: None)
    monkeypatch.setattr("klamm_spark.elasticsearch_template.time", clock)
    where = endpoint({"hosts": "http://127.0.0.1:1", "retry.timeout.ms": "120000"})
    with pytest.raises(TemplateError, match="index templates cannot be checked"):
        install(Template("t", b"{}"), where, said.append)
    assert len(said) == 3
    assert all(why is not None and "refused" in why for why in said)


def test_what_a_process_that_is_gone_waited_for_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    place = figures.option("gone")
    assert figures.base(f"{place}-17") == figures.base(place) == place
    figures.wait(place, "a server")
    assert figures.waits("gone") == "a server"
    monkeypatch.setattr(figures, "OLD_S", 0.0)
    assert figures.waits("gone") is None
    figures.wait(place, None)
    figures.wait(place, None)


def told_by(output: str) -> str:
    """Returns what the writer of an output waits for, once it says so."""
    return str(wait_until(lambda: figures.waits(output), f"{output} waits"))


def test_a_database_that_is_locked_is_waited_for_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "LONG_S", 0.05)
    schema = StructType([StructField("id", LongType())])
    options = {
        "url": f"sqlite:///{tmp_path}/t.db",
        "table": "t",
        "keys": "id",
        figures.OPTION: figures.option("sql") + "-7",
    }
    target, _ = sql_target(options, ["id"])
    with sqlite3.connect(tmp_path / "t.db", isolation_level=None) as other:
        other.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        other.execute("BEGIN EXCLUSIVE")
        rows = iter([pa.RecordBatch.from_pydict({"id": [1, 2]})])
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(SqlStreamWriter(target, schema).write, rows)
            assert told_by("sql") == "table t: the database has not answered yet"
            other.execute("COMMIT")
            writing.result(60)
        assert other.execute("SELECT count(*) FROM t").fetchone() == (2,)
    other.close()
    assert figures.waits("sql") is None


def test_brokers_that_acknowledge_nothing_are_waited_for_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(figures, "LONG_S", 0.05)
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic": "t",
        figures.OPTION: figures.option("topic"),
    }
    asked = write_options(options)
    outlet = Outlet({**client_config(asked.client, "producer"), "log_level": 0})
    outlet.begin(asked.figures)
    outlet.send(pa.RecordBatch.from_pydict({"value": [b"1"]}), "t")
    with ThreadPoolExecutor(1) as pool:
        flushing = pool.submit(outlet.finish, 1)
        try:
            assert told_by("topic") == "127.0.0.1:1: records are not acknowledged yet"
        finally:
            outlet.give_up()
        with pytest.raises(NotWrittenError):
            flushing.result(60)
    assert figures.waits("topic") is None


def test_outputs_of_ours_are_told_where_to_say_it(tmp_path: Path) -> None:
    found = {
        o: figures.OPTION in options(job(tmp_path), Output("x", o))
        for o in ("klamm", "sql", "elasticsearch", "kafka", "parquet")
    }
    assert found == {"klamm": True, "sql": True, "elasticsearch": True, "kafka": False, "parquet": False}
    with figures.while_waiting(None, "nothing"):
        pass


LOG = """\
26/11/22 04:43:42 ERROR MicroBatchExecution: Query x [id = 3c] terminated with error
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/a/worker.py", line 9, in main
    process()
klamm_base.errors.ConfigError: keys: there is no column x
\tat org.apache.spark.sql.Foo.bar(Foo.scala:12) ~[spark-core.jar:4.2.0]
Caused by: java.lang.IllegalStateException: no
\t... 12 more

{"ts": "2026-11-22 04:43:13.720", "level": "ERROR", "msg": "x"}
2026-11-22T04:43:17.366Z INFO    spark klamm_spark.driver: going on
printed by a function
Traceback (most recent call last):
  File "x.py", line 1, in <module>
py4j.protocol.Py4JNetworkError: Answer from Java side is empty
%3|1795323711.273|FAIL|rdkafka#producer-1| refused
2026-11-22T04:43:18.366Z WARNING spark klamm_spark.bulk: http://es: refused; trying again for 270 s
"""


def test_a_terminal_sees_records_without_their_traces() -> None:
    traces = TraceFilter()
    shown = [s for line in LOG.splitlines(keepends=True) if (s := traces.shown(line)) is not None]
    assert shown == [line for line in LOG.splitlines() if line.startswith(("26/", "2026", "printed", "%3"))]
    assert len(traces.shown("x" * 5000) or "") < 500


def test_a_failure_names_its_key() -> None:
    error = ConfigError("[query] sql: Spark says: [X] no", key="query.sql")
    assert events.failed(error, "cp")["key"] == "query.sql"
    assert events.failed(ValueError("x"), "cp")["key"] is None
    text = "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 1, pos 7)\n\n== SQL ==\nSELECT x y z\n"
    assert events.said_by_spark(ValueError(text)) == "[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 1, pos 7)"  # fmt: skip


def test_a_reset_s_dry_run_says_that_the_job_runs(broker: EmbeddedBroker, tmp_path: Path) -> None:
    broker_topic = "standing-reset"
    produce(broker.bootstrap, broker_topic, [{"n": 1}])
    pipeline = tmp_path / "job.toml"
    pipeline.write_text(
        f'[job]\nname = "n"\ncheckpoint = "{tmp_path}/cp"\n[source]\ntopics = ["{broker_topic}"]\n'
        f'bootstrap_servers = "{broker.bootstrap}"\n[[outputs]]\nformat = "parquet"\n'
    )
    done = klamm("spark", "reset", str(pipeline))
    assert (done.returncode, "runs" in done.stderr) == (0, False), done.stderr
    with locked(tmp_path / "cp", threading.Event()):
        done = klamm("spark", "reset", str(pipeline))
    assert done.returncode == 1
    assert "dry run: the job runs now; --execute would be refused until it is stopped" in done.stderr
