"""`klamm mirror resolve` with `klamm mirror start`, through kills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.broker import new_name, new_topic, wait_until
from support.gaps import delete, gaps
from support.klamm import Server, klamm
from support.mirror import committed, mirror_file, produce, read_all, read_as

pytestmark = pytest.mark.usefixtures("processes")


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{i}" for i in range(count)]


def at_least(count: int):
    return lambda values: len(set(values)) >= count


def resolve(path: Path, flow: str, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, rows, and what went to standard error."""
    done = klamm("mirror", "resolve", str(path), flow, *words, "-o", "json", timeout_s=120)
    return done.returncode, json.loads(done.stdout or "[]"), done.stderr


def flow_status(path: Path) -> dict[str, Any]:
    return json.loads(klamm("mirror", "status", str(path), "-o", "json").stdout)["flows"][0]


def kill(server: Server) -> None:
    """kill -9 of the supervisor; its flows end with it."""
    server.process.kill()
    server.stop()


def test_a_topic_made_anew_waits_for_the_decision_through_kills(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    topic, flow = new_topic(source, partitions=2), f"{a}->{b}"
    flows = {f"{flow}.enabled": "true", "topics": topic, "emit.heartbeats.enabled": "false"}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    remote, ledger = f"{a}.{topic}", f"mm2-gaps.{a}.internal"
    old, new, more = names("old", 300), names("new", 200), names("more", 50)
    produce(source.bootstrap, topic, old)
    server = Server("mirror", "start", str(path))
    try:
        read_all(target.bootstrap, remote, at_least(300))
        kill(server)
        delete(source.bootstrap, topic)
        new_topic(source, partitions=2, name=topic)
        produce(source.bootstrap, topic, new)
        server = Server("mirror", "start", str(path))
        wait_until(
            lambda: len(gaps(target.bootstrap, topic, ledger)) == 2, "both partitions are in the ledger"
        )
        kill(server)
        server = Server("mirror", "start", str(path))
        wait_until(lambda: flow_status(path)["state"] == "DEGRADED", "the status says it")
        assert flow_status(path)["partitions_stopped"] == 2
        code, listed, _ = resolve(path, flow)
        assert code == 0
        assert [row["options"] for row in listed] == ["--append --truncate-target --new-topic"] * 2
        code, rows, said = resolve(path, flow, topic)
        assert (code, rows) == (1, [])
        assert "needs a decision: give --append or --truncate-target or --new-topic" in said
        assert set(read_all(target.bootstrap, remote, at_least(300))) == set(old)
        code, rows, said = resolve(path, flow, topic, "--append")
        assert code == 0, said
        assert [(row["kind"], row["state"], row["action"]) for row in rows] == [
            ("recreated", "resolved", "append")
        ] * 2
        kill(server)
        server = Server("mirror", "start", str(path))
        produce(source.bootstrap, topic, more)
        assert set(read_all(target.bootstrap, remote, at_least(550))) == {*old, *new, *more}
        wait_until(lambda: flow_status(path)["state"] == "RUNNING", "the status says it")
        code, _, said = resolve(path, flow, topic, "--append")
        assert code == 1
        assert f"{topic} has no stopped partition in {ledger}" in said
    finally:
        server.stop()


def test_a_decision_for_a_mirror_that_does_not_run_is_carried_out_by_its_next_start(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    topic, flow = new_topic(source), f"{a}->{b}"
    flows = {f"{flow}.enabled": "true", "topics": topic, "emit.heartbeats.enabled": "false"}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    produce(source.bootstrap, topic, names("old", 10))
    with Server("mirror", "start", str(path)):
        read_all(target.bootstrap, f"{a}.{topic}", at_least(10))
    delete(source.bootstrap, topic)
    new_topic(source, name=topic)
    produce(source.bootstrap, topic, names("new", 10))
    with Server("mirror", "start", str(path)):
        wait_until(lambda: gaps(target.bootstrap, topic, f"mm2-gaps.{a}.internal"), "the ledger")
    code, rows, said = resolve(path, flow, topic, "--partition", "0", "--new-topic", "--timeout", "1")
    assert code == 1
    assert rows[0]["state"] == "resolving"
    assert f"no task has gone on with {topic}-0 within 1 s" in said
    with Server("mirror", "start", str(path)):
        [copy] = wait_until(lambda: copies(target.bootstrap, f"{a}.{topic}"), "another remote topic")
        assert read_all(target.bootstrap, copy, at_least(10)) == names("new", 10)
        group = new_name("group")
        seen = read_as(source.bootstrap, group, topic, at_least(5))
        wait_until(
            lambda: committed(target.bootstrap, group, copy) == len(seen), "the group's offset in the copy"
        )
    assert read_all(target.bootstrap, f"{a}.{topic}", at_least(10)) == names("old", 10)


def copies(bootstrap: str, remote: str) -> list[str]:
    from support.mirror import topics

    return [name for name in topics(bootstrap) if name.startswith(f"{remote}.recreated-")]


def test_contradictions_are_refused(tmp_path):
    path = mirror_file(tmp_path / "f", {"A": "127.0.0.1:1", "B": "127.0.0.1:2"}, {"A->B.enabled": "true"})
    done = klamm("mirror", "resolve", str(path), "A->B", "orders", "--skip", "--retry")
    assert done.returncode == 2
    assert "--skip and --retry: give one of them" in done.stderr
