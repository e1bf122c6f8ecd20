"""`GET /metrics` of a mirror: all flows of a file in one text, between two real clusters; and in a Connect worker."""

from __future__ import annotations

import os
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from support.broker import new_name, new_topic, wait_until
from support.connect_worker import WorkerProcess, worker_properties
from support.klamm import Server, klamm
from support.mirror import mirror_file, produce, read_as
from support.mirroring import props

from klamm.mirror.metrics import FlowsMetrics, merged
from klamm_base.errors import ConfigError, KlammError
from klamm_base.metrics_server import MetricsServer
from klamm_base.metrics_text import Family, lines
from klamm_base.metrics_text import Sample as Ours
from klamm_mirror.settings.mm2_config import MetricsPlace, parse

SOURCE = "kafka_connect_mirror_mirrorsourceconnector_"
CHECKPOINT = "kafka_connect_mirror_mirrorcheckpointconnector_"
AB = {
    "clusters": "A,B",
    "A.bootstrap.servers": "a:9092",
    "B.bootstrap.servers": "b:9092",
    "A->B.enabled": "true",
}


def parsed(text: str) -> dict[str, list[Sample]]:
    """Samples by name. Prometheus wants each family once, and its samples together."""
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(set(names)) == len(names)
    found: dict[str, list[Sample]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    for name, samples in found.items():
        series = [frozenset(s.labels.items()) for s in samples]
        assert len(set(series)) == len(series), name
    return found


def scrape(url: str) -> dict[str, list[Sample]]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return parsed(answer.read().decode())


def values(samples: list[Sample], **labels: str) -> list[float]:
    return [s.value for s in samples if labels.items() <= s.labels.items()]


@pytest.mark.usefixtures("processes")
def test_all_flows_are_told_at_one_place(source, target, tmp_path):
    a, b, group = new_name("a"), new_name("b"), new_name("group")
    topic = new_topic(source, partitions=2)
    produce(source.bootstrap, topic, [f"v{i}" for i in range(300)])
    read_as(source.bootstrap, group, topic, lambda v: len(v) >= 300)
    flows = {
        f"{a}->{b}.enabled": "true", "topics": topic, "groups": group, "klamm.metrics.port": "0",
        "klamm.metrics.host": "127.0.0.1",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    with Server("mirror", "start", str(path)) as server:
        assert server.ready["mirror"] == f"{a}->{b}"
        url = server.ready["metrics"]
        both = {f"{a}->{b}", f"{b}->{a}"}  # the second one sends heartbeats
        found: dict[str, list[Sample]] = {}

        def told() -> bool:
            found.clear()
            found.update(scrape(url))
            counts = values(found.get(SOURCE + "record_count", []), source=a, target=b, topic=f"{a}.{topic}")
            # each partition has its checkpoint as soon as its offsets can be translated, not both at once
            checkpoints = values(found.get(CHECKPOINT + "checkpoint_latency_ms_max", []), partition="0")
            # a flow that does not answer in time is left out, and a state is told a moment after it was reached
            flows = {s.labels.get("flow") for s in found["process_cpu_seconds_total"]}
            running = values(
                found.get("kafka_connect_connector_task_status", []), flow=f"{a}->{b}",
                connector="MirrorSourceConnector", status="running",
            )  # fmt: skip
            whole = flows == both | {None} and running == [1]
            return whole and sum(counts) == 300 and len(checkpoints) == 1

        wait_until(told, "the figures of records and checkpoints", timeout_s=60)
        partitions = {s.labels["partition"] for s in found[SOURCE + "record_count"]}
        assert partitions == {"0", "1"}
        for name in ("record_rate", "byte_count", "byte_rate"):
            assert sum(values(found[SOURCE + name], source=a)) > 0
        for name in ("record_age_ms", "replication_latency_ms"):
            for end in ("", "_min", "_max", "_avg"):
                assert values(found[SOURCE + name + end], source=a, target=b)
        (latency,) = [
            s for s in found[CHECKPOINT + "checkpoint_latency_ms_avg"] if s.labels["partition"] == "0"
        ]
        told_of = {"source": a, "target": b, "group": group, "topic": f"{a}.{topic}"}
        assert told_of.items() <= latency.labels.items()
        assert {s.labels["flow"] for s in found["klamm_mirror_flow_up"]} == both
        for age in ("checkpoint_age_seconds", "group_offset_age_seconds", "heartbeat_age_seconds"):
            (seconds,) = values(found[f"klamm_mirror_{age}"], source=a, target=b)
            assert 0 <= seconds < 60, age
        assert server.stop() == 0


@pytest.mark.usefixtures("processes")
def test_a_flow_that_dies_is_down_and_then_tells_again(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    flows = {
        f"{a}->{b}.enabled": "true", "topics": new_topic(source), "emit.heartbeats.enabled": "false",
        "klamm.metrics.port": "0",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    with Server("mirror", "start", str(path)) as server:
        url = server.ready["metrics"]

        def up() -> float:
            return scrape(url)["klamm_mirror_flow_up"][0].value

        def started() -> float:
            return max(
                values(scrape(url).get("process_start_time_seconds", []), flow=f"{a}->{b}"), default=0.0
            )

        before = wait_until(started, "the flow's first process")
        child = _flow_process(server.process.pid)
        os.kill(child, signal.SIGSTOP)  # it hangs: the others are told all the same
        wait_until(lambda: up() == 0, "the flow that hangs", timeout_s=60)
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: up() == 1, "the flow's next process", timeout_s=60)
        wait_until(lambda: started() > before, "what it tells")


def _flow_process(pid: int) -> int:
    import psutil

    (child,) = psutil.Process(pid).children()
    return int(child.pid)


@pytest.mark.usefixtures("processes")
def test_a_worker_that_runs_the_connectors_tells_the_same(source, target, tmp_path):
    topic = new_topic(source)
    produce(source.bootstrap, topic, [f"v{i}" for i in range(50)])
    worker = WorkerProcess(worker_properties(target.bootstrap, new_name("worker")), tmp_path)
    try:
        worker.wait_ready()
        name = new_name("mirror")
        config = {**props(source.bootstrap, target.bootstrap, topics=topic), "name": name, "tasks.max": "1"}
        assert worker.request("PUT", f"/connectors/{name}/config", config).status == 201

        def counts() -> list[Sample]:
            return parsed(worker.request("GET", "/metrics").body.decode()).get(SOURCE + "record_count", [])

        wait_until(lambda: values(counts(), topic=f"A.{topic}") == [50], "the count", timeout_s=60)
        (count,) = [s for s in counts() if s.labels["topic"] == f"A.{topic}"]  # there may be heartbeats, too
        assert count.labels == {
            "connector": name, "task": "0", "source": "A", "target": "B", "topic": f"A.{topic}", "partition": "0",
        }  # fmt: skip

        found = parsed(worker.request("GET", "/metrics").body.decode())
        (lag,) = [s for s in found["klamm_mirror_partition_lag_seconds"] if s.labels["topic"] == f"A.{topic}"]
        assert lag.labels == count.labels
        for figure in ("partition_lag", "partition_lag_seconds", "gap_records_total"):
            assert values(found[f"klamm_mirror_{figure}"], topic=f"A.{topic}") == [0]
        assert values(found["klamm_mirror_partitions_stopped"], source="A", target="B") == [0]
        assert not any(s_name.startswith("klamm_mirror_status_") for s_name in found)

        def details() -> dict[str, Any]:
            (task,) = worker.get(f"/connectors/{name}/status")["tasks"]
            return (task.get("progress") or {}).get("details", {})

        wait_until(details, "its progress in the status")
        assert "metrics" not in details()
    finally:
        worker.stop()


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("klamm.metrics.port=many", "klamm.metrics.port: Not a number of type INT"),
        ("klamm.metrics.port=70000", "klamm.metrics.port: Value must be no more than 65535"),
        ("klamm.metrics.host=", "klamm.metrics.host: String must be non-empty"),
    ],
)
def test_a_property_that_cannot_be_used_is_named(tmp_path, setting, said):
    path = tmp_path / "mm2.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in AB.items()) + setting + "\n")
    result = klamm("mirror", "start", str(path))
    assert result.returncode == 2
    assert "mm2.properties:5: " in result.stderr
    assert said in result.stderr


@pytest.mark.usefixtures("processes")
def test_a_place_that_cannot_be_had_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for settings, said in (
            ({"klamm.metrics.port": str(port)}, f"klamm.metrics.port={port}: cannot listen on localhost"),
            (
                {"klamm.metrics.port": "0", "klamm.metrics.host": "192.0.2.1"},
                "klamm.metrics.host=192.0.2.1: cannot listen there",
            ),
        ):
            path = tmp_path / "mm2.properties"
            path.write_text("".join(f"{k}={v}\n" for k, v in (AB | settings).items()))
            result = klamm("mirror", "start", str(path))
            assert result.returncode == 1
            assert said in result.stderr


def test_the_place_is_no_connectors_setting_and_a_clusters_has_no_effect():
    config = parse(AB | {"klamm.metrics.port": "9407", "A.klamm.metrics.port": "1"}, {"topics"})
    assert config.metrics == MetricsPlace("localhost", 9407)
    assert config.towards(["B"]).metrics.port == 9407
    assert not any("klamm.metrics.port" in c for f in config.flows for c in f.connectors.values())
    (warning,) = config.warnings
    assert warning.startswith("A.klamm.metrics.port has no effect: klamm.metrics.port without a cluster")
    assert parse(AB, ()).metrics.port == -1
    with pytest.raises(ConfigError, match="at least -1"):
        parse(AB | {"klamm.metrics.port": "-2"}, ())


def test_texts_are_merged_by_name_with_the_flow_as_a_label():
    texts = {
        flow: "".join(lines([
            Family("up", "gauge", "Help\nof two lines.", [Ours({}, number)]),
            Family("c_total", "counter", "C.", [Ours({"topic": 'a{b"\u2028\n\\'}, number)]),
        ]))
        for number, flow in enumerate(("A->B", 'B->"C'))
    }  # fmt: skip
    own = lines(
        [Family("up", "gauge", "Help.", [Ours({}, 7)]), Family("own", "gauge", "Own.", [Ours({}, 1)])]
    )
    found = parsed("".join(merged(own, texts)))
    assert [(s.labels, s.value) for s in found["up"]] == [
        ({}, 7),
        ({"flow": "A->B"}, 0),
        ({"flow": 'B->"C'}, 1),
    ]
    assert found["own"][0].value == 1
    assert [s.labels for s in found["c_total"]] == [
        {"flow": "A->B", "topic": 'a{b"\u2028\n\\'}, {"flow": 'B->"C', "topic": 'a{b"\u2028\n\\'},
    ]  # fmt: skip


async def test_a_socket_that_was_left_behind_is_served_again(tmp_path):
    def families():
        yield Family("x", "gauge", "X.", [Ours({}, 1)])

    paths = {flow: tmp_path / str(i) for i, flow in enumerate(("A->B", "B->A"))}
    with socket.socket(socket.AF_UNIX) as killed:  # a flow that was killed leaves its socket behind
        killed.bind(str(paths["A->B"]))
    server = MetricsServer(families)
    await server.bind_unix(paths["A->B"])
    await server.serve()
    found = parsed("".join(await FlowsMetrics(lambda: paths, families).text()))
    assert values(found["klamm_mirror_flow_up"], flow="A->B") == [1]
    assert values(found["klamm_mirror_flow_up"], flow="B->A") == [0]
    assert [s.labels for s in found["x"]] == [{}, {"flow": "A->B"}]
    server.close()
    with pytest.raises(KlammError, match="cannot listen on"):
        await MetricsServer(families).bind_unix(Path(tmp_path, "no", "such"))
