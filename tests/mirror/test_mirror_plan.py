"""`klamm mirror plan` says what would happen, the start does exactly that, and then nothing is left to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from support.broker import new_name, new_topic, wait_until
from support.klamm import Server, klamm
from support.mirror import mirror_file, produce, read_as, topics

pytestmark = pytest.mark.usefixtures("processes")


def plan(path: Path, *args: str) -> list[dict[str, Any]]:
    done = klamm("mirror", "plan", str(path), *args, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_plan_names_what_the_start_does(source, target, tmp_path):
    a, b, group = new_name("a"), new_name("b"), new_name("group")
    fresh = new_topic(source, 3, {"retention.ms": "777000"})
    grown = new_topic(source, 2, {"segment.ms": "888000"})
    new_topic(target, 1, {"segment.ms": "999000"}, name=f"{a}.{grown}")
    produce(source.bootstrap, fresh, ["x"])
    read_as(source.bootstrap, group, fresh, bool)
    clusters = {a: source.bootstrap, b: target.bootstrap}
    settings = {f"{a}->{b}.enabled": "true", "topics": f"{fresh},{grown}", "groups": group}
    path = mirror_file(tmp_path / "mm2.properties", clusters, settings)
    before = topics(source.bootstrap), topics(target.bootstrap)
    found = plan(path, "--flow", f"{a}->{b}")
    assert (topics(source.bootstrap), topics(target.bootstrap)) == before
    shown = [(r["kind"], r["name"], r["setting"], r["old"], r["new"]) for r in found]
    assert [row for row in shown if row[0] != "internal topic" and "heartbeats" not in row[1]] == [
        ("topic", f"{a}.{fresh}", None, None, 3),
        ("config", f"{a}.{fresh}", "retention.ms", None, "777000"),
        ("partitions", f"{a}.{grown}", None, 1, 2),
        ("config", f"{a}.{grown}", "segment.ms", "999000", "888000"),
        ("group", group, None, None, None),
    ]
    own = {r["name"] for r in found if r["kind"] == "internal topic"} - {"heartbeats"}
    assert {f"mm2-configs.{a}.internal", f"{a}.checkpoints.internal", f"mm2-offset-syncs.{b}.internal"} <= own
    with Server("mirror", "start", str(path)):
        there = [r for r in found if r["kind"] in {"topic", "internal topic"}]
        wait_until(
            lambda: {r["name"] for r in there} <= topics(source.bootstrap) | topics(target.bootstrap),
            "all topics",
        )
        wait_until(
            lambda: {r["kind"] for r in plan(path, "--flow", f"{a}->{b}")} == {"group"}, "nothing left to do"
        )
    count = (
        AdminClient({"bootstrap.servers": target.bootstrap}).list_topics(timeout=60).topics[f"{a}.{grown}"]
    )
    assert len(count.partitions) == 2


def test_a_cluster_that_is_away_is_named(source, tmp_path):
    path = mirror_file(
        tmp_path / "mm2.properties",
        {"A": source.bootstrap, "B": "127.0.0.1:1"},
        {"A->B.enabled": "true", "topics": "x", "B->A.emit.heartbeats.enabled": "false"},
    )
    for command, *rest in (["plan"], ["resolve", "A->B"]):
        done = klamm("mirror", command, str(path), *rest)
        assert done.returncode == 3, done.stderr
        assert "no broker of B can be reached (127.0.0.1:1: Connection refused)" in done.stderr
        assert not done.stdout, "no empty table"
