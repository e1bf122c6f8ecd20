"""Workers of one group share connectors and tasks, and each answers for all of them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.connect_worker import STRING, WorkerProcess, feed, lines_out, wait_for, worker_properties
from support.runtime import SOURCE, install_plugins

# Short enough to wait for, and longer than a busy machine lets a worker stand still: what runs stays where it is then.
SHORT = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "300",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "400",
}


class Workers:
    """Some workers of one group, started together."""

    def __init__(self, bootstrap: str, directory: Path, count: int, **more: str) -> None:
        self.properties = worker_properties(bootstrap, f"herd-{uuid.uuid4().hex[:8]}", **{**SHORT, **more})
        self._directory = directory
        self._plugins = install_plugins(directory / "plugins")
        self.all = [self._start() for _ in range(count)]
        try:
            for each in self.all:
                each.wait_ready()
        except AssertionError:
            self.end()
            raise

    def _start(self) -> WorkerProcess:
        return WorkerProcess(self.properties, self._directory, python_path=self._plugins)

    def add(self) -> WorkerProcess:
        self.all.append(self._start())
        return self.all[-1].wait_ready()

    def end(self) -> None:
        for each in self.all:
            each.end()

    def log(self) -> str:
        return "\n".join(f"--- {w.port}\n{w.log}" for w in self.all)

    def at(self, worker_id: str) -> WorkerProcess:
        return next(w for w in self.all if worker_id == f"127.0.0.1:{w.port}")

    def leader(self) -> WorkerProcess:
        """Returns the leader, as the newest generation's lines in the logs say."""
        lines = [
            (m, w) for w in self.all for m in re.finditer(r"generation (\d+), .* this worker leads", w.log)
        ]
        return max(lines, key=lambda found: int(found[0][1]))[1]


def source(**more: str) -> dict[str, str]:
    return {
        "connector.class": SOURCE, "topic": "herd", "idle": "1", "value.converter": STRING, "tasks.max": "4", **more
    }  # fmt: skip


def status(worker: WorkerProcess, name: str) -> dict[str, Any]:
    answer = worker.request("GET", f"/connectors/{name}/status")
    return answer.json if answer.status == 200 else {"connector": {"state": None}, "tasks": []}


def runs(worker: WorkerProcess, name: str, tasks: int) -> bool:
    found = status(worker, name)
    states = [found["connector"]["state"], *(t["state"] for t in found["tasks"])]
    return states == ["RUNNING"] * (1 + tasks)


def places(worker: WorkerProcess, name: str) -> list[str]:
    return [t["worker_id"] for t in status(worker, name)["tasks"]]


def create(worker: WorkerProcess, workers: Workers, tasks: int = 4, **more: str) -> str:
    """Creates a connector; its tasks then run, as all workers see it."""
    name = f"c{uuid.uuid4().hex[:6]}"
    config = source(**{"tasks.max": str(tasks), **more})
    answer = worker.request("POST", "/connectors", {"name": name, "config": config})
    assert answer.status == 201, answer.body
    for each in workers.all:
        wait_for(lambda: runs(each, name, tasks), lambda: f"{status(each, name)}\n{workers.log()}")
    return name


@pytest.fixture(scope="module")
def workers(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    made = Workers(bootstrap, tmp_path_factory.mktemp("herd"), 3)
    yield made
    made.end()


def test_herd_workers_that_start_at_once_share_the_tasks(workers: Workers) -> None:
    name = create(workers.all[0], workers, tasks=6)

    def shared() -> bool:
        found = places(workers.all[1], name)
        return [found.count(f"127.0.0.1:{w.port}") for w in workers.all] == [2, 2, 2]

    wait_for(shared, lambda: f"{places(workers.all[1], name)}\n{workers.log()}")
    assert workers.all[2].request("DELETE", f"/connectors/{name}").status == 204
    for each in workers.all:
        assert each.request("GET", f"/connectors/{name}").status == 404


@pytest.mark.parametrize("which", [0, 1, 2])
def test_herd_every_worker_does_what_is_asked_of_any(workers: Workers, which: int) -> None:
    """One of three workers neither leads nor runs the connector, and takes requests all the same."""
    worker = workers.all[which]
    name = create(workers.all[0], workers, tasks=2)
    assert (
        worker.request("PUT", f"/connectors/{name}/config", source(**{"tasks.max": "2", "x": "1"})).status
        == 200
    )
    assert worker.get(f"/connectors/{name}/config")["x"] == "1", "read what was written, here too"
    patched = worker.request("PATCH", f"/connectors/{name}/config", {"y": "1"})
    assert (patched.status, patched.json["config"]["y"]) == (200, "1")
    assert worker.request("PUT", f"/connectors/{name}/pause").status == 202
    wait_for(lambda: status(worker, name)["connector"]["state"] == "PAUSED", workers.log)
    assert worker.request("PUT", f"/connectors/{name}/resume").status == 202
    wait_for(lambda: runs(worker, name, 2), lambda: f"{status(worker, name)} {workers.log()}")
    assert worker.request("POST", f"/connectors/{name}/restart").status == 204
    assert worker.request("POST", f"/connectors/{name}/tasks/1/restart").status == 204
    wait_for(lambda: runs(worker, name, 2), lambda: f"{status(worker, name)} {workers.log()}")
    assert worker.request("PUT", f"/connectors/{name}/stop").status == 204
    wait_for(lambda: status(worker, name)["connector"]["state"] == "STOPPED", workers.log)
    reset = worker.request("DELETE", f"/connectors/{name}/offsets")
    assert reset.status == 200, reset.body
    assert worker.request("DELETE", f"/connectors/{name}").status == 204


def test_herd_offsets_are_changed_at_once_after_a_stop(workers: Workers) -> None:
    """The tasks run on three workers, and commit as they stop."""
    name = create(workers.all[0], workers, tasks=3, idle="", **{"pace.s": "0.05"})
    assert workers.all[1].request("PUT", f"/connectors/{name}/stop").status == 204
    wanted = [{"partition": {"task": str(i)}, "offset": {"n": 9_000_000 + i}} for i in range(3)]
    altered = workers.all[2].request("PATCH", f"/connectors/{name}/offsets", {"offsets": wanted})
    assert altered.status == 200, altered.body
    time.sleep(0.5)  # a commit that comes late would change them
    found = workers.all[0].get(f"/connectors/{name}/offsets")["offsets"]
    assert sorted(found, key=str) == wanted
    assert workers.all[0].request("DELETE", f"/connectors/{name}").status == 204


def test_herd_a_restart_of_all_tasks_reaches_every_worker(workers: Workers) -> None:
    name = create(workers.all[0], workers, tasks=3)
    assert len(set(places(workers.all[0], name))) > 1
    asked = workers.all[1].request("POST", f"/connectors/{name}/restart?includeTasks=true")
    assert asked.status == 202, asked.body
    assert [t["state"] for t in asked.json["tasks"]] == ["RESTARTING"] * 3
    assert asked.json["connector"]["state"] == "RESTARTING"
    # Each task's process is another one: none of them has gone on.
    wait_for(lambda: runs(workers.all[2], name, 3), lambda: f"{status(workers.all[2], name)} {workers.log()}")
    workers.all[0].request("DELETE", f"/connectors/{name}")


def test_herd_progress_is_shown_of_tasks_on_all_workers(workers: Workers) -> None:
    name = create(workers.all[0], workers, tasks=3)

    def counted(worker: WorkerProcess) -> bool:
        return all(t.get("progress") for t in status(worker, name)["tasks"])

    for each in workers.all:
        wait_for(lambda: counted(each), lambda: f"{status(each, name)}\n{workers.log()}")
    workers.all[0].request("DELETE", f"/connectors/{name}")


def test_herd_a_log_level_is_set_on_all_workers(workers: Workers) -> None:
    path = "/admin/loggers/herd.test"
    answer = workers.all[1].request("PUT", f"{path}?scope=cluster", {"level": "ERROR"})
    assert (answer.status, answer.body) == (204, b"")
    for each in workers.all:
        wait_for(lambda: each.request("GET", path).content.get("level") == "ERROR", workers.log)


def test_herd_a_request_that_was_passed_on_twice_is_a_conflict(workers: Workers) -> None:
    follower = next(w for w in workers.all if w is not workers.leader())
    body = {"name": "never", "config": source()}
    answer = follower.request("POST", "/connectors?forward=false", body)
    assert answer.status == 409
    assert (
        answer.message == "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
    )


def session_key(bootstrap: str, topic: str) -> bytes:
    """Returns the session key, as any worker reads it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "key", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    key = b""
    while (message := consumer.poll(60)) is not None and message.error() is None:
        if message.key() == b"session-key":
            record = json.loads(message.value() or b"{}")
            assert record["algorithm"] == "HmacSHA256"
            key = base64.b64decode(record["key"])
    consumer.close()
    return key


def test_herd_internal_requests_are_signed(workers: Workers, bootstrap: str) -> None:
    name = create(workers.all[0], workers, tasks=1)
    path, body = f"/connectors/{name}/tasks", json.dumps([{"task": "0", "made": "elsewhere"}])

    def ask(worker: WorkerProcess, **headers: str) -> tuple[int, str]:
        sent = {k.replace("_", "-"): v for k, v in headers.items()}
        answer = worker.request("POST", path, raw=body, headers=sent)
        return answer.status, answer.json["message"] if answer.body else ""

    for worker in workers.all:
        assert ask(worker) == (400, "Internal request missing required signature")
        wrong = base64.b64encode(b"x" * 32).decode()
        given = {"X_Connect_Authorization": wrong, "X_Connect_Request_Signature_Algorithm": "HmacSHA256"}
        assert ask(worker, **given) == (403, "Internal request contained invalid signature.")
        other = given | {"X_Connect_Request_Signature_Algorithm": "HmacSHA1"}
        assert "does not support the 'HmacSHA1' key signing algorithm" in ask(worker, **other)[1]
    key = session_key(bootstrap, workers.properties["config.storage.topic"])
    good = base64.b64encode(hmac.digest(key, body.encode(), hashlib.sha256)).decode()
    signed = {"X_Connect_Authorization": good, "X_Connect_Request_Signature_Algorithm": "HmacSHA256"}
    for worker in workers.all:  # the leader takes it, the others pass it on
        assert ask(worker, **signed) == (200, "")
    workers.all[0].request("DELETE", f"/connectors/{name}")


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_herd_a_killed_workers_tasks_run_elsewhere_in_time(
    bootstrap: str, tmp_path: Path, victim: str
) -> None:
    """They move when its session has ended; Kafka waits five minutes by default."""
    workers = Workers(bootstrap, tmp_path, 3)
    try:
        name = create(workers.all[0], workers, tasks=6)
        leader = workers.leader()
        killed = leader if victim == "leader" else next(w for w in workers.all if w is not leader)
        others = [w for w in workers.all if w is not killed]
        kept = {
            t["id"]: t
            for t in status(others[0], name)["tasks"]
            if t["worker_id"] != f"127.0.0.1:{killed.port}"
        }
        killed.stop(signal.SIGKILL)

        def elsewhere() -> bool:
            return runs(others[0], name, 6) and f"127.0.0.1:{killed.port}" not in places(others[0], name)

        wait_for(elsewhere, lambda: f"{status(others[0], name)}\n{workers.log()}")
        now = {t["id"]: t for t in status(others[0], name)["tasks"]}
        assert all(now[i]["worker_id"] == t["worker_id"] for i, t in kept.items()), "what ran stayed"
        assert others[1].request("PUT", f"/connectors/{name}/pause").status == 202
    finally:
        workers.end()


@pytest.mark.parametrize("protocol", ["eager", "compatible"])
def test_herd_older_protocols_work_without_signatures(bootstrap: str, tmp_path: Path, protocol: str) -> None:
    workers = Workers(bootstrap, tmp_path, 2, **{"connect.protocol": protocol})
    try:
        for i in range(2):
            name = create(workers.all[i], workers, tasks=2)
            wait_for(lambda: len(set(places(workers.all[0], name))) == 2, workers.log)
        wait_for(lambda: all(t.get("progress") for t in status(workers.all[0], name)["tasks"]), workers.log)
        assert session_key(bootstrap, workers.properties["config.storage.topic"]) == b""
    finally:
        workers.end()


def test_herd_leaders_that_write_in_transactions_follow_each_other(bootstrap: str, tmp_path: Path) -> None:
    workers = Workers(bootstrap, tmp_path, 2, **{"exactly.once.source.support": "preparing"})
    try:
        for i in range(3):
            name = create(workers.all[i % 2], workers, tasks=2)
            assert workers.all[0].request("PUT", f"/connectors/{name}/stop").status == 204
            assert workers.all[1].request("DELETE", f"/connectors/{name}").status == 204
            leader = workers.leader()
            workers.all.remove(leader)
            leader.stop(signal.SIGKILL if i else signal.SIGTERM)
            workers.add()
    finally:
        workers.end()


def test_herd_a_request_waits_out_the_death_of_the_leader(bootstrap: str, tmp_path: Path) -> None:
    """Nothing was sent to the dead one: the next leader gets it."""
    workers = Workers(bootstrap, tmp_path, 3)
    try:
        create(workers.all[0], workers, tasks=1)
        leader = workers.leader()
        others = [w for w in workers.all if w is not leader]
        leader.stop(signal.SIGKILL)
        for i, each in enumerate(others):
            answer = each.request("POST", "/connectors", {"name": f"later{i}", "config": source()})
            assert answer.status == 201, f"{answer.body!r}\n{workers.log()}"
    finally:
        workers.end()


def test_herd_a_planned_stop_moves_only_its_own_tasks_at_once(bootstrap: str, tmp_path: Path) -> None:
    """Nobody waits for its session to end: that takes longer than the test waits."""
    workers = Workers(
        bootstrap, tmp_path, 3, **{"session.timeout.ms": "240000", "heartbeat.interval.ms": "1000"}
    )
    try:
        name = create(workers.all[0], workers, tasks=6)
        leaving, stays = workers.all[0], workers.all[1]
        gone = f"127.0.0.1:{leaving.port}"
        before = {t["id"]: t["worker_id"] for t in status(stays, name)["tasks"]}
        assert leaving.stop() == 0, leaving.log
        wait_for(
            lambda: runs(stays, name, 6) and gone not in places(stays, name),
            lambda: f"{status(stays, name)}\n{workers.log()}",
        )
        after = {t["id"]: t["worker_id"] for t in status(stays, name)["tasks"]}
        assert all(after[i] == place for i, place in before.items() if place != gone)
        # It comes back, and takes its share again.
        workers.all.remove(leaving)
        workers.add()
        wait_for(
            lambda: runs(stays, name, 6) and len(set(places(stays, name))) == 3,
            lambda: f"{status(stays, name)}\n{workers.log()}",
        )
    finally:
        workers.end()


def test_herd_a_worker_that_slept_comes_back_with_clean_hands(bootstrap: str, tmp_path: Path) -> None:
    """While it sleeps others take over; when it wakes, its processes are dead before it does anything else."""
    workers = Workers(bootstrap, tmp_path, 2)
    try:
        for i in range(4):
            config = {
                "connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": f"sleep-{i}",
                "value.converter": STRING,
            }  # fmt: skip
            made = workers.all[0].request("POST", "/connectors", {"name": f"s{i}", "config": config})
            assert made.status == 201, made.body
        first, second = workers.all
        for i in range(4):
            wait_for(lambda: runs(first, f"s{i}", 1), lambda: f"{status(first, f's{i}')} {workers.log()}")
        wait_for(lambda: len({place for i in range(4) for place in places(first, f"s{i}")}) == 2, workers.log)
        os.kill(first.process.pid, signal.SIGSTOP)
        gone = f"127.0.0.1:{first.port}"

        def elsewhere() -> bool:
            return all(runs(second, f"s{i}", 1) and gone not in places(second, f"s{i}") for i in range(4))

        wait_for(elsewhere, workers.log)
        os.kill(first.process.pid, signal.SIGCONT)

        def shared() -> bool:
            """Returns whether both say the same: until it has read on, the one that slept tells how it was before."""
            seen = [[places(w, f"s{i}") for i in range(4)] for w in workers.all]
            both = {place for found in seen[1] for place in found}
            agreed = seen[0] == seen[1] and len(both) == 2
            return agreed and all(runs(w, f"s{i}", 1) for i in range(4) for w in workers.all)

        wait_for(shared, workers.log)
        assert first.process.poll() is None
    finally:
        workers.end()


def test_herd_no_line_is_lost_when_workers_come_and_go(bootstrap: str, tmp_path: Path) -> None:
    workers = Workers(bootstrap, tmp_path, 2)
    topic = f"lines-{uuid.uuid4().hex[:8]}"
    files = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": topic}
    sink = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out.txt"), "topics": topic}
    try:
        for name, config in (("src", files), ("snk", sink)):
            both = config | {"value.converter": STRING, "key.converter": STRING}
            answer = workers.all[0].request("POST", "/connectors", {"name": name, "config": both})
            assert answer.status == 201, answer.body
        sent = 0
        for number in (signal.SIGKILL, signal.SIGTERM):
            feed(tmp_path, sent, 200)
            sent += 200
            wait_for(lambda: len(lines_out(tmp_path)) > sent - 200, workers.log)
            workers.add()
            workers.all.pop(0).stop(number)
        expected = {f"line {i}" for i in range(sent)}
        wait_for(lambda: expected <= set(lines_out(tmp_path)), workers.log, 60)
    finally:
        workers.end()
