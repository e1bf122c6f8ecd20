"""`klamm mirror start` with `B.exactly.once.source.support=enabled`, killed: each record once and in order."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.broker import new_name, new_topic, wait_until
from support.circles import Circle, topic_at
from support.klamm import Server
from support.mirror import kill, mirror_file, produce
from support.mirroring_once import Mirror, read_committed

from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("processes")


def values(bootstrap: str, topic: str) -> list[str]:
    return [value.decode() for _, value in read_committed(bootstrap, topic)]


def arrives(bootstrap: str, topic: str, count: int) -> list[str]:
    """The values of a topic once there are so many, and no more have come for a second."""
    wait_until(lambda: len(values(bootstrap, topic)) >= count, f"{count} records of {topic}", timeout_s=120)
    time.sleep(1)
    return values(bootstrap, topic)


def names(tag: str, first: int, count: int) -> list[str]:
    return [f"{tag}-{i}" for i in range(first, first + count)]


def test_records_come_once_and_in_order_after_kills(source, target, tmp_path: Path):
    a, b = new_name("a"), new_name("b")
    topic = new_topic(source)
    flows = {
        f"{a}->{b}.enabled": "true", "topics": topic, f"{b}.exactly.once.source.support": "enabled",
        "emit.heartbeats.enabled": "false",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    sent: list[str] = []
    server = Server("mirror", "start", str(path))
    try:
        for round_, victim in enumerate(["flow", "supervisor", "flow"]):
            more = names("x", len(sent), 4_000)
            produce(source.bootstrap, topic, more[:2_000])
            if round_:  # the first kill comes while the first records are copied
                arrives(target.bootstrap, f"{a}.{topic}", len(sent) + 100)
            kill(server, victim)
            produce(source.bootstrap, topic, more[2_000:])
            sent += more
            if victim == "supervisor":
                server.stop()
                server = Server("mirror", "start", str(path))
        assert arrives(target.bootstrap, f"{a}.{topic}", len(sent)) == sent
    finally:
        server.stop()


def test_a_start_does_not_wait_for_the_transaction_of_a_task_that_was_killed(source, target, tmp_path: Path):
    a, b = new_name("a"), new_name("b")
    topic = new_topic(source)
    flows = {f"{a}->{b}.enabled": "true", "topics": topic, f"{b}.exactly.once.source.support": "enabled"}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    Server("mirror", "start", str(path)).stop()
    killed = Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "transactional.id": f"{a}-mm2-MirrorSourceConnector-0",
            "transaction.timeout.ms": 600_000,
        }
    )
    killed.init_transactions()
    killed.begin_transaction()
    for partition in range(25):
        killed.produce(f"mm2-offsets.{a}.internal", b"x", b'["other", {}]', partition=partition)
    assert killed.flush(30) == 0
    with Server("mirror", "start", str(path)):
        produce(source.bootstrap, topic, ["one"])
        assert arrives(target.bootstrap, f"{a}.{topic}", 1) == ["one"]


def test_records_of_both_sides_stay_what_they_are_after_kills(source, target, tmp_path: Path):
    a, b = new_name("a"), new_name("b")
    topic = new_topic(source)
    new_topic(target, name=topic)
    flows = {
        f"{a}->{b}.enabled": "true", f"{b}->{a}.enabled": "true", "topics": topic,
        "replication.policy.class": "IdentityReplicationPolicy", "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false", "sync.group.offsets.enabled": "false",
        f"{a}.exactly.once.source.support": "enabled", f"{b}.exactly.once.source.support": "enabled",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    of_a, of_b = names("a", 0, 100), names("b", 0, 100)
    produce(source.bootstrap, topic, of_a)
    produce(target.bootstrap, topic, of_b)
    server = Server("mirror", "start", str(path))
    try:
        for victim in ("flow", "supervisor", "flow"):
            arrives(target.bootstrap, topic, len(of_a) + len(of_b))
            more_a, more_b = names("a", len(of_a), 500), names("b", len(of_b), 500)
            produce(source.bootstrap, topic, more_a[:250])
            produce(target.bootstrap, topic, more_b[:250])
            kill(server, victim)
            produce(source.bootstrap, topic, more_a[250:])
            produce(target.bootstrap, topic, more_b[250:])
            of_a, of_b = of_a + more_a, of_b + more_b
            if victim == "supervisor":
                server.stop()
                server = Server("mirror", "start", str(path))
        for bootstrap in (source.bootstrap, target.bootstrap):
            found = arrives(bootstrap, topic, len(of_a) + len(of_b))
            assert [v for v in found if v.startswith("a")] == of_a
            assert [v for v in found if v.startswith("b")] == of_b
    finally:
        server.stop()


def test_records_of_a_third_cluster_are_refused_with_a_way_out(source, target, tmp_path: Path):
    clusters = {"A": source.bootstrap, "B": target.bootstrap}
    topic = topic_at(clusters)
    with EmbeddedBroker(tmp_path / "c") as third, Circle(clusters, ["AB"], topic) as circle:
        produce(source.bootstrap, topic, names("a", 0, 10))
        circle.settle()
        policy = {"replication__policy__class": "IdentityReplicationPolicy"}
        aliases = {"source__cluster__alias": "B", "target__cluster__alias": "C"}
        mirror = Mirror(target.bootstrap, third.bootstrap, topic, tmp_path, **policy, **aliases)
        try:
            wait_until(
                lambda: "Records that first were at cluster A come by this flow" in mirror.trace(),
                "the reason",
            )
            assert values(third.bootstrap, topic) == []
        finally:
            mirror.worker.end()
