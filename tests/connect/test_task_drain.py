"""A task that is asked to stop, by its worker or by SIGTERM to its process, leaves nothing half done."""

import os
import signal

import pytest
from support.broker import broker, new_name, new_topic  # noqa: F401
from support.runtime import Watched, install_plugins, task_spec, wait_for, worker_props
from support.runtime_broker import fill, read_all, reader, sink_lines

from klamm.connect.model import Kind, State, TaskId

R, X = State.RUNNING, State.RESTARTING


@pytest.fixture(autouse=True)
def _plugins(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", install_plugins(tmp_path / "site"))


def records(w, task):
    progress = w.supervisor.progress(task)
    return progress.records if progress else 0


async def end(w, task, how):
    """Stop it in the middle of its work, and have it run again."""
    if how == "SIGTERM":
        os.kill(w.supervisor.pid(task), signal.SIGTERM)
        await w.wait_states(task, R, X, R)
        assert "asked to stop (SIGTERM)" in next(e for e in w.events if e.state is X).trace
    else:
        await w.supervisor.restart(task)


@pytest.mark.parametrize("how", ["SIGTERM", "stop"])
async def test_a_source_sends_nothing_twice(broker, how):  # noqa: F811
    topic, name = new_topic(broker), new_name("src")
    # Offsets would be committed every minute only: what counts is the commit at the end.
    worker = worker_props(broker.bootstrap, **{"offset.flush.interval.ms": "60000"})
    config = {"topic": topic, "limit": "400", "batch": "10", "pace.s": "0.01"}
    task = TaskId(name, 0)
    async with Watched() as w:
        w.offsets = reader(broker.bootstrap, "connect-offsets")
        await w.supervisor.start_task(task_spec(name, config, worker=worker))
        await wait_for(lambda: records(w, task) > 50, lambda: f"{w.events}", 60)
        await end(w, task, how)
        await wait_for(lambda: len(read_all(broker.bootstrap, topic)) >= 400, lambda: f"{w.progress}", 60)
        await w.supervisor.stop_task(task)
    assert [int(m.value()) for m in read_all(broker.bootstrap, topic)] == list(range(400))


@pytest.mark.parametrize("how", ["SIGTERM", "stop"])
async def test_a_sink_takes_nothing_twice(broker, tmp_path, how):  # noqa: F811
    topic, name, out = new_topic(broker), new_name("snk"), tmp_path / "out"
    fill(broker.bootstrap, topic, [b"%d" % n for n in range(5_000)])
    worker = worker_props(broker.bootstrap, **{"offset.flush.interval.ms": "60000"})
    config = {"topics": topic, "file": str(out), "consumer.override.max.poll.records": "50"}
    task = TaskId(name, 0)
    async with Watched() as w:
        await w.supervisor.start_task(task_spec(name, config, kind=Kind.SINK, worker=worker))
        await wait_for(lambda: records(w, task), lambda: f"{w.events}", 60)
        await end(w, task, how)
        # The file is flushed with the commit, which is at the end.
        await wait_for(lambda: (p := w.supervisor.progress(task)) and p.lag == 0, lambda: f"{w.progress}", 60)
        await w.supervisor.stop_task(task)
    assert [int(v) for *_, v in sink_lines(out)] == list(range(5_000))
