"""`klamm mirror start` between real clusters: records, groups, failover, crashes."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.broker import new_name, new_topic, wait_until
from support.kafka_broker import KafkaBroker, free_port
from support.klamm import Server, gone, klamm
from support.mirror import committed, mirror_file, produce, read_all, read_as, states, status, topics

from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("processes")


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{i}" for i in range(count)]


def at_least(count: int):
    return lambda values: len(set(values)) >= count


def test_a_consumer_moves_and_goes_on_without_loss_and_nothing_goes_in_circles(source, target, tmp_path):
    a, b, group = new_name("a"), new_name("b"), new_name("group")
    topic = new_topic(source)
    new_topic(target, name=topic)
    produce(source.bootstrap, topic, names("a", 1000))
    read_at_a = read_as(source.bootstrap, group, topic, at_least(400))
    flows = {f"{a}->{b}.enabled": "true", f"{b}->{a}.enabled": "true", "topics": topic, "groups": group}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    with Server("mirror", "start", str(path)) as server:
        assert server.ready == {"mirror": f"{a}->{b},{b}->{a}"}
        # Active-active: the same name is written at both sides
        produce(target.bootstrap, topic, names("b", 300))
        remote = f"{a}.{topic}"
        assert sorted(set(read_all(target.bootstrap, remote, at_least(1000)))) == sorted(names("a", 1000))
        assert set(read_all(source.bootstrap, f"{b}.{topic}", at_least(300))) == set(names("b", 300))
        wait_until(lambda: committed(target.bootstrap, group, remote) > 0, "the group's offset at b")
        moved = committed(target.bootstrap, group, remote)
        assert 0 < moved <= len(read_at_a)
        read_at_b = read_as(target.bootstrap, group, remote, lambda v: v[-1:] == ["a-999"])
        assert set(read_at_a) | set(read_at_b) == set(names("a", 1000))
        wait_until(
            lambda: states(path) == ["RUNNING"] * 12, "all connectors and tasks of both flows", timeout_s=60
        )
        assert server.stop() == 0
    for bootstrap in (source.bootstrap, target.bootstrap):
        circles = [t for t in topics(bootstrap) if f"{a}.{b}." in t or f"{b}.{a}." in t]
        assert circles == []


@pytest.mark.parametrize("victim", ["supervisor", "flow"])
def test_killed_mid_flight_everything_arrives(source, target, tmp_path, victim):
    a, b = new_name("a"), new_name("b")
    topic = new_topic(source, partitions=3)
    flows = {f"{a}->{b}.enabled": "true", "topics": topic, "emit.heartbeats.enabled": "false"}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    expected = names("first", 20_000) + names("second", 20_000)
    server = Server("mirror", "start", str(path))
    try:
        produce(source.bootstrap, topic, expected[:20_000])
        read_all(target.bootstrap, f"{a}.{topic}", at_least(100))
        if victim == "supervisor":
            server.process.kill()
            server.stop()
            server = Server("mirror", "start", str(path))
        else:
            # what is said may come later than what is copied
            wait_until(lambda: "RUNNING" in states(path), "a status")
            for pid in _children(server.process.pid):
                _kill(pid)
        produce(source.bootstrap, topic, expected[20_000:])
        values = read_all(target.bootstrap, f"{a}.{topic}", at_least(40_000), timeout_s=60)
        assert set(values) == set(expected)
    finally:
        server.stop()


def test_a_target_that_is_down_at_the_start_holds_nobody_up(source, tmp_path):
    a, b = new_name("a"), new_name("b")
    topic = new_topic(source)
    produce(source.bootstrap, topic, names("x", 10))
    away = EmbeddedBroker(tmp_path / "away", port=free_port())
    flows = {f"{a}->{b}.enabled": "true", f"{b}->{a}.enabled": "true", "topics": topic}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: away.bootstrap}, flows)
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(Server, "mirror", "start", str(path), timeout_s=180)
        # The flow into the cluster that is there runs, and says so
        wait_until(lambda: status(path)[f"{b}->{a}"]["state"] == "RUNNING", "the other flow")
        assert not starting.done()
        with away, starting.result(180) as server:
            assert set(read_all(away.bootstrap, f"{a}.{topic}", at_least(10))) == set(names("x", 10))
            assert server.stop() == 0


def test_the_file_decides_which_connectors_run(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    flows = {f"{a}->{b}.enabled": "true", "topics": new_topic(source)}
    clusters = {a: source.bootstrap, b: target.bootstrap}
    path = mirror_file(tmp_path / "mm2.properties", clusters, flows)
    with Server("mirror", "start", "--clusters", b, str(path)) as server:
        assert server.ready == {"mirror": f"{a}->{b}"}
    mirror_file(path, clusters, {f"{b}->{a}.enabled": "true", "topics": "x"})
    with Server("mirror", "start", str(path)) as server:
        assert server.ready == {"mirror": f"{b}->{a}"}

        def only_heartbeats() -> bool:
            connectors = status(path)[f"{a}->{b}"]["connectors"]
            return [c["name"] for c in connectors] == ["MirrorHeartbeatConnector"]

        wait_until(only_heartbeats, "the connectors of the file")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clusters=A,B\nA->B.enabled=true\n", "A.bootstrap.servers is missing"),
        (
            "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:2\n",
            "no flow is enabled",
        ),
        (
            "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:2\nA->B.enabled=true\ngroups=(\n",
            "mm2.properties:5: A->B: Invalid value ( for configuration groups",
        ),
        (
            (
                "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:2\nA->B.enabled=true\n"
                "A->B.topic.map=t1=zz, t2=zz\n"
            ),
            "mm2.properties:5: A->B: Invalid value t1=zz,t2=zz for configuration topic.map: t1 and t2 would both be copied to zz",
        ),
        (
            (
                "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:2\nA->B.enabled=true\n"
                "B->A.enabled=true\nmirror.throttle.bytes=fast\nmirror.gap.policy=never\n"
            ),
            "mm2.properties:7: A->B: Invalid value never for configuration mirror.gap.policy",
        ),
    ],
)
def test_a_file_that_cannot_be_used(text, said, tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(text)
    result = klamm("mirror", "start", str(path))
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.usefixtures("apache_kafka")
def test_ours_to_apache_kafka(source, tmp_path):
    a, b, group = new_name("a"), new_name("b"), new_name("group")
    topic = new_topic(source, partitions=2)
    produce(source.bootstrap, topic, names("k", 2000))
    read_as(source.bootstrap, group, topic, at_least(1500))
    (tmp_path / "kafka").mkdir()
    with KafkaBroker(tmp_path / "kafka") as kafka:
        flows = {f"{a}->{b}.enabled": "true", "topics": topic, "groups": group}
        path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: kafka.address}, flows)
        with Server("mirror", "start", str(path)) as server:
            remote = f"{a}.{topic}"
            assert set(read_all(kafka.address, remote, at_least(2000))) == set(names("k", 2000))
            # a producer without keys may have put all records into one partition
            moved = [n for n in (0, 1) if committed(source.bootstrap, group, topic, n) > 0]
            assert moved
            wait_until(
                lambda: all(committed(kafka.address, group, remote, n) > 0 for n in moved),
                "the group's offsets",
            )
            assert server.stop() == 0


def _children(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children()]


def _kill(pid: int) -> None:
    import os

    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
