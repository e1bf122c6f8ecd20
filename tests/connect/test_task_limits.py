"""The supervisor and a task that hangs, crashes or takes too much memory: its actions, and the task's status."""

import asyncio
import os
import signal
import sys

import pytest
from support.runtime import Watched, install_plugins, task_spec, wait_for

from klamm.connect.children.usage import size_text, usage_of
from klamm.connect.model import State, TaskId
from klamm.connect.settings.limits import Limits
from klamm_base.errors import ConfigError

R, X, F = State.RUNNING, State.RESTARTING, State.FAILED
TASK = TaskId("c", 0)


@pytest.fixture(autouse=True)
def _plugins(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", install_plugins(tmp_path / "site"))


@pytest.mark.usefixtures("processes")
async def test_what_ended_a_task_is_in_its_status(tmp_path, caplog):
    """All at once, because each takes its seconds."""
    caplog.set_level("INFO")
    limit = 120 << 20
    cases = {
        # It holds the interpreter, so nothing of Python can answer.
        # It has longer than it takes to start: that is silent, too.
        "hung": {"behaviour": "spin", "task.heartbeat.timeout.ms": "5000"},
        "crashed": {"behaviour": "crash"},
        "grown": {"behaviour": "grow", "grow.mb": "160", "task.memory.max.bytes": str(limit)},
        "greedy": {"behaviour": "grow", "grow.mb": "6000", "task.memory.max.bytes": str(100 << 20)},
    }
    async with Watched() as w:
        for name, config in cases.items():
            once = {"where": "poll", "once": str(tmp_path / name), "idle": "1"}
            await w.supervisor.start_task(task_spec(name, config | once))
        for name in cases:
            await w.wait_states(TaskId(name, 0), R, X, R)
        usage = await wait_for(lambda: w.supervisor.usage(TaskId("grown", 0)), lambda: "no usage")
        assert 0 < usage.memory_bytes < limit
        shown = {e.connector: e for e in w.events if e.state is X}
    trace = {name: event.trace for name, event in shown.items()}
    assert trace["hung"].startswith("No sign of life for 5 s (task.heartbeat.timeout.ms)")
    assert "in misbehave" in trace["hung"]
    assert "in _serve" in trace["hung"], "the control thread, too"
    assert "in misbehave" in caplog.text
    assert trace["crashed"].startswith("The process was killed by SIGSEGV\n")
    assert "Fatal Python error: Segmentation fault" in trace["crashed"]
    assert "in misbehave" in trace["crashed"]
    assert "of memory are more than task.memory.max.bytes=125829120 (120 MiB) allows" in trace["grown"]
    assert trace["greedy"].startswith("MemoryError")
    errors = {name: event.restart.error for name, event in shown.items()}
    assert errors == {"hung": "hang", "crashed": "crash", "grown": "memory", "greedy": "memory"}


@pytest.mark.usefixtures("processes")
async def test_sigquit_writes_the_stacks_and_the_task_goes_on(caplog):
    caplog.set_level("INFO")
    async with Watched() as w:
        await w.supervisor.start_task(task_spec("c", {"idle": "true"}))
        await w.wait_state(TASK, R)
        os.kill(w.supervisor.pid(TASK), signal.SIGQUIT)
        await wait_for(lambda: "in poll" in caplog.text, lambda: caplog.text)
        before = w.supervisor.progress(TASK)
        await wait_for(lambda: w.supervisor.progress(TASK) is not before, lambda: "no progress")
        assert w.states(TASK) == [R]


@pytest.mark.usefixtures("processes")
async def test_what_the_restart_policy_decides_can_be_seen():
    async with Watched() as w:
        fails = {"behaviour": "connect", "where": "poll"}
        await w.supervisor.start_task(task_spec("never", fails | {"task.restart.max": "0"}))
        await w.supervisor.start_task(task_spec("c", fails))
        await w.wait_states(TaskId("never", 0), R, F)
        await w.wait_state(TASK, F)
        notes = [e.restart for e in w.events if e.state in {X, F} and e.connector == "c"]
        assert [(n.attempt, n.left) for n in notes] == [(1, 2), (2, 1), (3, 0), (0, 0)]
        assert all(n.error == "connect" and n.budget == 3 for n in notes)
        assert all(n.next_try_ms >= n.failed_ms for n in notes[:3])
        assert (notes[3].next_try_ms, notes[3].why) == (None, "task.restart.max=3 within 3600 s is used up")
        assert w.supervisor.restarts(TASK) == notes[3]


def test_limits_are_the_connectors_before_the_workers():
    worker, connector = {"task.memory.max.bytes": "5"}, {"task.memory.max.bytes": "7"}
    assert Limits.of(worker, {}).memory_bytes == 5
    assert Limits.of(worker, connector).memory_bytes == 7
    assert Limits.of({}, {}) == Limits(heartbeat_ms=300_000)
    assert Limits.of({"task.restart.max": "2"}, {}).policy is None, "the worker's own"
    policy = Limits.of({"task.restart.max": "2"}, {"task.restart.backoff.ms": "7"}).policy
    assert (policy.max_restarts, policy.backoff_ms) == (2, 7)
    with pytest.raises(ConfigError, match=r"task\.memory\.max\.bytes"):
        Limits.of({}, {"task.memory.max.bytes": "-1"})


def test_a_sink_may_take_as_long_as_its_consumer_may():
    """A `put` may take max.poll.interval.ms, as with Kafka."""
    connector, worker = (
        {"consumer.override.max.poll.interval.ms": "900000"},
        {"consumer.max.poll.interval.ms": "800000"},
    )
    assert Limits.of({}, connector).heartbeat_ms == 900_000
    assert Limits.of(worker, {}).heartbeat_ms == 800_000
    assert Limits.of(worker, connector).heartbeat_ms == 900_000
    assert Limits.of({"task.heartbeat.timeout.ms": "1000"}, connector).heartbeat_ms == 1_000
    assert Limits.of({}, {"consumer.override.max.poll.interval.ms": "6000"}).heartbeat_ms == 300_000
    assert Limits.of({}, {"consumer.override.max.poll.interval.ms": "${file:/x:y}"}).heartbeat_ms == 300_000


@pytest.mark.usefixtures("processes")
async def test_a_worker_that_was_stopped_itself_takes_nobody_for_hung():
    """A container that was frozen, a machine that was paused: its tasks could not speak, nor be heard."""
    async with Watched() as w:
        await w.supervisor.start_task(task_spec("c", {"behaviour": "sleep", "where": "poll"}))
        await w.wait_states(TASK, R)
        w.skew_ms = 3_600_000
        w.supervisor._look()
        w.supervisor._look()
        supervised = w.supervisor._supervised[TASK]
        assert supervised._ending is None
        w.skew_ms += 1_900  # a watch that is only a little late
        supervised.watch(w.supervisor._clock() + 300_000)
        assert supervised._ending is not None, "from then on it counts"


@pytest.mark.usefixtures("processes")
async def test_usage_is_of_a_process_that_is_there():
    mine = usage_of(os.getpid())
    assert mine.cpu_s > 0
    assert mine.memory_bytes > 1 << 20
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await process.wait()
    assert usage_of(process.pid) is None
    assert [size_text(n) for n in (12, 1536, 200 << 20)] == ["12 bytes", "1.5 KiB", "200 MiB"]
