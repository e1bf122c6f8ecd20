"""A mirror that runs follows its file: topics are paused, flows come and go, and mistakes change nothing."""

from __future__ import annotations

import json
import signal
from typing import Any
from urllib.request import urlopen

import pytest
from support.broker import new_name, new_topic, wait_until
from support.klamm import Server, klamm
from support.mirror import mirror_file, produce, read_all, topics
from support.mirroring import read

pytestmark = pytest.mark.usefixtures("processes")


def at_least(count: int):
    return lambda values: len(values) >= count


def done(*args: str) -> str:
    result = klamm("mirror", *args)
    assert result.returncode == 0, result.stderr
    return result.stderr


def logged(server: Server, text: str) -> bool:
    return any(text in line for line in list(server.errors))


def answer(server: Server, path: str) -> str:
    """Returns what the mirror's REST says."""
    with urlopen(server.ready["rest"] + path.replace(">", "%3E"), timeout=60) as response:
        return str(response.read().decode())


def asked(server: Server, path: str) -> Any:
    return json.loads(answer(server, path))


def test_topics_rest_and_go_on_also_across_a_restart(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    flow, still, moving = f"{a}->{b}", new_topic(source), new_topic(source)
    settings = {
        f"{flow}.enabled": "true", "topics": f"{still},{moving}", "emit.heartbeats.enabled": "false",
        "heartbeats.replication.enabled": "false", "emit.checkpoints.enabled": "false",
        "sync.group.offsets.enabled": "false",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, settings)
    path.write_text("# keep me\n" + path.read_text())
    produce(source.bootstrap, still, ["1"])
    with Server("mirror", "start", str(path)) as server:
        read_all(target.bootstrap, f"{a}.{still}", at_least(1))
        said = done("pause", str(path), flow, still)
        assert f"paused in {flow}: {still}" in said
        assert "copies no topic" not in said
        wait_until(lambda: logged(server, f"1 topics are paused: {still}"), "the pause")
        wait_until(lambda: "1" in read_all(target.bootstrap, f"{a}.{still}", at_least(1)), "still there")
    with Server("mirror", "start", str(path)) as server:
        produce(source.bootstrap, still, ["2"])
        produce(source.bootstrap, moving, ["x"])
        assert read_all(target.bootstrap, f"{a}.{moving}", at_least(1)) == ["x"]
        assert read_all(target.bootstrap, f"{a}.{still}", at_least(1)) == ["1"]
        done("resume", str(path), flow, still)
        assert read_all(target.bootstrap, f"{a}.{still}", at_least(2)) == ["1", "2"]
        assert klamm("mirror", "resume", str(path), flow, still).returncode == 2
        # A mistake is logged, and the mirror goes on
        text = path.read_text()
        path.write_text(text.replace(f"topics={still}", "topics=("))
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: logged(server, "is not applied"), "the mistake")
        # So is one that only the source's topics show
        patterns = text.replace(f"topics={still},{moving}", f"topics={still}|{moving}")
        path.write_text(f"{patterns}\n{flow}.topic.map=topic-.*=one\n")
        refused = klamm("mirror", "plan", str(path))
        assert refused.returncode == 2
        assert (
            f"mm2.properties:{len(path.read_text().splitlines())}: {flow}: several topics would"
            in refused.stderr
        )
        wait_until(lambda: logged(server, "several topics would be copied into one"), "the second mistake")
        produce(source.bootstrap, moving, ["y"])
        assert read_all(target.bootstrap, f"{a}.{moving}", at_least(2)) == ["x", "y"]
    assert text.startswith("# keep me\nclusters=")
    assert "paused" not in text


def test_flows_are_added_and_removed_while_the_mirror_runs(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    there, back = new_topic(source), new_topic(target)
    settings = {
        f"{a}->{b}.enabled": "true", "topics": f"{there},{back}", "emit.heartbeats.enabled": "false",
        "heartbeats.replication.enabled": "false", "emit.checkpoints.enabled": "false",
        "sync.group.offsets.enabled": "false", "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:0",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, settings)
    with Server("mirror", "start", str(path)) as server:
        produce(source.bootstrap, there, ["1"])
        read_all(target.bootstrap, f"{a}.{there}", at_least(1))
        done("flow", "add", str(path), f"{b}->{a}", "--set", f"topics={back}")
        produce(target.bootstrap, back, ["2"])
        assert read_all(source.bootstrap, f"{b}.{back}", at_least(1)) == ["2"]
        assert asked(server, "/flows") == [f"{a}->{b}", f"{b}->{a}"]
        wait_until(lambda: asked(server, f"/flows/{b}->{a}")["state"] == "RUNNING", "the flow's status")
        assert "MirrorSourceConnector" in asked(server, f"/flows/{b}->{a}/connectors")
        assert f'klamm_mirror_flow_up{{flow="{b}->{a}"}} 1' in answer(server, "/metrics")
        done("flow", "remove", str(path), f"{b}->{a}")
        wait_until(
            lambda: logged(server, f"flow {b}->{a} is not in the file any more"), "the end of the flow"
        )
        assert asked(server, "/flows") == [f"{a}->{b}"]
        produce(source.bootstrap, there, ["3"])
        assert read_all(target.bootstrap, f"{a}.{there}", at_least(2)) == ["1", "3"]
        assert klamm("mirror", "flow", "remove", str(path), f"{b}->{a}").returncode == 2
        last = klamm("mirror", "flow", "remove", str(path), f"{a}->{b}")
        assert last.returncode == 2
        assert "no flow is enabled" in last.stderr
        assert server.stop() == 0
    assert f"{a}.{b}.{back}" not in topics(target.bootstrap)


def starts(bootstrap: str, source: str) -> int:
    """Returns how often tasks of the source connector have become RUNNING."""
    statuses = read(bootstrap, f"mm2-status.{source}.internal", None)
    tasks = [
        v or b"" for k, v, _, _ in statuses if (k or b"").startswith(b"status-task-MirrorSourceConnector")
    ]
    return sum(b'"RUNNING"' in value for value in tasks)


def test_filters_intervals_and_limits_start_no_task_again(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    flow, first, second = f"{a}->{b}", new_topic(source, 3), new_topic(source, 2)
    settings = {
        f"{flow}.enabled": "true", f"{flow}.topics": first, "emit.heartbeats.enabled": "false",
        "heartbeats.replication.enabled": "false", "emit.checkpoints.enabled": "false", "tasks.max": "2",
        "sync.group.offsets.enabled": "false",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, settings)
    sent = [str(n) for n in range(3000)]
    with Server("mirror", "start", str(path)) as server:
        produce(source.bootstrap, first, sent[:1000])
        read_all(target.bootstrap, f"{a}.{first}", at_least(1000))
        before = starts(target.bootstrap, a)
        assert before >= 2
        text = path.read_text()
        path.write_text(
            text.replace("refresh.topics.interval.seconds=1", "refresh.topics.interval.seconds=2")
            + f"{flow}.mirror.throttle.bytes=20000000\n"
        )
        wait_until(lambda: logged(server, "go on with changed settings"), "the limit")
        produce(source.bootstrap, first, sent[1000:2000])
        text = path.read_text()
        path.write_text(text.replace(f"{flow}.topics={first}", f"{flow}.topics={first},{second}"))
        produce(source.bootstrap, second, ["x"] * 10)
        read_all(target.bootstrap, f"{a}.{second}", at_least(10))
        produce(source.bootstrap, first, sent[2000:])
        got = read_all(target.bootstrap, f"{a}.{first}", at_least(3000))
        assert sorted(got, key=int) == sent
        assert starts(target.bootstrap, a) == before
        path.write_text(path.read_text() + f"{flow}.source.consumer.fetch.max.bytes=1000000\n")
        wait_until(lambda: starts(target.bootstrap, a) >= before + 2, "the tasks' restart")
        assert server.stop() == 0
