"""Every alert of the mirror fires when it should, in a real Prometheus that watches a real mirror, and only then."""

from __future__ import annotations

import math
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
from support.kafka_broker import KafkaBroker, free_port
from support.klamm import Server, klamm
from support.mirror import mirror_file, produce, status
from support.prometheus import Prometheus
from support.schema_registry import SchemaRegistry

from klamm.mirror.places import claimed, place_of
from klamm.testing import EmbeddedBroker

from .test_mirror_principals import ANN, add_user, made, set_quotas
from .test_mirror_schemas import admin, record

RULES = Path(__file__).parents[2] / "compose/prometheus/rules.yml"
UPKEEP = ("MirrorSchemas", "MirrorQuotas", "MirrorUsers")
AWAY = {"MirrorBehind", "MirrorGroupOffsetsOld", "MirrorCheckpointsOld", "MirrorHeartbeatsOld"}


def mirror_rules(*, upkeep: bool, part: int) -> dict[str, Any]:
    """Returns rules of the mirror, for a test that cannot wait: a part of the thresholds of seconds (8 at least), no
    patience, and half a minute for ten. `upkeep`: those of schemas, quotas and users; False: the others.
    """
    rules = yaml.safe_load(RULES.read_text())
    found = [r for g in rules["groups"] for r in g["rules"] if r["alert"].startswith("Mirror")]
    found = [rule for rule in found if rule["alert"].startswith(UPKEEP) == upkeep]
    for rule in found:
        rule.pop("for", None)
        expr = re.sub(r"(_seconds\) > )(\d+)$", lambda m: m[1] + str(max(int(m[2]) / part, 8)), rule["expr"])
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
    rules, fired = mirror_rules(upkeep=False, part=20), set[str]()
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
                resolved = klamm("mirror", "resolve", str(path), "A->B", "orders", "--append")
                assert resolved.returncode == 0, resolved.stderr
                wait_for(prometheus, (), fired)
                assert server.stop() == 0
        finally:
            prometheus.close()
            if server is not None:
                server.stop()
    assert fired == names_of(rules)


@pytest.mark.usefixtures("apache_kafka", "prometheus_server")
def test_every_alert_of_schemas_quotas_and_users_fires_when_it_should(tmp_path):
    rules, fired = mirror_rules(upkeep=True, part=100), set[str]()
    (kafka_dir := tmp_path / "a").mkdir()
    with (
        KafkaBroker(kafka_dir) as a, EmbeddedBroker(tmp_path / "b") as b,
        SchemaRegistry() as at_a, SchemaRegistry() as at_b,
    ):  # fmt: skip
        admin(at_a).register("com.acme.Order", record("Order", "a"), {})
        admin(at_b).register("mine", record("Mine", "z"), {})
        set_quotas(a.address, ANN, {"request_percentage": math.nan})  # which Klamm refuses
        add_user(a.address, "ann")
        settings = {
            "A->B.enabled": "true", "topics": made(a), "klamm.metrics.port": "0",
            "A.schema.registry.url": at_a.url, "B.schema.registry.url": at_b.url,
            "sync.schemas.enabled": "true", "sync.schemas.interval.seconds": "1",
            "sync.client.quotas.enabled": "true", "sync.client.quotas.interval.seconds": "1",
            "check.users.enabled": "true", "check.users.interval.seconds": "1",
        }  # fmt: skip
        path = mirror_file(tmp_path / "mm2.properties", {"A": a.address, "B": b.bootstrap}, settings)
        with Server("mirror", "start", str(path)) as server:
            where = server.ready["metrics"].removeprefix("http://").removesuffix("/metrics")
            prometheus = Prometheus(tmp_path, {"mirror": where}, rules)
            try:
                wait_until(prometheus.answers, "figures")
                conflicts = {"MirrorSchemasConflict", "MirrorQuotasConflict", "MirrorUsersMissing"}
                wait_for(prometheus, conflicts, fired)
                at_b.schemas.clear()
                at_b.subjects.clear()
                set_quotas(a.address, ANN, {"request_percentage": None})
                add_user(b.bootstrap, "ann")
                wait_for(prometheus, (), fired)
                at_a.proxy = (502, {"message": "nobody is there"})
                wait_for(prometheus, {"MirrorSchemasOld"}, fired)
                at_a.proxy = None
                wait_for(prometheus, (), fired)
                a.kill()
                wait_for(prometheus, {"MirrorQuotasOld", "MirrorUsersOld"}, fired)
                a.start()
                wait_for(prometheus, (), fired)
            finally:
                prometheus.close()
    assert fired == names_of(rules)


def names_of(rules: dict[str, Any]) -> set[str]:
    return {rule["alert"] for rule in rules["groups"][0]["rules"]}


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
