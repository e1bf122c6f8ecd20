"""A job that is changed: what is said before it starts; and the files that it keeps beside its checkpoint."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.broker import new_topic, wait_until
from support.klamm import klamm
from support.spark import QUICK, a_job, produce, require_spark, wait_event

from klamm.testing import EmbeddedBroker
from klamm_spark.beside import PLAN, POSITION, SCHEMA, LocalFiles, last_number, local_place, read_json
from klamm_spark.compat import Change, Standing, judge
from klamm_spark.model import Job, Output, Query, Source
from klamm_spark.process import DriverProcess
from klamm_spark.status import JobStatus, families, timestamp_s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = Standing(planned=7, done=7)


def plan(**changes: Any) -> dict[str, Any]:
    """Returns a windowed count, as `plan.describe` says it."""
    return {
        "sources": [{"kind": "klamm", "options": {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}}],
        "stateful": [
            {
                "kind": "aggregation",
                "keys": [{"expression": "window(ts, 10 s)", "type": "struct<>"}, {"expression": "s", "type": "string"}],
                "values": [{"expression": "count(1)", "type": "bigint"}],
            }
        ],
        "watermarks": [{"column": "ts", "delay": "10 minutes"}],
        "output": {"format": "parquet", "mode": "append", "partition_by": [], "target": "/out"},
        "columns": [["s", "string"], ["n", "bigint"]],
        "state": {"provider": "a.b.HDFSBackedStateStoreProvider", "partitions": "4"},
    } | changes  # fmt: skip


def source(**options: str) -> list[dict[str, Any]]:
    return [{"kind": "klamm", "options": {"kafka.bootstrap.servers": "h:1", "subscribe": "a"} | options}]


def output(**changes: Any) -> dict[str, Any]:
    return plan()["output"] | changes


def state(**changes: Any) -> list[dict[str, Any]]:
    return [plan()["stateful"][0] | changes]


@pytest.mark.parametrize(
    ("change", "level", "said"),
    [
        ({"sources": source() * 2}, "breaks", "the query read 1 source and now reads 2"),
        ({"sources": [{"kind": "kafka", "options": {}}]}, "breaks", "the source was klamm and is kafka"),
        ({"sources": source(subscribe="b,a")}, "careful", "a new topic b, which is read from its first record"),
        ({"sources": source(subscribe="b")}, "careful", "no longer reads a: what is there and not yet read stays unread"),
        ({"sources": source(**{"kafka.bootstrap.servers": "i:1"})}, "careful", "the checkpoint's offsets mean other records"),
        ({"stateful": []}, "breaks", "the state is kept by aggregation, the query now has nothing"),
        ({"stateful": state(keys=[{"expression": "s", "type": "string"}])}, "breaks", "became s (string)"),
        ({"stateful": state(values=[{"expression": "sum(n)", "type": "bigint"}])}, "breaks", "count(1) became sum(n)"),
        ({"watermarks": []}, "careful", "the watermark on ts (10 minutes) is gone"),
        ({"watermarks": [{"column": "ts", "delay": "1 hours"}]}, "safe", "the watermark on ts is 1 hours, it was 10 minutes"),
        ({"output": output(mode="update")}, "careful", "the mode is update, it was append"),
        ({"output": output(mode="complete")}, "breaks", "complete keeps all groups"),
        ({"output": output(format="klamm", target="t")}, "careful", "results go to klamm from now on, they went to parquet"),
        ({"output": output(target="/new")}, "careful", "results go to /new from now on, they went to /out"),
        ({"output": output(partition_by=["s"])}, "breaks", "a directory has one way"),
        ({"columns": [["s", "string"], ["n", "bigint"], ["m", "int"]]}, "safe", "a new column m (int)"),
        ({"columns": [["s", "string"]]}, "careful", "no longer have the column n"),
        ({"columns": [["s", "string"], ["n", "string"]]}, "careful", "the column n was bigint and is string"),
        ({"state": {"provider": "x.RocksDB", "partitions": "4"}}, "breaks", "the state store was HDFSBackedStateStoreProvider and is RocksDB"),
        ({"state": plan()["state"] | {"partitions": "8"}}, "careful", "spark.sql.shuffle.partitions = 8 has no effect: the state has 4 parts"),
    ],
)  # fmt: skip
def test_what_a_change_means(change: dict[str, Any], level: str, said: str) -> None:
    found = judge(plan(), plan(**change), AT)
    assert [c.level for c in found if said in c.what] == [level], found
    assert judge(plan(), plan(**change), Standing()) == [], "a checkpoint without batches takes any query"


def test_what_has_not_changed_is_not_told() -> None:
    assert judge(plan(), plan(), AT) == []
    (only,) = judge(None, plan(), AT)
    assert only.level == "careful"
    assert "not recorded" in only.what


@pytest.mark.parametrize(
    ("planned", "files", "refused"), [(None, 3, True), (2, 3, True), (3, 3, False), (None, None, False)]
)
def test_files_that_another_checkpoint_wrote(planned: int | None, files: int | None, refused: bool) -> None:
    found = judge(plan(), plan(), Standing(planned=planned, done=planned, files=files))
    assert (
        any(c.level == "breaks" and "would pass over every batch up to 3" in c.what for c in found) is refused
    )


def test_the_worst_is_told_first() -> None:
    change = {"columns": [], "stateful": [], "watermarks": [{"column": "ts", "delay": "1 hours"}]}
    assert [c.level for c in judge(plan(), plan(**change), AT)] == ["breaks", "careful", "careful", "safe"]
    assert Change("safe", "x").to_json() == {"level": "safe", "what": "x"}


def test_files_beside_a_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = LocalFiles(tmp_path / "cp")
    assert (files.read("x"), files.names("offsets")) == (None, [])
    files.write("offsets/9", b"1")
    files.write("offsets/9", b"2")
    files.write("offsets/10.compact", b"3")
    assert files.read("offsets/9") == b"2"
    assert last_number(files.names("offsets")) == 10
    assert last_number([".9.crc", "metadata"]) is None
    assert read_json(files, POSITION) == {}
    assert not caplog.records
    for damaged in (b"", b'{"value": ', b"[1]"):
        files.write(POSITION, damaged)
        assert read_json(files, POSITION) == {}
        assert (
            caplog.messages.pop()
            == f"{POSITION} beside the checkpoint is damaged; the job continues as if it were missing"
        )
    assert local_place("s3a://b/x") is None
    assert local_place("file:///a/b") == local_place("file:/a/b") == local_place("/a/b") == Path("/a/b")


def test_metrics_of_a_job() -> None:
    status = JobStatus("orders")
    status.take({"event": "started", "queries": ["files"], "spark": "4"}, 1.0)
    event = {
        "event": "progress", "query": "files", "batch": 0, "at": "1970-01-01T00:00:09.500Z", "rows": 5, "late": 2, "lag": {"t": 3}, "offsets": {"t": {"0": 7}},
        "rows_per_s": 2.5, "duration_ms": 250, "state_rows": 1, "watermark": "1970-01-01T00:00:00.000Z",
        "sink": {"documents": 4, "throttled": 1, "throttled_s": 0.5},
    }  # fmt: skip
    for batch in (0, 0, 1):
        status.take(event | {"batch": batch, "rows": 5 if batch else 0}, 2.0)
    status.take({"event": "drift", "topics": {}, "records": {"t": 6}, "corrupt": 2}, 3.0)
    found = {(f.name, *s.labels.values()): s.value for f in families(status) for s in f.samples}
    assert found["klamm_spark_up", "orders"] == 1
    assert found["klamm_spark_input_rows_total", "files"] == 5
    assert found["klamm_spark_batches_total", "files"] == 2
    assert found["klamm_spark_lag", "files", "t"] == 3
    assert found["klamm_spark_position", "files", "t", "0"] == 7
    assert found["klamm_spark_batch_duration_seconds", "files"] == 0.25
    assert found["klamm_spark_last_progress_timestamp_seconds", "files"] == 9.5
    assert found["klamm_spark_sink_documents_total", "files"] == 12
    assert found["klamm_spark_late_rows_total", "files"] == 6
    assert found["klamm_spark_schema_drift_total", "t"] == 6
    assert not any("watermark" in name for name, *_ in found), "there is none before the first row"
    assert timestamp_s("soon") is None


@pytest.fixture
def launch(processes: None) -> Iterator[Callable[..., DriverProcess]]:
    """Starts drivers; none of them outlives the test."""
    launched: list[DriverProcess] = []

    def start(job: Job, order: str = "run") -> DriverProcess:
        launched.append(DriverProcess(job, order=order))
        return launched[-1]

    yield start
    for driver in launched:
        driver.kill()


@pytest.mark.timeout(600)
def test_plans_are_told_in_words(spark: SparkSession) -> None:
    from klamm_spark import job as jobs
    from klamm_spark.plan import describe

    given = Source(
        "h:1", ("t",), value_format="json", schema="n BIGINT, s STRING, ts TIMESTAMP",
        watermark_column="ts", watermark_delay="10 minutes", options={"kafka.sasl.jaas.config": "hunter2"},
    )  # fmt: skip

    def told(sql: str, source: Source = given) -> dict[str, Any]:
        out = Output("o", "sql", options={"url": "mysql://u:hunter2@h/db?password=hunter2", "table": "t"})
        job = Job("x", "/cp", source, (out,), Query(sql))
        return describe(job, out, jobs.frames(job, spark)["o"], spark)

    def keys(sql: str) -> list[str]:
        return [k["expression"] for k in told(sql)["stateful"][0]["keys"]]

    first = told("SELECT window(ts, '10 seconds') w, s, count(*) c, sum(n) t FROM input GROUP BY 1, 2")
    assert "hunter2" not in json.dumps(first)
    assert first["output"]["target"] == "mysql://h/db t"
    assert first["sources"] == [
        {"kind": "klamm", "options": {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}}
    ]
    assert first["watermarks"] == [{"column": "ts", "delay": "10 minutes"}]
    (kept,) = first["stateful"]
    assert [k["expression"] for k in kept["keys"]] == ["window(ts, 10 s)", "s"]
    assert [v["expression"] for v in kept["values"]] == ["count(1)", "sum(n)"]

    renamed = "WITH q AS (SELECT ts, s AS x, n FROM input WHERE n > 3) SELECT window(ts, '10 seconds') w, x, count(*), sum(n) FROM q GROUP BY 1, 2"
    assert told(renamed)["stateful"] == first["stateful"], "names and filters are no part of the state"
    wider = dataclasses.replace(given, schema="n BIGINT, s STRING, ts TIMESTAMP, x INT")
    again = "SELECT window(ts, '10 seconds') w, s, count(*) c, sum(n) t FROM input GROUP BY 1, 2"
    assert told(again, wider)["stateful"] == first["stateful"], (
        "a new field is another input, not another state"
    )
    assert keys("SELECT window(ts, '10 seconds', '5 seconds') w, count(*) FROM input GROUP BY 1") == [
        "window(ts, 10 s, every 5 s)"
    ]
    assert keys("SELECT session_window(ts, '10 seconds') w, count(*) FROM input GROUP BY 1") == [
        "session_window(ts, 10 seconds)"
    ]
    assert keys("SELECT upper(s) u, count(*) FROM input GROUP BY 1") == ["upper(s)"]
    assert keys("SELECT DISTINCT s FROM input") == ["s"]
    joined = told("SELECT a.n FROM input a JOIN input b ON a.n = b.n")
    assert [s["kind"] for s in joined["stateful"]] == ["inner join of streams"]
    assert len(joined["sources"]) == 2
    assert told("SELECT n FROM input")["stateful"] == []


@pytest.mark.usefixtures("apache_spark")
@pytest.mark.timeout(900)
def test_a_schema_is_inferred_drift_is_told_and_a_changed_query_is_refused(
    broker: EmbeddedBroker, tmp_path: Path, launch: Callable[..., DriverProcess]
) -> None:
    require_spark()
    topic = new_topic(broker)
    counts = Output("counts", "sql", mode="update", options={"url": f"sqlite:///{tmp_path}/c.db", "table": "c", "keys": "n", "create": "true"})  # fmt: skip
    job = a_job(
        broker.bootstrap, topic, tmp_path,
        source={"schema": "infer", "starting_offsets": "latest"},
        query=Query(sql="SELECT n, count(*) AS count FROM input WHERE n > 0 GROUP BY n"), outputs=(counts,),
    )  # fmt: skip
    driver = launch(job)
    assert wait_event(driver, "waiting")["for"] == "records"
    produce(broker.bootstrap, topic, [{"n": 1, "s": "x"}, {"n": 2}])
    wait_event(driver, "started")
    rows = 0
    while rows < 2:  # what came while the schema was waited for is not passed over
        rows += wait_event(driver, "progress")["rows"]
    assert rows == 2
    produce(broker.bootstrap, topic, [{"n": 1, "new": True}, {"n": "three"}, b"no JSON"])
    drift = wait_event(driver, "drift")
    said = {(e["kind"], e["field"]) for e in drift["topics"][topic]["found"]}
    assert said == {("new", "new"), ("changed", "n"), ("unreadable", "(the document)")}
    assert drift["corrupt"] == 2
    os.kill(driver.pid, signal.SIGKILL)

    checkpoint = Path(job.checkpoint)
    kept = json.loads((checkpoint / SCHEMA).read_text())
    assert kept["schema"] == "`n` BIGINT, `s` STRING"
    plans = json.loads((checkpoint / PLAN).read_text())["outputs"]
    assert plans["counts"]["stateful"][0]["keys"] == [{"expression": "n", "type": "bigint"}]
    pipeline = tmp_path / "job.toml"
    pipeline.write_text(toml(job, "SELECT s, count(*) AS count FROM input WHERE n > 0 GROUP BY s"))
    wait_until(
        lambda: "KILLED" in klamm("spark", "status", str(pipeline)).stdout, "the end of Java", timeout_s=60
    )
    shown = klamm("spark", "status", str(pipeline)).stdout
    assert f"{topic}: a field that the schema has not: new (BOOLEAN)" in shown

    done = klamm("spark", "check", str(pipeline), "-o", "json", timeout_s=300)
    assert done.returncode == 1, done.stderr
    rows = json.loads(done.stdout)
    assert ("breaks", "aggregation: the key n (bigint) became s (string)") in {
        (r["level"], r["change"]) for r in rows
    }
    offsets = sorted(p.name for p in (checkpoint / "counts" / "offsets").iterdir())
    done = klamm("spark", "run", str(pipeline), "--available-now", timeout_s=300)
    assert done.returncode == 2
    assert (
        "was written by another version of this query: counts: aggregation: the key n (bigint) became s (string)"
        in done.stderr
    )
    assert sorted(p.name for p in (checkpoint / "counts" / "offsets").iterdir()) == offsets, (
        "nothing was touched"
    )
    assert klamm("spark", "schema", str(pipeline), "--adopt").returncode == 0
    assert json.loads((checkpoint / SCHEMA).read_text())["schema"] == "`n` STRING, `s` STRING, `new` BOOLEAN"

    pipeline.write_text(toml(job, "SELECT n, count(*) AS count FROM input WHERE n > 0 GROUP BY n"))
    done = klamm("spark", "check", str(pipeline), timeout_s=300)
    assert "the key n (bigint) became n (string)" in done.stdout, "an adopted type is a change like any other"


@pytest.mark.usefixtures("apache_spark")
@pytest.mark.timeout(400)
def test_what_spark_does_not_understand_is_one_sentence_without_traces(tmp_path: Path) -> None:
    require_spark()
    (tmp_path / "mine.py").write_text("def f(df, spark):\n    return df.select('nope')\n")
    pipeline = tmp_path / "job.toml"
    pipeline.write_text(
        f"""[job]
name = "x"
checkpoint = "{tmp_path}/cp"
[source]
format = "rate"
[query]
function = "mine:f"
[[outputs]]
format = "console"
"""
    )
    done = klamm("spark", "check", str(pipeline), timeout_s=300)
    assert (done.returncode, done.stdout) == (2, "")
    said = [line for line in done.stderr.splitlines() if line.startswith("klamm: ")]
    assert len(said) == 1, done.stderr
    assert f"{pipeline}:7: [query] function = 'mine:f': Spark says: [UNRESOLVED_COLUMN" in said[0]
    assert not [
        line for line in done.stderr.splitlines() if line.startswith((" ", "\t", "Traceback", "pyspark."))
    ]


def toml(job: Job, sql: str) -> str:
    (output,) = job.outputs
    options = "\n".join(f'{k} = "{v}"' for k, v in output.options.items())
    settings = "\n".join(f'"{k}" = "{v}"' for k, v in QUICK.items())
    return f"""
[job]
name = "{job.name}"
checkpoint = "{job.checkpoint}"
master = "local[2]"
[spark]
{settings}
[source]
topics = ["{job.source.topics[0]}"]
bootstrap_servers = "{job.source.bootstrap_servers}"
value_format = "json"
schema = "infer"
[query]
sql = "{sql}"
[[outputs]]
name = "{output.name}"
format = "{output.format}"
mode = "{output.mode}"
[outputs.options]
{options}
"""
