"""Every alert of the mirror fires when it should, in a real Prometheus that watches a real mirror, and only then."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from support.broker import new_topic, wait_until
from support.kafka_broker import free_port
from support.klamm import Server
from support.mirror import mirror_file, produce, status
from support.prometheus import Prometheus

from klamm.mirror.places import claimed, place_of
from klamm.testing import EmbeddedBroker

RULES = Path(__file__).parents[2] / "compose/prometheus/rules.yml"
AWAY = {"MirrorBehind", "MirrorGroupOffsetsOld", "MirrorCheckpointsOld", "MirrorHeartbeatsOld"}


def mirror_rules() -> dict[str, Any]:
    """Returns the rules of the mirror, for a test that cannot wait: thresholds of seconds a twentieth (8 at least), no
    patience, and half a minute for ten.
    """
    rules = yaml.safe_load(RULES.read_text())
    found = [r for g in rules["groups"] for r in g["rules"] if r["alert"].startswith("Mirror")]
    for rule in found:
        rule.pop("for", None)
        expr = re.sub(r"(_seconds\) > )(\d+)$", lambda m: m[1] + str(max(int(m[2]) / 20, 8)), rule["expr"])
        rule["expr"] = expr.replace("10m", "30s")
    return {"groups": [{"name": "mirror", "rules": found}]}


def wait_for(prometheus: Prometheus, wanted: Collection[str], fired: set[str]) -> None:
    """Waits until exactly these alerts fire."""

    def they_do() -> bool:
        fired.update(firing := prometheus.firing())
        return set(firing) == set(wanted)

    wait_until(they_do, f"exactly {sorted(wanted)}", timeout_s=120)


@pytest.mark.usefixtures("processes", "prometheus_server")
def test_every_alert_fires_when_it_should(tmp_path):
    rules, fired = mirror_rules(), set[str]()
    port, metrics = free_port(), free_port()
    flows = {
        "A->B.enabled": "true", "topics": "orders", "klamm.metrics.port": str(metrics),
        "klamm.metrics.host": "127.0.0.1", "mirror.gap.policy": "record",
    }  # fmt: skip
    with EmbeddedBroker(tmp_path / "a") as a:
        path = mirror_file(tmp_path / "mm2.properties", {"A": a.bootstrap, "B": f"127.0.0.1:{port}"}, flows)
        new_topic(a, name="orders")
        produce(a.bootstrap, "orders", ["x"] * 10)
        prometheus = Prometheus(tmp_path, {"mirror": f"127.0.0.1:{metrics}"}, rules)
        server = None
        try:
            with EmbeddedBroker(tmp_path / "b", port=port):
                server = Server("mirror", "start", str(path))
                wait_until(lambda: _asked(prometheus, "klamm_mirror_partition_lag_seconds == 0"), "figures")
                wait_for(prometheus, (), fired)
            produce(a.bootstrap, "orders", ["y"] * 10)
            wait_for(prometheus, AWAY, fired)
            with EmbeddedBroker(tmp_path / "b", port=port):
                wait_for(prometheus, (), fired)
                _kill_and_hold_down(path, prometheus, fired)
                assert server.stop() == 0
                produce(a.bootstrap, "orders", ["z"] * 10)
                admin = AdminClient({"bootstrap.servers": a.bootstrap})
                for done in admin.delete_records([TopicPartition("orders", 0, 25)]).values():
                    done.result(60)
                server = Server("mirror", "start", str(path))
                wait_for(prometheus, {"MirrorGap"}, fired)
                wait_for(prometheus, (), fired)
                admin.delete_topics(["orders"])["orders"].result(60)
                wait_until(lambda: "orders" not in admin.list_topics(timeout=60).topics, "the topic's end")
                new_topic(a, name="orders")
                wait_for(prometheus, {"MirrorPartitionsStopped"}, fired)
                assert server.stop() == 0
        finally:
            prometheus.close()
            if server is not None:
                server.stop()
    assert fired == {rule["alert"] for rule in rules["groups"][0]["rules"]}


def _kill_and_hold_down(path: Path, prometheus: Prometheus, fired: set[str]) -> None:
    """Kills a flow's process, and takes its place, so that the next one waits."""
    pid = status(path)["A->B"]["pid"]
    os.kill(pid, signal.SIGKILL)
    with claimed(place_of(path, "A->B")):
        wait_for(prometheus, {"MirrorFlowDown"}, fired)
    wait_for(prometheus, (), fired)


def _asked(prometheus: Prometheus, expr: str) -> bool:
    try:
        return bool(prometheus.query(expr))
    except OSError:  # it does not listen yet
        return False
