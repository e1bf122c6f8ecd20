"""Races between a rebalance, a config topic that cannot be read, writes under way and a leader that slept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from support.hand_children import HandChildren, make
from support.hand_group import HandGroup
from support.runtime import wait_for

from klamm.connect.errors import Conflict
from klamm.connect.group.assignor import Sharing
from klamm.connect.group.leader import Round, make_round
from klamm.connect.group.listener import ConfigView
from klamm.connect.group.protocol import ExtendedAssignment, ProtocolName, WorkerState, encode_metadata
from klamm.connect.herding.assignment import Assignment
from klamm.connect.model import State, TaskId
from klamm.connect.runtime import Runtime
from klamm.connect.service import offsets
from klamm.connect.service.offsets import ConnectorOffsets
from klamm.connect.topics.config_topic import TargetState, connector_record, target_state_record, task_records
from klamm.connect.topics.fenced_writer import Fenced, FencedWriter, leader_transactional_id
from klamm.connect.topics.kafka_log import LogError
from klamm.connect.topics.status_writer import StatusWriter

A0, A1 = TaskId("a", 0), TaskId("a", 1)
CONFIG = {"connector.class": "Src", "tasks.max": "2"}
TASKS = Assignment(tasks=frozenset({A0, A1}))  # the connector itself is elsewhere


async def a_worker(bootstrap: str, *tasks: str, **properties: str) -> tuple[Runtime, HandChildren, HandGroup]:
    """Connector `a` with these tasks, all of which run here."""
    runtime, children = make(bootstrap, **properties)
    group = runtime.cluster.group = HandGroup()
    await runtime.start()
    await runtime.write_config([connector_record("a", CONFIG)])
    await runtime.write_config(task_records("a", [{"n": n} for n in tasks]))
    await runtime.meet()
    runtime.assign(TASKS, 5)
    await wait_for(lambda: len(children.tasks) == len(tasks), lambda: str(children.log))
    return runtime, children, group


@pytest.fixture
async def worker(bootstrap: str) -> AsyncIterator[tuple[Runtime, HandChildren, HandGroup]]:
    made = await a_worker(bootstrap, "0", "1")
    yield made
    await made[0].stop()


async def elsewhere(runtime: Runtime, *tasks: str) -> None:
    """Lets another worker commit task configs."""
    for record in task_records("a", [{"n": n} for n in tasks]):
        await runtime.producer.send(runtime.config_log.topic, *record)


# The barrier


async def test_herd_what_is_read_after_the_meeting_waits_for_the_next(
    worker: tuple[Runtime, HandChildren, HandGroup],
) -> None:
    """The others have not stopped their old tasks yet: this worker's new ones may be at the same thing."""
    runtime, children, _ = worker
    assert await runtime.group_adapter.catch_up(-1)
    joined_with = runtime.config_log.consumed
    await elsewhere(runtime, "new", "1")  # while the group meets
    assert await runtime.group_adapter.catch_up(joined_with + 3)
    runtime.assign(TASKS, 6)
    await runtime.settled("a")
    assert children.log == ["start a-0", "start a-1", "stop a-0"]
    assert await runtime.group_adapter.catch_up(-1)
    runtime.assign(TASKS, 7)
    await runtime.settled("a")
    assert children.tasks[A0].task_config == {"n": "new"}


async def test_herd_tasks_that_wait_start_also_when_the_config_topic_could_not_be_read(
    worker: tuple[Runtime, HandChildren, HandGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, children, _ = worker
    await elsewhere(runtime, "new", "1")
    await wait_for(lambda: A0 not in children.tasks, lambda: str(children.log))

    async def broken(timeout_s: float = 1) -> None:
        raise LogError("the broker is away")

    monkeypatch.setattr(runtime.config_log, "read_to_end", broken)
    assert await runtime.group_adapter.catch_up(-1)
    runtime.assign(TASKS, 6)
    await runtime.settled("a")
    assert children.tasks[A0].task_config == {"n": "new"}


async def test_herd_a_worker_meets_when_all_that_it_has_read_of_has_stopped(
    worker: tuple[Runtime, HandChildren, HandGroup],
) -> None:
    runtime, children, _ = worker
    first, second = (children.slow.setdefault(task, asyncio.Event()) for task in (A0, A1))
    await elsewhere(runtime, "new", "1")
    await wait_for(lambda: runtime.lanes.stopping == 1, lambda: str(children.log))
    meeting = asyncio.create_task(runtime.group_adapter.catch_up(-1))
    await asyncio.sleep(0.3)  # the meeting waits already
    await elsewhere(runtime, "new", "newer")
    await wait_for(lambda: runtime.lanes.stopping == 2, lambda: str(children.log))
    first.set()
    await asyncio.sleep(0.2)  # time to go on without the second one
    assert not meeting.done(), "a-1 still runs"
    second.set()
    await meeting
    runtime.assign(TASKS, 6)
    await runtime.settled("a")
    assert [children.tasks[t].task_config["n"] for t in (A0, A1)] == ["new", "newer"]


# Statuses


class SlowWriter:
    """Acknowledges nothing until the test says how it went."""

    record_max = 1000

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None]] = []
        self.futures: list[asyncio.Future[None]] = []

    def send(self, topic: str, key: str, value: bytes | None) -> asyncio.Future[None]:
        self.sent.append((key, value))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    async def close(self) -> None:
        pass

    def fail(self) -> None:
        for each in self.futures:
            if not each.done():
                each.set_exception(LogError("no answer in 30 s"))


async def test_herd_a_status_whose_write_was_not_waited_for_to_its_end_is_written_again() -> None:
    slow = SlowWriter()
    writer = StatusWriter(slow, lambda: "status")
    writer.write(("k", b"1"))
    assert not await writer.flush(0.05)
    running = asyncio.create_task(writer.run())
    slow.fail()
    await wait_for(lambda: len(slow.sent) == 2, lambda: str(slow.sent))
    assert slow.sent[1] == ("k", b"1")
    running.cancel()


async def test_herd_a_status_of_a_place_that_is_lost_is_not_written_again() -> None:
    slow = SlowWriter()
    writer = StatusWriter(slow, lambda: "status")
    writer.write(("k", b"old"))
    assert not await writer.flush(0.05)
    writer.forget()
    slow.fail()
    await asyncio.sleep(0.05)
    assert not writer.waiting


async def test_herd_a_status_that_another_worker_takes_away_comes_back(
    worker: tuple[Runtime, HandChildren, HandGroup],
) -> None:
    """A leader that slept forgets statuses of tasks that were gone then."""
    runtime, _, group = worker
    await wait_for(lambda: not runtime.statuses.unread, lambda: str(runtime.status_board.writer.waiting))
    runtime.status_board.read("status-task-a-1", None, 0)
    assert runtime.statuses.get(A1) is not None
    await wait_for(lambda: not runtime.statuses.unread, lambda: str(runtime.status_board.writer.waiting))
    group.alive = False
    runtime.status_board.read("status-task-a-1", None, 0)
    assert runtime.statuses.get(A1) is None, "who slept itself does not know whose it is"


# Plugins


@pytest.mark.parametrize("known", [True, False])
async def test_herd_a_class_that_no_package_lists_is_looked_for_by_each_worker(
    worker: tuple[Runtime, HandChildren, HandGroup],
    known: bool,
) -> None:
    """Its Python path was validated by another worker, the leader."""
    runtime, children, _group = worker
    if known:
        children.paths.add("mine.Source")
    for record in [
        connector_record("b", {"connector.class": "mine.Source"}),
        *task_records("b", [{"n": "0"}]),
    ]:
        await runtime.producer.send(runtime.config_log.topic, *record)
    await wait_for(lambda: "b" in runtime.configs, lambda: str(runtime.configs.connectors))
    await runtime.meet()
    shown: list[State] = []
    put = runtime.status_board.put
    runtime.status_board.put = lambda said: (
        shown.append(said.state) if said.target == "b" else None,
        put(said),
    )[1]  # type: ignore[method-assign]
    b0 = TaskId("b", 0)
    runtime.assign(Assignment(connectors=frozenset({"b"}), tasks=frozenset({A0, A1, b0})), 6)
    if known:
        await wait_for(lambda: b0 in children.tasks, lambda: str(children.log))
        await runtime.settled("b")
        assert shown[-1] is State.RUNNING
        assert State.FAILED not in shown
    else:
        await wait_for(lambda: State.FAILED in shown, lambda: str(shown))
        runtime.reconcile()
        await runtime.settled("b")
        assert shown.count(State.FAILED) == 1
        assert b0 not in children.tasks
    assert children.log.count("validate mine.Source") == 1


# Writes


async def test_herd_an_answer_of_the_connector_as_it_was_is_not_committed(
    worker: tuple[Runtime, HandChildren, HandGroup],
) -> None:
    """The answer waited for its turn while a new config was written."""
    runtime, _, _ = worker
    before = runtime.configs.generation("a")
    async with runtime.config_lock:
        writing = asyncio.create_task(
            runtime.config_writer.put_task_configs(
                "a", [{"n": "stale"}], lambda: runtime.herder.awaits("a", -1)
            )
        )
        await asyncio.sleep(0)
        await runtime.write_config([target_state_record("a", runtime.configs.target("a"))])
    await writing
    assert runtime.configs.generation("a") == before


async def test_herd_offsets_are_changed_when_tasks_elsewhere_have_stopped(
    worker: tuple[Runtime, HandChildren, HandGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their last commit would overwrite the user's offsets."""
    runtime, _children, group = worker
    group.owners = {A0: "http://other"}
    await runtime.write_config([*task_records("a", []), target_state_record("a", TargetState.STOPPED)])
    wanted = [({"f": "x"}, {"n": 7})]
    monkeypatch.setattr(offsets, "STOP_S", 0.2)
    with pytest.raises(Conflict, match="have not stopped on all workers"):
        await ConnectorOffsets(runtime).alter("a", wanted)
    monkeypatch.setattr(offsets, "STOP_S", 20.0)
    altering = asyncio.create_task(ConnectorOffsets(runtime).alter("a", wanted))
    await asyncio.sleep(0.3)  # time to go on without the other workers
    assert not altering.done()
    assert not runtime.config_lock.locked(), "others may write meanwhile"
    group.owners.clear()
    runtime.assign(Assignment(), 6)
    assert "have been altered successfully" in await altering
    assert await runtime.read_offsets("a", [{"f": "x"}]) == [{"n": 7}]


def test_herd_a_leader_knows_who_may_still_run_tasks() -> None:
    """A worker that is told to stop them in this round counts, too: it has not read why yet."""
    view, b0 = ConfigView(offset=9, tasks={"a": 1, "b": 1}), TaskId("b", 0)

    def meet(view: ConfigView, running: ExtendedAssignment, sharing: Sharing) -> Round:
        state = WorkerState(url="http://m", offset=9, assignment=running)
        protocol = ProtocolName.SESSIONED
        return make_round(
            metadata={"m": encode_metadata(state, protocol)},
            leader="m", protocol=protocol, view=view, sharing=sharing, now_ms=0,
        )  # fmt: skip

    runs = ExtendedAssignment(version=2, leader="m", leader_url="http://m", offset=9, tasks=(A0, b0))
    first = meet(view, runs, Sharing())
    assert first.has_tasks_of("a")
    view = ConfigView(offset=9, tasks={"a": 0, "b": 1})
    second = meet(view, runs, first.sharing)
    assert second.has_tasks_of("a")
    third = meet(view, replace(runs, tasks=(b0,)), second.sharing)
    assert not third.has_tasks_of("a")
    assert third.has_tasks_of("b")
    behind = meet(ConfigView(offset=8, tasks=view.tasks), runs, third.sharing)
    assert behind.plan is None
    assert behind.has_tasks_of("a")


async def test_herd_a_leader_that_slept_does_not_fence_the_next(bootstrap: str) -> None:
    runtime, _, group = await a_worker(bootstrap, **{"exactly.once.source.support": "preparing"})
    following = FencedWriter({"bootstrap.servers": bootstrap}, runtime.config["group.id"])
    await following.claim()
    with pytest.raises(Conflict, match="Another worker leads"):
        await runtime.write_config([connector_record("b", CONFIG)])
    runtime.config_writer.assigned(leads=True)  # it goes on sleeping and waking, and still believes
    group.alive = False
    with pytest.raises(Conflict, match="lost contact"):
        await runtime.write_config([connector_record("b", CONFIG)])
    await following.write(runtime.config_log.topic, [connector_record("c", CONFIG)])
    await runtime.stop()


async def test_herd_a_new_leader_ends_what_its_predecessor_left_open(bootstrap: str) -> None:
    runtime, _, group = await a_worker(bootstrap, **{"exactly.once.source.support": "preparing"})
    topic = runtime.config_log.topic
    dead = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": leader_transactional_id(runtime.config["group.id"]),
        }
    )

    def die() -> None:
        dead.init_transactions(60)
        dead.begin_transaction()
        dead.produce(topic, key="connector-half", value=b"{}")
        assert dead.flush(60) == 0

    await asyncio.to_thread(die)
    group.is_leader = False
    runtime.assign(TASKS, 6)
    with pytest.raises(LogError, match="could not be read to its end"):
        await runtime.config_log.read_to_end(0.5)
    group.is_leader = True
    runtime.assign(TASKS, 7)
    await runtime.config_log.read_to_end(60)
    assert "half" not in runtime.configs
    await runtime.stop()


async def test_herd_a_claim_that_came_too_late_is_given_back(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, _, _ = await a_worker(bootstrap, **{"exactly.once.source.support": "preparing"})
    fenced: Any = runtime.config_writer._fenced
    fenced.release()
    claim = fenced.claim

    async def slow() -> None:
        runtime.config_writer.assigned(leads=False)
        await claim()

    monkeypatch.setattr(fenced, "claim", slow)
    with pytest.raises(Conflict, match="Another worker leads"):
        await runtime.config_writer.prepare()
    assert not fenced.claimed
    with pytest.raises(Fenced):
        await fenced.write(runtime.config_log.topic, [connector_record("b", CONFIG)])
    await runtime.stop()
