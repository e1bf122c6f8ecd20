"""The files for Prometheus and Grafana: Prometheus itself reads them, and finds what the dashboards show."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from support.broker import new_topic, wait_until
from support.klamm import Server, up_words
from support.mirror import mirror_file, produce, read_as
from support.prometheus import Prometheus
from support.schema_registry import SchemaRegistry

from klamm.testing import EmbeddedBroker

COMPOSE = Path(__file__).parents[2] / "compose"
DASHBOARDS = sorted((COMPOSE / "grafana/dashboards").glob("*.json"))
KLAMM = str(Path(sys.executable).with_name("klamm"))
WHEN_THERE_ARE_ERRORS = ("kafka_network_requestmetrics_errors_total", "kafka_connect_task_error_")


def expressions(*names: str) -> list[str]:
    found = []
    for name in names:
        dashboard = json.loads((COMPOSE / f"grafana/dashboards/{name}.json").read_text())
        found += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return found


def test_the_files_are_what_the_tables_say():
    spec = importlib.util.spec_from_file_location("make", COMPOSE / "grafana/make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert [p.stem for p in DASHBOARDS] == sorted(make.DASHBOARDS)
    for file in DASHBOARDS:
        assert file.read_text() == make.text(file.stem), "run compose/grafana/make.py"


def test_datasource_and_folder_are_those_that_the_dashboards_name():
    source = yaml.safe_load((COMPOSE / "grafana/provisioning/datasources/prometheus.yml").read_text())
    uids = {d["uid"] for d in source["datasources"]}
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            assert {t["datasource"]["uid"] for t in panel["targets"]} <= uids
    provider = yaml.safe_load((COMPOSE / "grafana/provisioning/dashboards/klamm.yml").read_text())
    (folder,) = [p["options"]["path"] for p in provider["providers"]]
    grafana = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]["grafana"]
    assert f"./grafana/dashboards:{folder}:ro" in grafana["volumes"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (COMPOSE / "grafana/dashboards" / Path(home).name).exists()


def test_every_target_is_a_service():
    config = yaml.safe_load((COMPOSE / "prometheus/prometheus.yml").read_text())
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    targets = [
        t for job in config["scrape_configs"] for each in job["static_configs"] for t in each["targets"]
    ]
    assert {t.split(":")[0] for t in targets} <= set(services)


@pytest.mark.usefixtures("prometheus_server")
def test_prometheus_takes_its_configuration_and_rules():
    done = subprocess.run(
        ["promtool", "check", "config", COMPOSE / "prometheus/prometheus.yml"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.fixture
def watched(prometheus_server: None, tmp_path: Path) -> Iterator[Prometheus]:
    """Yields `klamm up` with a file source and a file sink, and Prometheus beside it."""
    (tmp_path / "in.txt").write_text("".join(f"{n}\n" for n in range(1000)))
    up = subprocess.Popen(
        [KLAMM, *up_words(tmp_path / "data")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        ready = up.stdout.readline()
        rest, metrics = (re.search(rf"{name}=http://([^ /]*)", ready)[1] for name in ("rest", "metrics"))
        for name, config in {
            "in": {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "t"},
            "out": {"connector.class": "FileStreamSink", "file": str(tmp_path / "out.txt"), "topics": "t"},
        }.items():
            body = json.dumps({"name": name, "config": config}).encode()
            asked = urllib.request.Request(
                f"http://{rest}/connectors", body, headers={"Content-Type": "application/json"}
            )
            urllib.request.urlopen(asked, timeout=60).close()
        prometheus = Prometheus(tmp_path, {"broker": metrics, "connect": rest}, connect_rules())
        prometheus.rest = rest
        yield prometheus
        prometheus.close()
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(60)
        up.stdout.close()


def not_found(
    prometheus: Prometheus, dashboards: list[str], step: Callable[[], None] = lambda: None
) -> list[str]:
    """Returns what of the dashboards has not been found at some time within a minute and a half."""
    deadline = time.monotonic() + 90
    empty = expressions(*dashboards)
    while empty and time.monotonic() < deadline:
        time.sleep(0.5)
        step()
        if prometheus.answers():
            empty = [
                e for e in empty if not prometheus.query(e) and not any(m in e for m in WHEN_THERE_ARE_ERRORS)
            ]
    return empty


def test_prometheus_finds_what_the_dashboards_of_broker_and_connect_show(watched, tmp_path):
    assert not not_found(watched, ["broker", "connect"])
    config = {
        "connector.class": "FileStreamSink", "file": str(tmp_path / "no.txt"), "topics": "t",
        "value.converter": "org.apache.kafka.connect.converters.LongConverter",
    }  # fmt: skip
    body = json.dumps({"name": "bad", "config": config}).encode()
    url, headers = f"http://{watched.rest}/connectors", {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60).close()
    wait_until(lambda: watched.firing().get("ConnectTaskFailed", {}).get("connector") == "bad", "the alert")
    urllib.request.urlopen(urllib.request.Request(f"{url}/bad", method="DELETE"), timeout=60).close()
    wait_until(lambda: "ConnectTaskFailed" not in watched.firing(), "its end")


def connect_rules() -> dict:
    """Returns the rule for tasks that have failed, without patience."""
    rules = yaml.safe_load((COMPOSE / "prometheus/rules.yml").read_text())
    found = [r for g in rules["groups"] for r in g["rules"] if r["alert"] == "ConnectTaskFailed"]
    for rule in found:
        rule.pop("for")
    return {"groups": [{"name": "connect", "rules": found}]}


@pytest.mark.usefixtures("prometheus_server")
def test_prometheus_finds_what_the_dashboard_of_the_mirror_shows(tmp_path):
    clusters = [EmbeddedBroker(tmp_path / name) for name in ("a", "b")]
    with clusters[0] as a, clusters[1] as b, SchemaRegistry() as at_a, SchemaRegistry() as at_b:
        topic = new_topic(a)
        flows = {
            "A->B.enabled": "true", "topics": topic, "klamm.metrics.port": "0",
            "A.schema.registry.url": at_a.url, "B.schema.registry.url": at_b.url,
            "sync.schemas.enabled": "true", "sync.client.quotas.enabled": "true", "check.users.enabled": "true",
        }  # fmt: skip
        path = mirror_file(tmp_path / "mm2.properties", {"A": a.bootstrap, "B": b.bootstrap}, flows)

        def traffic() -> None:
            produce(a.bootstrap, topic, ["value"])
            read_as(a.bootstrap, "readers", topic, lambda values: len(values) >= 1)

        with Server("mirror", "start", str(path)) as mirror:
            where = mirror.ready["metrics"].removeprefix("http://").removesuffix("/metrics")
            prometheus = Prometheus(tmp_path, {"mirror": where})
            try:
                assert not not_found(prometheus, ["mirror"], traffic)
                shown = [found["metric"] for found in prometheus.query(expressions("mirror")[0])]
                assert {"source": "A", "target": "B", "topic": f"A.{topic}"} in shown
                (flows_up,) = prometheus.query('klamm_mirror_flow_up{flow="A->B"}')
                assert flows_up["value"][1] == "1"
            finally:
                prometheus.close()


@pytest.mark.usefixtures("prometheus_server")
def test_prometheus_takes_every_expression(tmp_path):
    prometheus = Prometheus(tmp_path, {"itself": "127.0.0.1:1"})
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                prometheus.query("vector(1)")
                break
            except OSError:
                assert time.monotonic() < deadline, prometheus.log.read_text()
                time.sleep(0.1)
        for expr in expressions(*(file.stem for file in DASHBOARDS)):
            prometheus.query(expr)
    finally:
        prometheus.close()
