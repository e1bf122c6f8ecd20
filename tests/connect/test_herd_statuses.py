"""Statuses tell of whoever runs a task now, also when a worker that slept through its end speaks up late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.hand_children import HandChildren, make
from support.hand_group import HandGroup
from support.runtime import wait_for

from klamm.connect.herding.assignment import Assignment, everything
from klamm.connect.model import State, StateEvent, TaskId
from klamm.connect.runtime import Runtime
from klamm.connect.service.connectors import ConnectService
from klamm.connect.topics.config_topic import Status, connector_record, status_record, task_records

A0, A1 = TaskId("a", 0), TaskId("a", 1)


@pytest.fixture
async def worker(bootstrap: str) -> AsyncIterator[tuple[Runtime, HandChildren, HandGroup]]:
    """Connector `a` with two tasks that run here, in generation 5."""
    runtime, children = make(bootstrap)
    group = HandGroup()
    runtime.cluster.group = group
    await runtime.start()
    await runtime.write_config([connector_record("a", {"connector.class": "Src", "tasks.max": "2"})])
    await runtime.write_config(task_records("a", [{"n": "0"}, {"n": "1"}]))
    group.owners = dict.fromkeys(["a", A0, A1], "http://me")
    runtime.assign(everything(runtime.configs), 5)
    for i in range(2):
        runtime.on_event(StateEvent(connector="a", task=i, state=State.RUNNING))
    await wait_for(lambda: settled(runtime), lambda: str(runtime.statuses.get(A0)))
    yield runtime, children, group
    await runtime.stop()


def settled(runtime: Runtime) -> bool:
    return not runtime.status_board.writer.waiting and not runtime.statuses.unread


def shown(runtime: Runtime, target: str | TaskId) -> tuple[str, State, int] | None:
    found = runtime.statuses.get(target)
    return found and (found.worker_id, found.state, found.generation)


def hear(runtime: Runtime, target: str | TaskId, state: State, *, worker: str, generation: int) -> None:
    """Puts a record of another worker into the status topic."""
    status = Status(state=state, worker_id=worker, generation=generation)
    runtime.status_board.read(*status_record(target, status), 0)


async def test_herd_a_zombies_word_is_corrected_by_the_owner(
    worker: tuple[Runtime, HandChildren, HandGroup],
) -> None:
    runtime, _, _ = worker
    for target in ("a", A0):
        hear(runtime, target, State.RESTARTING, worker="zombie:1", generation=4)
        assert shown(runtime, target) == ("w:1", State.RUNNING, 5)
    assert len(runtime.status_board.writer.waiting) == 2, "and the topic gets it"
    await wait_for(lambda: settled(runtime), lambda: str(runtime.status_board.writer.waiting))
    assert shown(runtime, A0) == ("w:1", State.RUNNING, 5)


async def test_herd_a_later_owners_word_stands(worker: tuple[Runtime, HandChildren, HandGroup]) -> None:
    runtime, _, _ = worker
    hear(runtime, A0, State.RUNNING, worker="next:1", generation=6)
    runtime.on_event(StateEvent(connector="a", task=0, state=State.FAILED, trace="fenced"))
    assert shown(runtime, A0) == ("next:1", State.RUNNING, 6)
    assert not runtime.status_board.writer.waiting


async def test_herd_what_does_not_run_here_is_not_corrected(
    worker: tuple[Runtime, HandChildren, HandGroup],
) -> None:
    runtime, _, _ = worker
    await runtime.revoke(["a"], [A0])
    assert shown(runtime, A0) == ("w:1", State.UNASSIGNED, 5)
    await wait_for(lambda: settled(runtime), lambda: str(runtime.status_board.writer.waiting))
    hear(runtime, A0, State.RUNNING, worker="old:1", generation=4)
    assert shown(runtime, A0) == ("old:1", State.RUNNING, 4)


async def test_herd_a_worker_that_slept_says_nothing(
    worker: tuple[Runtime, HandChildren, HandGroup],
) -> None:
    """Its processes tell it of their ends before the group does."""
    runtime, children, group = worker
    group.alive = False
    runtime.on_event(StateEvent(connector="a", task=0, state=State.RESTARTING, trace="fenced"))
    assert shown(runtime, A0) == ("w:1", State.RUNNING, 5)
    assert not runtime.status_board.writer.waiting
    runtime.drop_topics("a")
    await runtime.lose()
    assert not children.tasks
    assert not runtime.status_board.writer.waiting


async def test_herd_what_was_said_before_the_sleep_is_not_sent_after_it(
    worker: tuple[Runtime, HandChildren, HandGroup],
) -> None:
    runtime, _, group = worker
    runtime.on_event(StateEvent(connector="a", task=0, state=State.RESTARTING, trace="why"))
    group.alive = False
    assert runtime.status_board.writer.waiting
    await asyncio.sleep(0.3)  # nothing is sent meanwhile
    assert runtime.status_board.writer.waiting, "it waits for the group's word"
    await runtime.lose()
    group.alive = True
    hear(runtime, A0, State.RUNNING, worker="next:1", generation=6)
    await asyncio.sleep(0.3)  # nor afterwards
    assert shown(runtime, A0) == ("next:1", State.RUNNING, 6)


async def test_herd_the_leader_shows_what_nobody_runs(
    worker: tuple[Runtime, HandChildren, HandGroup],
) -> None:
    runtime, _, group = worker
    await runtime.revoke([], [A1])
    hear(runtime, A1, State.RUNNING, worker="gone:1", generation=5)
    await wait_for(lambda: settled(runtime), lambda: str(runtime.status_board.writer.waiting))
    hear(runtime, A1, State.RUNNING, worker="gone:1", generation=5)
    del group.owners[A1]
    runtime.assign(Assignment(connectors=frozenset({"a"}), tasks=frozenset({A0})), 6)
    assert shown(runtime, A1) == ("w:1", State.UNASSIGNED, 6)


async def test_herd_a_worker_that_has_lost_its_place_does_not_say_that_anything_runs_there(
    worker: tuple[Runtime, HandChildren, HandGroup],
) -> None:
    """Nobody could be told that it has killed everything."""
    runtime, _, _ = worker
    service = ConnectService(runtime)
    hear(runtime, A1, State.RUNNING, worker="other:1", generation=6)
    assert "note" not in await service.status("a")
    await runtime.lose()
    status = await service.status("a")
    assert "lost contact with its group" in status["note"]
    assert [(t["worker_id"], t["state"]) for t in status["tasks"]] == [
        ("w:1", "UNASSIGNED"),
        ("other:1", "RUNNING"),
    ]
    assert (await service.task_status(A0))["state"] == "UNASSIGNED"
    runtime.assign(Assignment(connectors=frozenset({"a"}), tasks=frozenset({A0})), 7)
    assert "note" not in await service.status("a")
