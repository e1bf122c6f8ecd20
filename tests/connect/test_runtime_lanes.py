"""The worker's engine with children in the test's hand: who waits for whom, and what follows a write that failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.hand_children import make
from support.runtime import NO_BROKER, install_plugins, task_spec, wait_for

from klamm.connect.herding import herder as do
from klamm.connect.herding.group_adapter import SoleMember
from klamm.connect.model import State, TaskId
from klamm.connect.topics.config_topic import connector_record, delete_records
from klamm.connect.topics.kafka_log import LogError
from klamm.connect.worker import make_supervisor


async def test_tasks_of_a_connector_start_when_all_that_were_stopped_have_ended() -> None:
    runtime, children = make(NO_BROKER)
    let_go = children.slow[TaskId("a", 1)] = asyncio.Event()
    new = task_spec("a", {})
    runtime.perform([do.StopTask(TaskId("a", 1)), do.StopTask(TaskId("a", 0)), do.StartTask(new)])
    runtime.perform([do.StopTask(TaskId("b", 0)), do.StartTask(task_spec("b", {}))])
    await runtime.settled("b")
    # The quick one's tasks run; of the slow one's nothing starts, also not what is asked for later.
    runtime.perform([do.StartTask(task_spec("a", {}, number=2))])
    await wait_for(lambda: "stop a-0" in children.log, lambda: str(children.log), 60)
    assert children.log == ["stop a-0", "stop b-0", "start b-0"]
    let_go.set()
    await runtime.settled("a")
    assert children.log[3] == "stop a-1"
    assert sorted(children.log[4:]) == ["start a-0", "start a-2"]
    assert not runtime.lanes.stopping
    await runtime.producer.close()


async def test_half_a_deletion_is_told_and_the_connector_gets_its_tasks_back(bootstrap: str) -> None:
    runtime, children = make(bootstrap)
    await runtime.start()
    sole = runtime.cluster.group = SoleMember(runtime.group_adapter)
    await sole.start()
    config = {"connector.class": "Src", "tasks.max": "2"}
    await runtime.write_config([connector_record("a", config)])

    def runs(count: int) -> Callable[[], bool]:
        return lambda: len(children.tasks) == count

    await wait_for(runs(2), lambda: str(children.log), 60)
    send = runtime.producer.send

    def broken(topic: str, key: str, value: bytes | None) -> asyncio.Future[None]:
        if value is not None:
            return send(topic, key, value)
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(LogError("the broker is away"))
        return failed

    runtime.producer.send = broken  # type: ignore[method-assign]
    with pytest.raises(LogError, match="the broker is away"):
        await runtime.write_config(delete_records("a"))
    runtime.producer.send = send  # type: ignore[method-assign]
    await wait_for(lambda: children.log.count("stop a-0"), lambda: str(children.log), 60)
    await wait_for(runs(2), lambda: str(children.log), 60)
    assert len(runtime.configs.tasks("a")) == 2
    await runtime.write_config(delete_records("a"))
    await runtime.settled("a")
    assert children.tasks == {}
    await runtime.stop()


@pytest.mark.usefixtures("processes")
async def test_a_stopping_worker_waits_for_its_tasks_as_long_as_it_is_configured_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYTHONPATH", install_plugins(tmp_path / "site"))
    runtime, children = make(NO_BROKER, **{"task.shutdown.graceful.timeout.ms": "300"})
    said: list[State] = []
    callbacks = replace(children.callbacks, on_event=lambda event: said.append(event.state))
    supervisor = make_supervisor(runtime.config, callbacks)
    await supervisor.start()
    await supervisor.start_task(task_spec("a", {"behaviour": "spin", "where": "poll"}))
    await wait_for(lambda: State.RUNNING in said, lambda: str(said), 60)
    before = time.monotonic()
    await supervisor.stop()
    assert time.monotonic() - before >= 0.3
    assert "did not stop within 0.3 s, killing it" in caplog.text
    await runtime.producer.close()
