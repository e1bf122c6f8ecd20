"""All kinds of readers of one topic at once: each is known by its kind, and caught up.

Prometheus watches the Spark job: its panels have data, and its alert comes and goes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.broker import new_topic, wait_until
from support.connect_worker import STRING, WorkerProcess, worker_properties
from support.kafka_broker import free_port
from support.klamm import Server
from support.mirror import mirror_file
from support.prometheus import Prometheus, quick_rules
from support.share_client import Reader as ShareReader
from support.spark import QUICK, find_process, produce, require_spark

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.errors import ErrorCode as E

from .test_lag_server import Reader, get, lag_server

KLAMM = Path(sys.executable).with_name("klamm")
PIPELINE = Path(__file__).parents[2] / "compose/grafana/dashboards/pipeline.json"
KINDS = {
    "g": "consumer", "sharers": "share", "connect-files": "connect", "connect-lake": "connect", "spark-lake": "spark",
    "spark-counts": "spark", "local->B": "mirror",
}  # fmt: skip
NOT_HERE = "klamm_spark_sink_"
"""Figures of our own writers (elasticsearch, sql), which this job has not."""
RECORDS = 10


@pytest.mark.usefixtures("apache_spark", "prometheus_server")
@pytest.mark.timeout(600)
def test_every_kind_is_known_and_caught_up(tmp_path: Path) -> None:
    require_spark()
    one = {"num.partitions": "1"}
    with (
        EmbeddedBroker(tmp_path / "a", config=one) as a, EmbeddedBroker(tmp_path / "b", config=one) as b,
        ExitStack() as parts,
    ):  # fmt: skip
        new_topic(a, name="t")
        produce(a.bootstrap, "t", ({"n": n} for n in range(RECORDS)))
        metrics = free_port()
        job = parts.enter_context(_job(a.bootstrap, tmp_path, metrics))
        worker = _worker(a.bootstrap, tmp_path)
        parts.callback(worker.end)
        path = mirror_file(
            tmp_path / "mm2.properties", {"local": a.bootstrap, "B": b.bootstrap}, {"local->B.enabled": "true", "topics": "t"}
        )  # fmt: skip
        parts.enter_context(Server("mirror", "start", str(path)))
        share = parts.enter_context(ShareReader(a, "sharers", "t").join())
        wait_until(lambda: share.fetch(wait_ms=100)[0], "records to share")
        assert share.acknowledge((0, RECORDS - 1, [1])) == E.NONE
        reader = Reader(a.bootstrap, "g")
        reader.commit(RECORDS)
        reader.close()
        spark = f"http://127.0.0.1:{metrics}/metrics,http://127.0.0.1:{worker.port}/metrics"
        more = {
            "cluster.B.bootstrap.servers": b.bootstrap, "cluster.local.spark.metrics": spark, "evaluator.minimum-stop": "5",
        }  # fmt: skip
        server = parts.enter_context(lag_server(tmp_path, a.bootstrap, **more))

        def groups() -> dict[str, Any]:
            found = {
                name: get(server, f"/v3/kafka/local/consumer/{name.replace('>', '%3E')}/lag")
                for name in KINDS
            }
            return {name: each["status"] for name, each in found.items() if "status" in each}

        def all_are(lag: int, status: str) -> bool:
            found = groups()
            topics = {n: [p for p in g["partitions"] if p["topic"] == "t"] for n, g in found.items()}
            return {
                n: (p[0]["current_lag"], g["status"]) for n, g in found.items() if (p := topics[n])
            } == dict.fromkeys(KINDS, (lag, status))

        wait_until(lambda: all_are(0, "OK"), "all without lag", timeout_s=180)
        wait_until(lambda: {name: each["kind"] for name, each in groups().items()} == KINDS, "all kinds")
        _watch_spark(a.bootstrap, job, metrics, tmp_path)


def _worker(bootstrap: str, folder: Path) -> WorkerProcess:
    """Returns a worker with a sink to a file, and one to Parquet by Spark."""
    worker = WorkerProcess(worker_properties(bootstrap, "workers"), folder).wait_ready()
    files = {
        "connector__class": "FileStreamSink",
        "file": str(folder / "out.txt"),
        "topics": "t",
        "key__converter": STRING,
        "value__converter": STRING,
    }
    assert worker.create("files", **files).status == 201
    lake = {
        "connector.class": "SparkSink", "topics": "t", "value.format": "json", "value.schema": "n INT",
        "query.sql": "SELECT n FROM input", "output.format": "parquet", "output.options.path": str(folder / "lake"),
        "checkpoint.location": str(folder / "lake-cp"), "spark.master": "local[1]", **QUICK,
    }  # fmt: skip
    answer = worker.request("POST", "/connectors", {"name": "lake", "config": lake})
    assert answer.status == 201, answer.content
    return worker


@contextmanager
def _job(bootstrap: str, folder: Path, metrics: int) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a job that counts records by second, a record a batch."""
    settings = "".join(f'"{key}" = "{value}"\n' for key, value in QUICK.items())
    (folder / "p.toml").write_text(f"""
[job]
name = "job"
checkpoint = "{folder}/job-cp"
master = "local[1]"
[spark]
{settings}"spark.sql.shuffle.partitions" = "1"
[metrics]
port = {metrics}
[source]
bootstrap_servers = "{bootstrap}"
topics = ["t"]
starting_offsets = "earliest"
max_offsets_per_trigger = 5
value_format = "json"
schema = "n INT"
watermark = {{ column = "timestamp", delay = "1 second" }}
[query]
sql = "SELECT window(timestamp, '1 second') AS w, count(*) AS n FROM input GROUP BY 1"
[[outputs]]
name = "counts"
format = "parquet"
options = {{ path = "{folder}/counts" }}
""")
    with (folder / "job.log").open("wb") as log:
        process = subprocess.Popen(
            [str(KLAMM), "spark", "run", str(folder / "p.toml")], stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def _watch_spark(bootstrap: str, job: subprocess.Popen[bytes], metrics: int, folder: Path) -> None:
    """Stops the job's Java while it is behind: the alert begins; it ends when Java goes on."""
    rules = quick_rules({"SparkStalled"}, {"SparkStalled": "> 8"})
    prometheus, fired = Prometheus(folder, {"spark": f"127.0.0.1:{metrics}"}, rules), set[str]()
    try:
        wait_until(prometheus.answers, "figures")
        dashboard = json.loads(PIPELINE.read_text())
        exprs = [t["expr"] for p in dashboard["panels"] for t in p["targets"] if "klamm_spark_" in t["expr"]]
        left = [expr for expr in exprs if NOT_HERE not in expr]
        assert len(left) >= 6
        produce(bootstrap, "t", ({"n": n} for n in range(200)))
        deadline = time.monotonic() + 60
        java = find_process(job.pid, "org.apache.spark")
        assert java is not None
        while time.monotonic() < deadline and not prometheus.query("sum(klamm_spark_lag) > 20"):
            time.sleep(0.1)
        java.send_signal(signal.SIGSTOP)
        prometheus.wait_for({"SparkStalled"}, fired)
        java.send_signal(signal.SIGCONT)
        prometheus.wait_for((), fired, timeout_s=120)
        while left and time.monotonic() < deadline + 60:
            left = [expr for expr in left if not prometheus.query(expr)]
        assert not left
    finally:
        prometheus.close()
