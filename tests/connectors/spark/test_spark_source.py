"""SparkSource: its configuration, and a real job through a real worker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.broker import broker, new_name, new_topic, wait_until  # noqa: F401  the fixture
from support.connect_worker import WorkerProcess, worker_properties
from support.spark import QUICK, find_process, read_to_end, require_spark

from klamm.testing import EmbeddedBroker
from klamm_base.errors import ConfigError
from klamm_connectors.spark.source import config
from klamm_connectors.spark.source.connector import SparkSourceConnector
from klamm_connectors.spark.source.task import SparkSourceTask
from klamm_plugins.errors import ConnectError
from klamm_plugins.testing import ConnectorConformance, MemoryDriverContext

CLIENT = {
    "bootstrap.servers": "h:1",
    "security.protocol": "SASL_SSL",
    "client.id": "x",
    "key.serializer": "y",
}
PROPS = {
    "name": "x",
    "topic": "rows",
    "source.format": "jdbc",
    "source.read": "batch",
    "source.options.url": "jdbc:derby:x",
    "source.options.dbtable": "t",
    "poll.column": "id",
    "poll.interval.ms": "500",
    "key.columns": "id",
    "spark.jars": "/j.jar",
    "value.converter": "ignored",
}


def test_keys_whose_ends_users_choose_get_no_warning() -> None:
    from klamm.connect.child.calls import _taken

    free = {"spark.jars": "j", "query.view.v": "SELECT 1", "source.options.url": "u"}
    assert _taken(SparkSourceConnector, {**free, "sparks.jars": "j"}) == list(free)


class TestConformance(ConnectorConformance):
    connector = SparkSourceConnector

    def props(self, tmp_path: Path) -> dict[str, str]:
        return PROPS


def test_a_configuration_is_a_job() -> None:
    job = config.parse(PROPS, CLIENT, "/cp", "{}")
    assert (job.name, job.checkpoint, job.position, job.spark) == ("x", "/cp", "{}", {"spark.jars": "/j.jar"})
    assert (job.source.format, job.source.read) == ("jdbc", "batch")
    assert job.source.options == {"url": "jdbc:derby:x", "dbtable": "t"}
    assert (job.source.poll.interval, job.source.poll.column) == ("500 ms", "id")
    (output,) = job.outputs
    assert output.options == {
        "topic": "rows", "kafka.bootstrap.servers": "h:1", "kafka.security.protocol": "SASL_SSL",
    }  # fmt: skip
    assert (output.value, output.key) == ("json", ("id",))
    stream = {k: v for k, v in PROPS.items() if not k.startswith("poll.")} | {
        "source.read": "stream",
        "delivery.guarantee": "exactly-once",
    }
    job = config.parse(stream, CLIENT, "/cp", None)
    assert job.outputs[0].options["deliveryGuarantee"] == "exactly-once"
    assert job.outputs[0].trigger == "1000 milliseconds"


@pytest.mark.parametrize(
    ("change", "key", "said"),
    [
        ({"poll.colum": "x"}, "poll.colum", "SparkSource has no configuration poll.colum"),
        ({"source.formatt": "x"}, "source.formatt", "SparkSource has no configuration source.formatt"),
        ({"topic": None}, "topic", "Missing required configuration"),
        ({"source.read": "stream"}, "poll.column", "is for source.read=batch"),
        ({"value.format": "columns"}, "key.columns", "is for value.format=json"),
        ({"delivery.guarantee": "exactly-once"}, "delivery.guarantee", "batch reads are at least once"),
        ({"query.options": "[1]"}, "query.options", "must be a JSON object"),
        ({"poll.column": None, "poll.start": "3"}, "poll.column", "need a column"),
    ],
)
def test_what_is_wrong_is_said_at_its_key(change: dict[str, Any], key: str, said: str) -> None:
    props = {k: v for k, v in (PROPS | change).items() if v is not None}
    found = {v.name: v.errors for v in SparkSourceConnector.validate(props) if v.errors}
    assert said in " ".join(e for errors in found.values() for e in errors), found
    assert key in found
    with pytest.raises(ConfigError):
        SparkSourceConnector().start(props)


def test_offsets_of_batch_reads_can_be_changed() -> None:
    alter = SparkSourceConnector.alter_offsets
    assert alter(PROPS, [({"spark": "x"}, {"value": "3"}), ({"spark": "x"}, None)])
    with pytest.raises(ConnectError, match="its checkpoint"):
        alter(PROPS | {"source.read": "stream"}, [({"spark": "x"}, None)])
    with pytest.raises(ConnectError, match=r"not \{'value': 3\}"):
        alter(PROPS, [({"spark": "x"}, {"value": 3})])
    with pytest.raises(ConnectError, match="partitions such as"):
        alter(PROPS, [({"file": "x"}, None)])


def test_a_place_is_committed_whether_rows_were_taken_or_not() -> None:
    def task(read: str) -> SparkSourceTask:
        found = SparkSourceTask()
        found.initialize(MemoryDriverContext(PROPS | {"source.read": read}))
        found._partition = {"spark": "x"}
        return found

    position = {"column": "id", "value": "7", "batch": 1}
    batch = task("batch")
    for event in ({"rows": 0, "batch": 0}, {"rows": 0, "batch": 1, "position": position}):
        batch.moved(event)
        batch.commit()
    assert batch.context.commits == [[({"spark": "x"}, position)]]
    stream = task("stream")
    for event in ({"rows": 0, "batch": 0, "position": "x"}, {"rows": 3, "batch": 1, "position": "x"}):
        stream.moved(event)
        stream.commit()
    assert stream.context.commits == [[({"spark": "x"}, {"batch": 1})]]


@pytest.mark.usefixtures("apache_spark")
@pytest.mark.timeout(900)
def test_a_stream_of_files_is_written_exactly_once_over_kills(broker: EmbeddedBroker, tmp_path: Path) -> None:  # noqa: F811
    """The job's process is killed twice while files come: readers of what is committed see every row once."""
    require_spark()
    topic, name, source = new_topic(broker), new_name("spark"), tmp_path / "in"
    rows(source, "1.json", range(100))
    worker = WorkerProcess(worker_properties(broker.bootstrap, new_name("group")), tmp_path).wait_ready()
    body = {
        "connector.class": "SparkSource",
        "topic": topic,
        "source.format": "json",
        "source.schema": "id BIGINT, name STRING",
        "source.options.path": str(source),
        "source.options.maxFilesPerTrigger": "1",
        "delivery.guarantee": "exactly-once",
        "key.columns": "id",
        "trigger.interval.ms": "100",
        "spark.master": "local[2]",
        "checkpoint.location": str(tmp_path / "cp"),
        "task.restart.backoff.ms": "200",
        **QUICK,
    }

    def counted() -> Counter[str]:
        return Counter(key for key, _ in records(broker.bootstrap, topic))

    def settled(upto: int) -> None:
        wait_until(lambda: len(counted()) >= upto, f"{upto} rows", timeout_s=240)
        assert counted() == Counter(str(n) for n in range(upto))

    def driver() -> psutil.Process | None:
        return find_process(worker.process.pid, "klamm_spark.driver")

    try:
        answer = worker.request("PUT", f"/connectors/{name}/config", body)
        assert answer.status == 201, answer.body
        settled(100)
        for n in range(2, 4):
            # All may have come before the last one was killed: then the next one is still to be started
            found = wait_until(driver, "the job's process")
            for part in range(10):
                low = (n - 1) * 100 + part * 10
                rows(source, f"{n}-{part}.json", range(low, low + 10))
            wait_until(lambda n=n: len(counted()) > (n - 1) * 100, "a part of them", timeout_s=240)
            found.kill()
            settled(n * 100)
        wait_until(lambda: worker.get(f"/connectors/{name}/offsets")["offsets"], "an offset", timeout_s=60)
        assert isinstance(worker.get(f"/connectors/{name}/offsets")["offsets"][0]["offset"]["batch"], int)
    finally:
        print(worker.log)
        worker.stop(timeout_s=60)


def records(bootstrap: str, topic: str) -> list[tuple[str, dict[str, Any]]]:
    return [((m.key() or b"").decode(), json.loads(m.value() or b"")) for m in read_to_end(bootstrap, topic)]


def rows(directory: Path, name: str, numbers: range) -> None:
    """Writes a file of JSON lines, there at once."""
    directory.mkdir(exist_ok=True)
    part = directory / f".{name}"
    part.write_text("".join(json.dumps({"id": n, "name": f"row {n}"}) + "\n" for n in numbers))
    part.rename(directory / name)


@pytest.mark.usefixtures("apache_spark")
@pytest.mark.timeout(900)
def test_a_worker_reads_again_and_again_what_is_new(broker: EmbeddedBroker, tmp_path: Path) -> None:  # noqa: F811
    """Rows once, offsets in Connect's topic, metrics; a place that REST changes; a stop in between."""
    require_spark()
    topic, name, source = new_topic(broker), new_name("spark"), tmp_path / "in"
    rows(source, "1.json", range(100))
    worker = WorkerProcess(worker_properties(broker.bootstrap, new_name("group")), tmp_path).wait_ready()
    body = {
        "connector.class": "SparkSource",
        "topic": topic,
        "source.format": "json",
        "source.schema": "id BIGINT, name STRING",
        "source.options.path": str(source),
        "source.read": "batch",
        "poll.column": "id",
        "poll.interval.ms": "1000",
        "key.columns": "id",
        "query.sql": "SELECT id, upper(name) AS name FROM input WHERE id >= 0",
        "spark.master": "local[2]",
        "checkpoint.location": str(tmp_path / "cp"),
        "task.restart.backoff.ms": "200",
        **QUICK,
    }

    def task() -> Mapping[str, Any]:
        return worker.get(f"/connectors/{name}/status")["tasks"][0]

    def counted() -> Counter[str]:
        return Counter(key for key, _ in records(broker.bootstrap, topic))

    def settled(upto: int) -> None:
        wait_until(lambda: len(counted()) >= upto, f"{upto} rows", timeout_s=240)
        assert counted() == Counter(str(n) for n in range(upto))

    def offset() -> Any:
        found = worker.get(f"/connectors/{name}/offsets")["offsets"]
        return found and found[0]["offset"]["value"]

    try:
        answer = worker.request("PUT", f"/connectors/{name}/config", body)
        assert answer.status == 201, answer.body
        settled(100)
        assert records(broker.bootstrap, topic)[7] == ("7", {"id": 7, "name": "ROW 7"})
        rows(source, "2.json", range(100, 150))
        settled(150)
        wait_until(lambda: offset() == "149", "the offset", timeout_s=60)
        wait_until(lambda: (task().get("progress") or {}).get("records") == 150, "the progress")
        rows_read = f'klamm_spark_input_rows_total{{connector="{name}",task="0",query="output"}} 150'
        wait_until(lambda: rows_read in worker.request("GET", "/metrics").body.decode(), "the metrics")

        worker.request("PUT", f"/connectors/{name}/stop")
        wait_until(lambda: not worker.get(f"/connectors/{name}/status")["tasks"], "the stop", timeout_s=60)
        place = {"partition": {"spark": name}, "offset": {"column": "id", "value": "139"}}
        answer = worker.request("PATCH", f"/connectors/{name}/offsets", {"offsets": [place]})
        assert answer.status == 200, answer.body
        worker.request("PUT", f"/connectors/{name}/resume")
        wait_until(lambda: counted().total() == 160, "ten rows again", timeout_s=240)
        assert counted() == Counter(str(n) for n in range(150)) + Counter(str(n) for n in range(140, 150))
    finally:
        print(worker.log)
        worker.stop(timeout_s=60)
