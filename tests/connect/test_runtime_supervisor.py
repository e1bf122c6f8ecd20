"""The supervisor with real processes: states, restarts, one-shot calls, pauses. No broker is needed."""

import asyncio
import itertools
import logging
import os
import signal
import subprocess
import sys
import time

import pytest
from support.runtime import (
    QUICK,
    SINK,
    SOURCE,
    Watched,
    alive,
    connector_spec,
    install_plugins,
    private_kib,
    task_spec,
    wait_for,
)

from klamm.connect.broker_outages import BrokerOutages
from klamm.connect.children.channel import AsyncChannel, encode
from klamm.connect.children.supervisor import PluginCallError, Supervisor
from klamm.connect.children.usage import usage_of
from klamm.connect.model import Kind, State, TaskId
from klamm.connect.settings.restart_policy import RestartPolicy

pytestmark = pytest.mark.usefixtures("processes")

TASK = TaskId("c", 0)
R, X, F = State.RUNNING, State.RESTARTING, State.FAILED


@pytest.fixture(autouse=True)
def plugin_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", install_plugins(tmp_path / "site"))


async def test_a_task_runs_and_stops(caplog):
    async with Watched(graceful_s=60) as w:
        await w.supervisor.start_task(task_spec("c", {"idle": "1"}))
        await w.wait_states(TASK, R)
        assert w.last(TASK).version == "7.8"
        pid = w.supervisor.pid(TASK)
        await wait_for(lambda: w.supervisor.progress(TASK), lambda: "no progress report")
        await w.supervisor.stop_task(TASK)
        assert "did not stop within" not in caplog.text
        assert not alive(pid)
        assert w.states(TASK) == [R, State.UNASSIGNED]
        assert w.supervisor.progress(TASK) is None


FAILURES = [
    ("data", "poll", [R, F], "DataError: line 7 is no number"),
    ("config", "start", [F], "ConfigError: Invalid value x for configuration y: no"),
    ("connect", "start", [X, F], "ConnectError: cannot log in with [hidden]"),
    ("unknown", "poll", [R, X, R, X, R, X, R, F], "ZeroDivisionError: division by zero"),
    ("sysexit", "start", [X, F], "SystemExit: 3"),
    ("crash", "poll", [R, X, R, X, R, X, R, F], "SIGSEGV"),
    ("exit", "start", [X, F], "exited with code 9"),
]


async def test_failures_show_their_trace_and_are_restarted_by_class():
    async with Watched() as w:
        for behaviour, where, _, _ in FAILURES:
            # What one task keeps secret must not be what hides another's.
            secret = {"db.password": f"hunter22-{behaviour}"}
            config = {"behaviour": behaviour, "where": where, "idle": "1"} | secret
            await w.supervisor.start_task(task_spec(behaviour, config))
        for behaviour, _, states, said in FAILURES:
            task = TaskId(behaviour, 0)
            await w.wait_states(task, *states)
            assert said in w.last(task).trace
            attempts = [e.attempt for e in w.events if e.state is X and e.connector == behaviour]
            assert attempts == list(range(1, 4))[: len(attempts)]
            assert w.supervisor.pid(task) is None
        assert "hunter22" not in str(w.events)


async def test_restart_gives_a_failed_task_a_full_budget(tmp_path):
    once = tmp_path / "once"
    async with Watched(RestartPolicy(max_restarts=0)) as w:
        await w.supervisor.start_task(
            task_spec("c", {"behaviour": "unknown", "where": "start", "once": str(once), "idle": "1"})
        )
        await w.wait_state(TASK, F)
        await w.supervisor.restart(TASK)
        await w.wait_state(TASK, R)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_task_is_restarted_and_shows_it(number):
    async with Watched() as w:
        await w.supervisor.start_task(task_spec("c", {"idle": "1"}))
        await w.wait_states(TASK, R)
        pid = w.supervisor.pid(TASK)
        os.kill(pid, number)
        await w.wait_states(TASK, R, X, R)
        (shown,) = [e for e in w.events if e.state is X]
        assert shown.attempt == 1
        assert number.name in shown.trace
        assert w.supervisor.pid(TASK) != pid


@pytest.mark.parametrize("behaviour", ["sleep", "spin", "close"])
async def test_a_hung_task_is_seen_killed_and_restarted(behaviour, tmp_path):
    async with Watched() as w:
        config = {
            "behaviour": behaviour, "where": "poll", "idle": "1",
            "task.heartbeat.timeout.ms": "5000", "once": str(tmp_path / "once"),
        }  # fmt: skip
        await w.supervisor.start_task(task_spec("c", config))
        await w.wait_states(TASK, R, X, R)
        (shown,) = [e for e in w.events if e.state is X]
        if behaviour != "close":  # which ends by whichever notices first
            assert "No sign of life for 5 s (task.heartbeat.timeout.ms)" in shown.trace
        if behaviour == "sleep":
            assert "while waiting for input" in shown.trace


async def test_a_task_that_does_not_stop_is_killed():
    async with Watched(graceful_s=0.5) as w:
        await w.supervisor.start_task(task_spec("c", {"behaviour": "spin", "where": "poll"}))
        await w.wait_states(TASK, R)
        pid = w.supervisor.pid(TASK)
        await w.supervisor.stop_task(TASK)
        assert not alive(pid)


async def test_what_a_plugin_started_dies_with_it(tmp_path):
    pid_file = tmp_path / "pid"
    async with Watched() as w:
        config = {"behaviour": "grandchild", "where": "start", "pid.file": str(pid_file), "idle": "1"}
        await w.supervisor.start_task(task_spec("c", config))
        await w.wait_states(TASK, R)
        grandchild = int(pid_file.read_text())
        assert alive(grandchild)
        os.kill(w.supervisor.pid(TASK), signal.SIGKILL)
        await wait_for(lambda: not alive(grandchild), lambda: "the grandchild lives on")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize("own_group", ["", "1"])
async def test_what_a_plugin_started_dies_with_the_fork_server(tmp_path, own_group):
    pid_file = tmp_path / "pid"
    async with Watched() as w:
        config = {
            "behaviour": "grandchild", "where": "start", "pid.file": str(pid_file), "idle": "1",
            "own.group": own_group, "once": str(tmp_path / "once"),
        }  # fmt: skip
        await w.supervisor.start_task(task_spec("c", config))
        await w.wait_states(TASK, R)
        grandchild = int(pid_file.read_text())
        bystander = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
        )
        try:
            os.kill(w.supervisor.fork_server_pid, signal.SIGKILL)
            await w.wait_states(TASK, R, X, R)
            await wait_for(lambda: not alive(grandchild), lambda: "the grandchild lives on")
            assert bystander.poll() is None
        finally:
            bystander.kill()
            bystander.wait()


async def test_when_the_fork_server_is_killed_its_tasks_end_and_come_back():
    async with Watched(graceful_s=0.5) as w:
        for n in range(3):
            await w.supervisor.start_task(task_spec("c", {"idle": "1"}, number=n))
            await w.wait_states(TaskId("c", n), R)
        await w.supervisor.start_task(task_spec("spin", {"behaviour": "spin", "where": "poll"}))
        await w.wait_states(TaskId("spin", 0), R)
        tasks = [*(TaskId("c", n) for n in range(3)), TaskId("spin", 0)]
        pids = [w.supervisor.pid(t) for t in tasks]
        server = w.supervisor.fork_server_pid
        os.kill(server, signal.SIGKILL)
        # The kernel ends them: nobody has to be quick for that.
        await wait_for(lambda: not any(map(alive, pids)), lambda: f"alive: {pids}")
        for task in tasks:
            await w.wait_states(task, R, X, R)
        assert w.supervisor.fork_server_pid != server
        await w.supervisor.stop_task(TaskId("spin", 0))


async def test_pause_and_resume_and_a_paused_start():
    async with Watched() as w:
        await w.supervisor.start_task(task_spec("c", {"idle": "1"}, paused=True))
        await w.wait_states(TASK, State.PAUSED)
        await w.supervisor.set_paused(TASK, False)
        await w.wait_states(TASK, State.PAUSED, R)
        await w.supervisor.set_paused(TASK, True)
        await w.wait_states(TASK, State.PAUSED, R, State.PAUSED)
        await wait_for(
            lambda: (p := w.supervisor.progress(TASK)) and p.waiting_for == "paused", lambda: str(w.progress)
        )


async def test_a_connector_answers_for_its_tasks_and_may_ask_for_reconfiguration(tmp_path):
    stopped = tmp_path / "stopped"
    async with Watched() as w:
        await w.supervisor.start_connector(
            connector_spec("c", {"reconfigure": "1", "stopped.file": str(stopped)})
        )
        configs = await w.supervisor.task_configs("c", 2)
        assert [c["task"] for c in configs] == ["0", "1"]
        assert w.changed == ["c"]
        await w.supervisor.set_paused("c", True)
        await w.wait_states("c", R, State.PAUSED)
        assert stopped.exists(), "a paused connector is stopped, as in Kafka"
        await w.supervisor.set_paused("c", False)
        await w.wait_states("c", R, State.PAUSED, R)
        assert len(await w.supervisor.task_configs("c", 3)) == 3
        await w.supervisor.stop_connector("c")
        with pytest.raises(PluginCallError, match="Connector c is not running here"):
            await w.supervisor.task_configs("c", 1)


async def test_a_connector_that_cannot_say_its_task_configs_says_why():
    cases = {
        "connect": ("task_configs", "cannot log in with"),
        "config": ("connector.start", "Invalid value x for configuration y"),
        "exit": ("task_configs", "exit: the process exited with code 9"),
    }
    async with Watched() as w:
        for behaviour, (where, _) in cases.items():
            config = {"behaviour": behaviour, "where": where}
            await w.supervisor.start_connector(connector_spec(behaviour, config))
        for behaviour, (_, said) in cases.items():
            with pytest.raises(PluginCallError, match=said):
                await w.supervisor.task_configs(behaviour, 1)


async def test_a_call_whose_fork_server_ends_is_made_again(tmp_path):
    once = tmp_path / "once"
    config = {
        "connector.class": SOURCE,
        "behaviour": "sleep",
        "where": "validate",
        "once": str(once),
        "limit": "1",
    }
    async with Watched() as w:
        asked = asyncio.create_task(w.supervisor.call("validate", {"config": config, "worker": {}}))
        await wait_for(once.exists, lambda: "it does not validate")
        os.kill(w.supervisor.fork_server_pid, signal.SIGKILL)
        assert (await asked)["name"] == SOURCE


async def test_one_shot_calls():
    async with Watched() as w:
        plugins = (await w.supervisor.call("list_plugins", {}))["plugins"]
        assert [SOURCE, "source", "7.8"] in [row[:3] for row in plugins]
        assert [SINK, "sink", "7.8"] in [row[:3] for row in plugins]
        keys = await w.supervisor.call("plugin_config", {"plugin": SOURCE})
        assert [(k["name"], k["type"], k["required"]) for k in keys] == [
            ("topic", "STRING", True), ("db.password", "PASSWORD", False), ("limit", "INT", False),
        ]  # fmt: skip
        answer = await w.supervisor.call(
            "validate",
            {"config": {"connector.class": SOURCE, "limit": "x", "db.password": "p"}, "worker": {}},
        )
        assert (answer["name"], answer["kind"], answer["version"]) == (SOURCE, "source", "7.8")
        values = {row["value"]["name"]: row["value"] for row in answer["values"]}
        assert values["limit"]["errors"] == [
            "Invalid value x for configuration limit: Not a number of type INT"
        ]
        assert values["topic"]["errors"] == [
            'Missing required configuration "topic" which has no default value.'
        ]
        assert values["db.password"]["value"] == "[hidden]"
        config = {"connector.class": SOURCE}
        assert await w.supervisor.call(
            "alter_offsets", {"config": config, "offsets": [[{"task": "0"}, {"n": 1}]]}
        )
        with pytest.raises(PluginCallError, match="n must be a number"):
            await w.supervisor.call(
                "alter_offsets", {"config": config, "offsets": [[{"task": "0"}, {"n": "x"}]]}
            )


async def test_a_plugin_that_does_not_answer_is_an_error_never_a_hang():
    cases = {
        "sleep": (1, "timeout", "The plugin did not answer validate within 1 s"),
        "spin": (1, "timeout", "The plugin did not answer validate within 1 s"),
        "crash": (30, "exit", "The plugin did not answer validate: the process was killed by SIGSEGV"),
        "exit": (30, "exit", "The plugin did not answer validate: the process exited with code 9"),
        "unknown": (30, "unknown", "division by zero"),
        "data": (30, "data", "line 7 is no number"),
    }
    async with Watched() as w:

        async def ask(behaviour, timeout_s, kind, said):
            config = {"connector.class": SOURCE, "behaviour": behaviour, "where": "validate"}
            with pytest.raises(PluginCallError, match=said) as e:
                await w.supervisor.call("validate", {"config": config, "worker": {}}, timeout_s=timeout_s)
            assert e.value.kind == kind
            # And the worker goes on.
            assert (await w.supervisor.call("list_plugins", {}))["plugins"]

        hang = [ask(name, *cases[name]) for name in ("sleep", "spin")]
        await asyncio.gather(*hang)
        for name in ("crash", "exit", "unknown", "data"):
            await ask(name, *cases[name])


async def test_an_unknown_class_is_a_permanent_failure_in_kafkas_words():
    async with Watched() as w:
        spec = task_spec("c", {"connector.class": "Nope"})
        await w.supervisor.start_task(spec)
        await w.wait_states(TASK, F)
        assert (
            "Failed to find any class that implements Connector and which name matches Nope"
            in w.last(TASK).trace
        )


async def test_settings_that_cannot_be_used_fail_the_task_at_once_and_are_named():
    cases = [
        ({"transforms": "a"}, 'Missing required configuration "transforms.a.type"'),
        ({"value.converter": "Nope"}, "Class Nope could not be found"),
        ({"producer.override.linger.ms": "soon"}, "The client cannot be made of its settings: Invalid value"),
        ({"task.heartbeat.timeout.ms": "0"}, "task.heartbeat.timeout.ms: Value must be at least 1000"),
        ({"errors.tolerance": "some"}, "String must be one of: none, all"),
    ]
    async with Watched() as w:
        for n, (config, _) in enumerate(cases):
            await w.supervisor.start_task(task_spec(f"c{n}", config))
        for n, (_, said) in enumerate(cases):
            task = TaskId(f"c{n}", 0)
            await w.wait_states(task, F)
            assert said in w.last(task).trace


async def test_a_source_is_no_sink():
    async with Watched() as w:
        await w.supervisor.start_task(
            task_spec("c", {"connector.class": SOURCE, "topics": "t"}, kind=Kind.SINK)
        )
        await w.wait_states(TASK, F)
        assert "is not a sink connector" in w.last(TASK).trace


async def test_plugins_that_hang_in_validate_do_not_hold_up_others():
    async with Watched() as w:
        hung = {"connector.class": SOURCE, "behaviour": "sleep", "where": "validate"}
        ask = w.supervisor.call
        calls = [asyncio.create_task(ask("validate", {"config": hung}, timeout_s=200)) for _ in range(20)]
        await asyncio.sleep(0)
        listed = await ask("list_plugins", {}, timeout_s=60)
        assert SOURCE in {name for name, *_ in listed["plugins"]}
        answer = await ask("validate", {"config": {"connector.class": SINK}}, timeout_s=60)
        assert answer["kind"] == "sink"
        assert not any(call.done() for call in calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_what_a_task_prints_and_logs_is_in_the_workers_log(caplog, monkeypatch):
    monkeypatch.setattr(
        "klamm.connect.children.output.OUTAGES", BrokerOutages()
    )  # others have told of this broker
    caplog.set_level(logging.INFO, "klamm.connect.broker_outages")
    caplog.set_level(logging.INFO, "klamm.connect.children.output")
    async with Watched() as w:
        await w.supervisor.start_task(task_spec("c", {"behaviour": "print", "where": "start", "idle": "1"}))
        await w.wait_states(TASK, R)
        await wait_for(lambda: "[c-0] hello from the plugin" in caplog.text, lambda: caplog.text)
        await wait_for(lambda: "broker 127.0.0.1:1 cannot be reached" in caplog.text, lambda: caplog.text)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
async def test_an_idle_task_is_small_and_starts_at_once():
    async with Watched() as w:
        await w.supervisor.start_task(task_spec("warm", {"idle": "1"}))
        await w.wait_state(TaskId("warm", 0), R)
        await w.supervisor.start_task(task_spec("c", {"idle": "1"}))
        await w.wait_states(TASK, R)
        used = usage_of(w.supervisor.pid(TASK)).cpu_s
        await wait_for(lambda: w.supervisor.progress(TASK), lambda: "no report")
        assert private_kib(w.supervisor.pid(TASK)) < 20 << 10
        assert used < 0.5, "tens of milliseconds of a quiet machine, however busy this one is"


async def test_starts_stops_and_restarts_of_one_task_never_overlap():
    async with Watched() as w:
        spec = task_spec("c", {"idle": "1"})
        await w.supervisor.start_task(spec)
        await w.wait_states(TASK, R)
        await asyncio.gather(
            w.supervisor.restart(TASK),
            w.supervisor.start_task(spec),
            w.supervisor.restart(TASK),
            w.supervisor.stop_task(TASK),
        )
        assert w.supervisor.pid(TASK) is None
        assert w.states(TASK)[-1] is State.UNASSIGNED
        states = [e.state for e in w.events]
        assert states.count(State.UNASSIGNED) == 4, "each of the four ended one process"
        assert (R, R) not in itertools.pairwise(states), "one process after another"


async def test_a_listener_that_raises_ends_no_task(caplog):
    broken = Watched()
    broken.supervisor = Supervisor(
        on_event=lambda event: 1 / 0,
        on_progress=lambda task, progress: 1 / 0,
        on_task_configs_changed=lambda name: None,
        read_offsets=broken._read_offsets,
        policy=QUICK,
        clock=lambda: time.monotonic_ns() // 1_000_000,
    )
    async with broken:
        await broken.supervisor.start_task(task_spec("c", {"idle": "1"}))
        await wait_for(lambda: broken.supervisor.progress(TASK), lambda: caplog.text)
        assert broken.supervisor.pid(TASK) is not None
    assert "an event could not be recorded" in caplog.text


async def test_nothing_starts_once_the_supervisor_is_stopping():
    async with Watched() as w:
        await w.supervisor.stop()
        await w.supervisor.start_task(task_spec("c", {"idle": "1"}))
        assert w.supervisor.pid(TASK) is None
    assert w.events == []


async def test_many_starts_and_stops_at_once_leave_nothing_behind():
    async with Watched() as w:
        tasks = [TaskId("c", n) for n in range(8)]
        await asyncio.gather(
            *(w.supervisor.start_task(task_spec("c", {"idle": "1"}, number=t.task)) for t in tasks)
        )
        # Some are running, some are starting, some are stopped before they have a process.
        await w.wait_states(tasks[0], R)
        pids = [pid for t in tasks if (pid := w.supervisor.pid(t))]
        await asyncio.gather(*(w.supervisor.stop_task(t) for t in tasks))
        await wait_for(lambda: not any(map(alive, pids)), lambda: str(pids), 60)
    assert all(w.states(t)[-1] is State.UNASSIGNED for t in tasks)
    assert QUICK.max_restarts  # the policy was never needed
    assert not [e for e in w.events if e.state in {X, F}]


@pytest.mark.parametrize("said", ["pause", "stop"])
async def test_what_is_said_right_after_the_order_is_heard(said, monkeypatch, caplog):
    """The child may read both at once."""
    real, held = AsyncChannel.send, []

    def send(channel, message):
        held.append(message)
        if len(held) == 2:
            channel._transport.write(b"".join(map(encode, held)))
        elif len(held) > 2:
            real(channel, message)

    monkeypatch.setattr(AsyncChannel, "send", send)
    async with Watched(graceful_s=60) as w:
        await w.supervisor.start_task(task_spec("c", {"idle": "1"}))
        await wait_for(lambda: held, lambda: "no order")
        if said == "pause":
            await w.supervisor.set_paused(TASK, True)
            await w.wait_states(TASK, State.PAUSED)
        else:
            await w.supervisor.stop_task(TASK)
            assert "did not stop within" not in caplog.text


async def test_a_pause_while_a_process_is_being_started_counts():
    async with Watched() as w:
        servers = w.supervisor._servers
        real = servers.spawn

        async def spawn(*args):
            child = await real(*args)
            await w.supervisor.set_paused(TASK, True)
            return child

        servers.spawn = spawn
        await w.supervisor.start_task(task_spec("c", {"idle": "1"}))
        await w.wait_states(TASK, State.PAUSED)


async def test_a_reload_of_secrets_starts_nothing_after_the_session_was_lost():
    """Its task runs elsewhere by then."""
    async with Watched() as w:
        await w.supervisor.start_task(task_spec("c", {"idle": "1"}))
        await w.wait_states(TASK, R)
        placing, placed, real = asyncio.Event(), asyncio.Event(), w.supervisor._environment_of

        async def place(config, worker, *, strict=True):
            placing.set()
            await placed.wait()
            return await real(config, worker, strict=strict)

        w.supervisor._environment_of = place
        w.supervisor._on_expired(TASK)
        await asyncio.wait_for(placing.wait(), 60)
        await w.supervisor.kill_all()
        placed.set()
        await asyncio.sleep(0)
        assert not w.supervisor._reloads
        assert w.supervisor._supervised == {}


async def test_a_process_that_comes_after_the_end_was_decided_does_nothing():
    """Killed (its session was lost), or stopped in the moment in which the fork server answered."""
    async with Watched() as w:
        servers = w.supervisor._servers
        real = servers.spawn

        async def spawn(*args):
            child = await real(*args)
            w.supervisor._supervised[TASK].kill()
            return child

        servers.spawn = spawn
        await w.supervisor.start_task(task_spec("c", {"idle": "1"}))
        await asyncio.wait_for(asyncio.shield(w.supervisor._supervised[TASK]._task), 60)
        assert w.states(TASK) == []
