"""A connector and its tasks in one process (`task.processes=connector`): together, but each with its own life."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys

import pytest
from support.runtime import Watched, alive, connector_spec, install_plugins, private_kib, task_spec, wait_for

from klamm.connect.model import State, TaskId
from klamm.connect.settings.limits import Limits
from klamm.connect.settings.restart_policy import RestartPolicy
from klamm_base.errors import ConfigError

pytestmark = pytest.mark.usefixtures("processes")

SHARED = {"task.processes": "connector", "idle": "1"}
R, X, F, U = State.RUNNING, State.RESTARTING, State.FAILED, State.UNASSIGNED
TASKS = [TaskId("c", i) for i in range(3)]


@pytest.fixture(autouse=True)
def plugin_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", install_plugins(tmp_path / "site"))


async def start(w, numbers=range(3), connector=True, **of_task):
    """Starts the connector `c` and tasks of it; `of_task` are further settings of some by number (`_1={…}`)."""
    if connector:
        await w.supervisor.start_connector(connector_spec("c", SHARED))
    for i in numbers:
        await w.supervisor.start_task(task_spec("c", SHARED | of_task.get(f"_{i}", {}), number=i))


async def test_a_connector_and_its_tasks_share_a_process_and_other_connectors_have_theirs():
    async with Watched() as w:
        await start(w)
        await w.supervisor.start_task(task_spec("d", SHARED))
        await w.supervisor.start_task(task_spec("e", {"idle": "1"}))
        for task in (*TASKS, TaskId("d", 0), TaskId("e", 0), "c"):
            await w.wait_states(task, R)
        pids = {w.supervisor.pid(target) for target in ("c", *TASKS)}
        (pid,) = pids
        assert len(pids | {w.supervisor.pid(TaskId(name, 0)) for name in "de"}) == 3
        assert len(await w.supervisor.task_configs("c", 2)) == 2
        for task in TASKS:
            await wait_for(lambda task=task: w.supervisor.progress(task), lambda: "no progress report")

        await w.supervisor.stop_task(TASKS[0])
        await w.supervisor.set_paused(TASKS[1], True)
        await w.wait_states(TASKS[1], R, State.PAUSED)
        assert w.states(TASKS[0]) == [R, U]
        assert w.states(TASKS[2]) == w.states("c") == [R], "others go on"
        await w.supervisor.start_task(task_spec("c", SHARED, number=0))
        await w.wait_states(TASKS[0], R, U, R)
        assert w.supervisor.pid(TASKS[0]) == pid

        for task in TASKS:
            await w.supervisor.stop_task(task)
        await w.supervisor.stop_connector("c")
        await wait_for(lambda: not alive(pid), lambda: "the process goes on without members")
        await start(w, connector=False, numbers=[0])
        await w.wait_state(TASKS[0], R)
        assert w.supervisor.pid(TASKS[0]) != pid


async def test_an_error_of_one_task_restarts_that_task_alone(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    fault = {"behaviour": "unknown", "where": "poll", "once": str(tmp_path / "once")}
    async with Watched() as w:
        await start(w, _1=fault)
        await w.wait_states(TASKS[1], R, X, R)
        assert "ZeroDivisionError" in next(e.trace for e in w.events if e.state is X)
        await asyncio.sleep(0.2)
        assert w.states(TASKS[0]) == w.states(TASKS[2]) == w.states("c") == [R]
        assert len({w.supervisor.pid(target) for target in ("c", *TASKS)}) == 1


@pytest.mark.parametrize(("behaviour", "said"), [("sleep", "No sign of life"), ("spin", "No sign of life")])
async def test_a_hung_task_ends_the_process_and_others_are_not_to_blame(behaviour, said, tmp_path):
    """Nothing but the end of the process ends a thread. The others come back though they have no restart left."""
    fault = {
        "behaviour": behaviour, "where": "poll", "once": str(tmp_path / "once"),
        "task.heartbeat.timeout.ms": "3000", "task.restart.max": "1",
    }  # fmt: skip
    async with Watched(RestartPolicy(max_restarts=0, backoff_ms=50)) as w:
        await start(w, numbers=[0, 2])
        for task in (TASKS[0], TASKS[2]):
            await w.wait_states(task, R)
        before = w.supervisor.pid(TASKS[0])
        await start(w, numbers=[1], connector=False, _1=fault)
        await w.wait_states(TASKS[1], R, X, R)
        for target in (TASKS[0], TASKS[2], "c"):
            await w.wait_states(target, R, X, R)
        shown = {(e.task, e.trace.split("\n")[0]) for e in w.events if e.state is X}
        assert any(task == 1 and trace.startswith(said) for task, trace in shown), shown
        assert all("ended with" in trace for task, trace in shown if task != 1 and behaviour == "sleep"), (
            shown
        )
        assert not alive(before)
        if behaviour == "sleep":
            (trace,) = (e.trace for e in w.events if e.state is X and e.task == 1)
            assert "misbehave" in trace, "the stacks come by the oldest member's output"


async def test_a_crash_of_one_restarts_all(tmp_path):
    async with Watched() as w:
        await start(w, numbers=[0, 2])
        for task in (TASKS[0], TASKS[2]):
            await w.wait_states(task, R)
        await start(
            w,
            numbers=[1],
            connector=False,
            _1={"behaviour": "crash", "where": "poll", "once": str(tmp_path / "x")},
        )
        for target in ("c", *TASKS):
            await wait_for(lambda target=target: w.states(target)[-2:] == [X, R], lambda: f"{w.events}")
        assert any("SIGSEGV" in (e.trace or "") for e in w.events)


async def test_sigterm_stops_all_and_the_worker_starts_them_again():
    async with Watched() as w:
        await start(w)
        for target in ("c", *TASKS):
            await w.wait_states(target, R)
        os.kill(w.supervisor.pid("c"), signal.SIGTERM)
        for target in ("c", *TASKS):
            await w.wait_states(target, R, X, R)


async def test_sigterm_stops_a_member_that_has_no_order_yet():
    """The worker may be about to send it: what the order says must not outlive the signal."""
    async with Watched() as w:
        await start(w, numbers=[0])
        for target in ("c", TASKS[0]):
            await w.wait_states(target, R)
        late = await w.supervisor._servers.spawn(None, "late", lambda _: None, None, "c")
        assert late.pid == w.supervisor.pid("c")
        await asyncio.sleep(0.3)
        os.kill(late.pid, signal.SIGTERM)
        for target in ("c", TASKS[0]):
            await w.wait_states(target, R, X, R)
        spec = connector_spec("late", SHARED).to_json()
        late.send({"run": "connector", "label": "late", "spec": spec, "entry_points": []})
        async with asyncio.timeout(10):
            assert str(await late.exited) == "the process exited with code 0"


async def test_each_member_logs_under_its_name(caplog):
    caplog.set_level(logging.INFO)
    async with Watched() as w:
        config = {"behaviour": "retriable", "where": "poll"}
        await start(w, _1=config)
        for task in TASKS:
            await w.wait_state(task, R)
        await wait_for(lambda: "[c-1] " in caplog.text, lambda: caplog.text)
    assert not [m for m in caplog.messages if m.startswith(("[c-0]", "[c-2]", "[c] ")) and "busy" in m]


async def test_members_cost_a_fraction_of_processes():
    async with Watched() as w:
        await start(w)
        await w.supervisor.start_task(task_spec("alone", {"idle": "1"}))
        for target in ("c", *TASKS, TaskId("alone", 0)):
            await w.wait_state(target, R)
        await asyncio.sleep(1)
        together = private_kib(w.supervisor.pid("c"))
        alone = private_kib(w.supervisor.pid(TaskId("alone", 0)))
        assert together < 2 * alone, f"{together} KiB for four, {alone} KiB for one"


async def test_the_end_of_the_supervisor_ends_the_process():
    async with Watched() as w:
        await start(w)
        for target in ("c", *TASKS):
            await w.wait_state(target, R)
        pid = w.supervisor.pid("c")
    assert not alive(pid)


def test_the_key_is_of_worker_and_connector():
    assert not Limits.of({}, {}).shared
    assert Limits.of({"task.processes": "connector"}, {}).shared
    assert not Limits.of({"task.processes": "connector"}, {"task.processes": "task"}).shared
    with pytest.raises(ConfigError, match=r"task\.processes"):
        Limits.of({}, {"task.processes": "thread"})


def test_a_worker_with_a_thousand_of_them_goes_on():
    """The descriptors of one more are beyond 1,023 then, which select() does not take."""
    lives = """
import fcntl, resource, socket
from klamm.connect.child.shared import Host
resource.setrlimit(resource.RLIMIT_NOFILE, (3000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
ours, door = socket.socketpair()
door = socket.socket(fileno=fcntl.fcntl(door.detach(), fcntl.F_DUPFD, 2000))
ours.close()
raise SystemExit(Host(door).run())
"""
    done = subprocess.run(
        [sys.executable, "-c", lives], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
