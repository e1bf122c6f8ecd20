"""`klamm mirror status`: what the running processes say, of mirrors that run, lag, wait, hang and are dead."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import jsonschema
import psutil
import pytest
from support.broker import new_name, new_topic, wait_until
from support.kafka_broker import free_port
from support.klamm import KLAMM, Server, klamm
from support.mirror import mirror_file, produce, read_all, read_as, states, status

from klamm.cli.mirror_status import drawn, filtered
from klamm.mirror.flow_status import FlowTold, _reason
from klamm.mirror.shapes import FlowState, MirrorStatus
from klamm.testing import EmbeddedBroker
from klamm.web.json_schema import Schemas


def family(server: Server) -> list[psutil.Process]:
    process = psutil.Process(server.process.pid)
    return [process, *process.children(recursive=True)]


def kill_all(server: Server) -> None:
    for process in family(server):
        with suppress(psutil.NoSuchProcess):  # children end by themselves when their parent is gone
            process.kill()
    server.stop()


@contextmanager
def one_second() -> Iterator[None]:
    """A command takes a second at most: by the processor's time, as a busy machine may make it wait."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    yield
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1


def schema() -> dict[str, Any]:
    schemas = Schemas()
    return {**schemas.of(MirrorStatus), "components": {"schemas": schemas.by_name}}


@pytest.mark.usefixtures("processes")
def test_a_running_mirror_tells_what_it_does(source, target, tmp_path):
    a, b, group = new_name("a"), new_name("b"), new_name("group")
    topic = new_topic(source, partitions=2)
    produce(source.bootstrap, topic, [f"v{i}" for i in range(300)])
    read_as(source.bootstrap, group, topic, lambda v: len(v) >= 300)
    flows = {f"{a}->{b}.enabled": "true", "topics": topic, "groups": group}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    with Server("mirror", "start", str(path)) as server:
        wait_until(lambda: status(path)[f"{a}->{b}"]["lag"] == 0, "the lag")
        found = status(path)
        jsonschema.validate({"at_ms": 0, "flows": list(found.values())}, schema())
        flow = found[f"{a}->{b}"]
        assert (flow["source"], flow["target"], flow["state"], flow["why"]) == (a, b, "RUNNING", None)
        assert (flow["lag"], flow["lag_seconds"], flow["gap_records"]) == (0, 0, 0)
        assert flow["partitions_total"] == len(flow["partitions"])
        ours = [p for p in flow["partitions"] if p["topic"] == topic]
        assert sorted((p["partition"], p["remote_topic"]) for p in ours) == [
            (0, f"{a}.{topic}"),
            (1, f"{a}.{topic}"),
        ]
        assert sum(p["offset"] for p in ours) == 300
        for age in ("checkpoint_age_seconds", "group_offset_age_seconds", "heartbeat_age_seconds"):
            assert 0 <= flow[age] < 30, age
        assert flow["pid"] in {p.pid for p in family(server)}
        back = found[f"{b}->{a}"]
        assert (back["state"], back["enabled"], back["partitions"]) == ("RUNNING", False, [])
        shown = klamm("mirror", "status", str(path), "--topic", topic)
        assert shown.returncode == 0
        assert shown.stdout.count(topic) == 2
        assert "caught up" in shown.stdout
        none = klamm("mirror", "status", str(path), "--topic", "nope*")
        assert (none.returncode, none.stderr) == (1, "klamm: the mirror copies no topic nope*\n")
        paused = klamm("mirror", "pause", str(path), f"{a}->{b}", "nope")
        assert f"{a}->{b} copies no topic nope now" in paused.stderr
        assert server.stop() == 0
    gone = klamm("mirror", "status", str(path))
    assert gone.returncode == 3
    assert gone.stdout.count("NOT RUNNING") == 2


@pytest.mark.usefixtures("processes")
def test_after_kill_9_of_everything_nothing_runs(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    flows = {f"{a}->{b}.enabled": "true", "topics": new_topic(source)}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    server = Server("mirror", "start", str(path))
    wait_until(lambda: set(states(path)) == {"RUNNING"}, "all parts")
    kill_all(server)
    with one_second():
        shown = klamm("mirror", "status", str(path), "-o", "json")
    assert shown.returncode == 3
    assert {flow["state"] for flow in json.loads(shown.stdout)["flows"]} == {"NOT RUNNING"}
    jsonschema.validate(json.loads(shown.stdout), schema())


@pytest.mark.usefixtures("processes")
def test_a_flow_that_hangs_and_one_that_was_killed_are_told_apart(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    flows = {f"{a}->{b}.enabled": "true", "topics": new_topic(source)}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    with Server("mirror", "start", str(path)):
        pid = status(path)[f"{a}->{b}"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            flow = status(path)[f"{a}->{b}"]
            assert (flow["state"], flow["pid"]) == ("SILENT", pid)
            assert flow["why"] == f"process {pid} does not answer"
            assert klamm("mirror", "status", str(path)).returncode == 0
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: status(path)[f"{a}->{b}"]["state"] == "RUNNING", "the flow")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: status(path)[f"{a}->{b}"]["state"] in {"STARTING", "RESTARTING"}, "the restart")

        def again() -> bool:
            flow = status(path)[f"{a}->{b}"]
            return flow["state"] == "RUNNING" and flow["pid"] != pid

        wait_until(again, "another process")


@pytest.mark.usefixtures("processes")
def test_while_the_target_is_away_the_lag_grows_and_then_it_catches_up(source, tmp_path):
    a, b = new_name("a"), new_name("b")
    topic = new_topic(source)
    port = free_port()
    flows = {f"{a}->{b}.enabled": "true", "topics": topic, "emit.heartbeats.enabled": "false"}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: f"127.0.0.1:{port}"}, flows)
    flow: dict[str, Any] = {}

    def shows(**wanted: Any) -> bool:
        flow.clear()
        flow.update(status(path)[f"{a}->{b}"])
        return all(flow[key] == value for key, value in wanted.items())

    with EmbeddedBroker(tmp_path / "away", port=port):
        server = Server("mirror", "start", str(path))
        produce(source.bootstrap, topic, [str(i) for i in range(100)])
        wait_until(lambda: shows(state="RUNNING", lag=0) and flow["partitions"], "the first records")
    try:
        produce(source.bootstrap, topic, [str(i) for i in range(5000)])
        why = f"waits for cluster {b}"
        wait_until(
            lambda: shows(state="WAITING", lag=5000) and flow["why"].startswith(why),
            "the lag while the target is away",
        )
        before = flow["lag_seconds"]
        wait_until(lambda: shows(lag=5000) and flow["lag_seconds"] > before, "its age")
        shown = klamm("mirror", "status", str(path)).stdout
        assert "5,000 records behind" in shown
        with EmbeddedBroker(tmp_path / "away", port=port) as back:
            wait_until(lambda: shows(state="RUNNING", lag=0, lag_seconds=0), "it catches up")
            assert len(set(read_all(back.bootstrap, f"{a}.{topic}", lambda v: len(v) >= 5100))) == 5000
            assert server.stop() == 0
    finally:
        server.stop()


@pytest.mark.usefixtures("processes")
def test_while_the_source_is_away_nothing_is_known_of_the_time_since(target, tmp_path):
    a, b, topic = new_name("a"), new_name("b"), new_name()
    port = free_port()
    flows = {f"{a}->{b}.enabled": "true", "topics": topic, "emit.heartbeats.enabled": "false"}
    path = mirror_file(tmp_path / "mm2.properties", {a: f"127.0.0.1:{port}", b: target.bootstrap}, flows)
    with EmbeddedBroker(tmp_path / "away", port=port) as there:
        new_topic(there, name=topic)
        produce(there.bootstrap, topic, ["x"])
        server = Server("mirror", "start", str(path))
        wait_until(lambda: status(path)[f"{a}->{b}"]["lag"] == 0, "the record")
    try:
        flow: dict[str, Any] = {}

        def silent() -> bool:
            flow.update(status(path)[f"{a}->{b}"])
            why = flow["why"] or ""
            return why.startswith(f"waits for cluster {a}") and flow["lag_seconds"] > 5

        wait_until(silent, "the silence of the source")
        assert (flow["state"], flow["lag"]) == ("WAITING", 0)
        assert "nothing is known of the last" in klamm("mirror", "status", str(path)).stdout
    finally:
        server.stop()


@pytest.mark.usefixtures("processes")
def test_2000_partitions_are_told_in_a_second_the_worst_first(source, target, tmp_path):
    a, b = new_name("a"), new_name("b")
    topics = [new_topic(source, name=new_name("many"), partitions=500) for _ in range(4)]
    produce(source.bootstrap, topics[0], [str(i) for i in range(1000)])
    flows = {
        f"{a}->{b}.enabled": "true", "topics": ",".join(topics), "emit.heartbeats.enabled": "false",
        "heartbeats.replication.enabled": "false",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    with Server("mirror", "start", str(path)) as server:

        def all_known() -> bool:
            flow = status(path)[f"{a}->{b}"]
            return flow["partitions_total"] == 2000 and flow["lag"] == 0 and not flow["partitions_unknown"]

        wait_until(all_known, "all partitions", timeout_s=120)
        with one_second():
            shown = klamm("mirror", "status", str(path))
        assert "2,000 partitions" in shown.stdout
        assert len(shown.stdout.splitlines()) < 30
        everything = klamm("mirror", "status", str(path), "--all").stdout.splitlines()
        assert sum(line.startswith("many") for line in everything) == 2000
        assert server.stop() == 0


def terminal(*args: str, columns: int, lines: int, until: str, timeout_s: float = 60) -> str:
    """Runs a command in a terminal until it shows a text, ends it by Ctrl-C, and returns everything it wrote."""
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES"}} | {"TERM": "xterm"}
    process = subprocess.Popen(
        [str(KLAMM), *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    text, deadline, asked = "", time.monotonic() + timeout_s, False
    while time.monotonic() < deadline:
        try:
            text += os.read(ours, 65536).decode(errors="replace")
        except OSError:  # the other end is closed
            break
        if not asked and until in text:
            process.send_signal(signal.SIGINT)
            asked = True
    os.close(ours)
    assert process.wait(30) == 0, text
    return text


@pytest.mark.usefixtures("processes")
def test_watch_draws_in_place_and_gives_the_screen_back(tmp_path):
    path = mirror_file(
        tmp_path / "mm2.properties",
        {"A": "127.0.0.1:1", "B": "127.0.0.1:2"},
        {"A->B.enabled": "true", "emit.heartbeats.enabled": "false"},
    )
    text = terminal(
        "mirror",
        "status",
        str(path),
        "--watch",
        "--interval",
        "0.1",
        columns=80,
        lines=24,
        until="\x1b[J\x1b[H",
    )
    assert text.startswith("\x1b[?1049h")
    assert text.rstrip().endswith("\x1b[?1049l")
    assert "NOT RUNNING" in text
    assert text.count("\x1b[H") >= 2
    screen = text.split("\x1b[H")[1]
    assert all(len(line) <= 80 + 40 for line in screen.splitlines())


@pytest.mark.usefixtures("processes")
def test_watch_prints_a_line_of_json_for_each_look(tmp_path):
    path = mirror_file(
        tmp_path / "mm2.properties", {"A": "127.0.0.1:1", "B": "127.0.0.1:2"}, {"A->B.enabled": "true"}
    )
    process = subprocess.Popen(
        [str(KLAMM), "mirror", "status", str(path), "--watch", "--interval", "0.1", "-o", "json"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    for _ in range(3):
        jsonschema.validate(json.loads(process.stdout.readline()), schema())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 0


# ---- what is drawn


def one(**changes: Any) -> Any:
    partition = {
        "topic": "orders", "partition": 0, "remote_topic": "A.orders", "state": "RUNNING", "offset": 5, "lag": 0,
        "lag_seconds": 0.0, "record_rate": 0.0, "byte_rate": 0.0, "catch_up_seconds": 0.0, "caught_up": 1.0,
        "gap_records": 0, "why": None,
    }  # fmt: skip
    return partition | changes


def mirror(partitions: list[Any], **changes: Any) -> Any:
    flow = {
        "flow": "A->B", "source": "A", "target": "B", "enabled": True, "state": "RUNNING", "why": None, "pid": 1,
        "started_ms": 1, "partitions_total": len(partitions), "partitions_unknown": 0, "partitions_stopped": 0,
        "lag": 0, "lag_seconds": 0.0, "record_rate": 0.0, "byte_rate": 0.0, "catch_up_seconds": 0.0,
        "caught_up": 1.0, "gap_records": 0, "checkpoint_age_seconds": 12.0, "group_offset_age_seconds": None,
        "heartbeat_age_seconds": 0.4, "upkeep": {}, "connectors": [], "partitions": partitions,
    }  # fmt: skip
    return {"at_ms": 0, "flows": [flow | changes]}


LAGGING = one(
    topic="a.topic.with.a.long.name.that.goes.on.and.on.and.on", partition=11, lag=1_204_331, lag_seconds=3_700.0,
    record_rate=52_113.0, byte_rate=48.2e6, catch_up_seconds=23.1, caught_up=0.62,
)  # fmt: skip
STOPPED = one(
    partition=3, state="STOPPED", lag=10, lag_seconds=99.0, gap_records=120,
    why="recreated: the topic was deleted at the source and made anew. Say how to go on with klamm mirror resolve",
)  # fmt: skip


@pytest.mark.parametrize("room", [80, 120])
@pytest.mark.parametrize("unicode", [True, False])
def test_lines_fit_the_terminal(room, unicode):
    found = mirror(
        [STOPPED, LAGGING, *[one(partition=i) for i in range(2000)]], lag=1_204_341, lag_seconds=3_700.0,
        record_rate=52_113.0, byte_rate=48.2e6, catch_up_seconds=23.1, caught_up=0.62, state="DEGRADED",
        why="orders-3: " + STOPPED["why"], partitions_stopped=1, gap_records=120,
    )  # fmt: skip
    lines = drawn(found, room=room, everything=False, unicode=unicode)
    assert max(map(len, lines)) <= room
    text = "\n".join(lines)
    assert (
        "A->B  DEGRADED  1,204,341 records behind, the oldest 1 h 1 m, 52.1k records/s, 48.2 MB/s"
        in " ".join(text.split("\n  "))
    )
    assert "62%  caught up in 23 s" in text
    assert ("█" in text) == unicode
    assert "recreated: the topic was deleted" in text
    assert "checkpoints 12 s ago; heartbeat now" in text
    assert "2,000 more partitions: all caught up" in text
    assert len(lines) < 24
    assert len(drawn(found, room=room, everything=True)) > 2000


def test_a_lag_that_grows_is_never_caught_up():
    growing = LAGGING | {"catch_up_seconds": None}
    found = mirror([growing], lag=1, lag_seconds=60.0, catch_up_seconds=None, caught_up=0.1)
    text = "\n".join(drawn(found, room=80, everything=False))
    assert "not catching up" in text
    assert "never" in text


def test_records_on_their_way_need_no_bar():
    quiet = one(lag=1, lag_seconds=0.7, catch_up_seconds=None, caught_up=0.0)
    found = mirror([quiet], lag=1, lag_seconds=0.7, catch_up_seconds=2.6, caught_up=0.0)
    text = "\n".join(drawn(found, room=80, everything=False))
    assert "1 record behind" in text
    assert "never" not in text
    assert "caught up in" not in text
    assert "0%" not in text


@pytest.mark.parametrize(
    ("why", "state", "said"),
    [
        (None, FlowState.STARTING, None),
        ("connection refused", FlowState.WAITING, "waits for cluster B: connection refused"),
    ],
)
def test_a_cluster_that_is_only_asked_keeps_no_flow_waiting(why, state, said):
    service: Any = SimpleNamespace(cluster_id="b", ready=True)
    flow: Any = SimpleNamespace(source="A", target="B")
    task: Any = {"id": 0, "state": "RUNNING", "waiting_for": "target", "why": why}
    connector: Any = {"name": "MirrorSourceConnector", "state": "RUNNING", "why": None, "tasks": [task]}
    assert FlowTold(flow, service)._state([connector], [], {}) == (state, said)


def test_a_reason_is_told_once_for_partitions_in_a_row():
    stopped = [STOPPED | {"partition": i} for i in range(3)]
    found = mirror([*stopped, LAGGING], state="DEGRADED", partitions_stopped=3)
    lines = drawn(found, room=120, everything=False)
    assert sum("recreated: the topic" in line for line in lines) == 1
    assert "the other partitions caught up" in lines[0]


def test_topics_are_chosen_by_name_pattern_or_remote_name():
    found = mirror([one(), one(topic="payments", remote_topic="A.payments")])
    for wanted, topics in (
        (["orders"], ["orders"]), (["pay*"], ["payments"]), (["A.*"], ["orders", "payments"]), ([], ["orders", "payments"]),
    ):  # fmt: skip
        (flow,) = filtered(found, wanted)["flows"]
        assert [p["topic"] for p in flow["partitions"]] == topics


def test_every_state_has_a_colour():
    from klamm.cli.states import STATE

    for state in FlowState:
        match = STATE.search(f"A->B  {state}  x")
        assert match is not None
        assert match[0] == state


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        ("", None),
        ("No sign of life for 60 s\nThread 1:\n  in poll", "No sign of life for 60 s"),
        ("DataError: tolerance\n\tat be (main.py:60)\nCaused by: ValueError: 7\n\tat f (x.py:1)\n", "DataError: tolerance Caused by: ValueError: 7"),
        ("ConfigError: no such codec\n\tat be (main.py:60)\n", "ConfigError: no such codec"),
    ],
)  # fmt: skip
def test_a_failure_is_told_by_its_error_and_what_began_it(trace, reason):
    assert _reason(trace) == reason
