"""The event bus and what is announced on it, without a worker."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.connect.events import KEPT_MAX, WAITING_MAX, EventBus, Listener
from klamm.connect.herding.announcer import Announcer
from klamm.connect.model import State, TaskId
from klamm.connect.rest.progress import progress_of
from klamm.connect.topics.config_topic import (
    ConfigState,
    Status,
    StatusState,
    TargetState,
    connector_record,
    delete_records,
    target_state_record,
    task_records,
)


async def read(listener: Listener, count: int) -> list[tuple[int, str]]:
    events = aiter(listener)
    return [(e.id, e.kind) for e in [await asyncio.wait_for(anext(events), 60) for _ in range(count)]]


def publish(bus: EventBus, count: int) -> None:
    for i in range(count):
        bus.publish("task.state", {"task": i})


async def test_listeners_hear_what_comes_and_what_they_missed() -> None:
    bus = EventBus()
    publish(bus, 3)
    late, again = bus.listen(), bus.listen(after=1)
    publish(bus, 1)
    assert await read(late, 1) == [(4, "task.state")]
    assert [number for number, _ in await read(again, 3)] == [2, 3, 4]
    assert bus.published["task.state"] == 4


async def test_what_is_no_longer_kept_is_counted() -> None:
    bus = EventBus()
    publish(bus, KEPT_MAX + 10)
    listener = bus.listen(after=4)
    events = aiter(listener)
    missed = await anext(events)
    assert (missed.kind, missed.data) == ("missed", {"count": 6})
    assert (await anext(events)).id == missed.id + 1 == 11


async def test_a_listener_that_does_not_read_loses_events_and_is_told() -> None:
    bus = EventBus()
    listener = bus.listen()
    publish(bus, WAITING_MAX + 5)
    events = aiter(listener)
    missed = await anext(events)
    assert (missed.kind, missed.data) == ("missed", {"count": 5})
    assert (await anext(events)).id == 6


async def test_an_id_of_a_worker_that_ran_before() -> None:
    bus = EventBus()
    publish(bus, 2)
    events = aiter(bus.listen(after=4711))
    missed = await anext(events)
    assert (missed.kind, missed.data) == ("missed", {"count": None})
    assert [(await anext(events)).id, (await anext(events)).id] == [1, 2]


async def test_closing_ends_all_and_forgets_them() -> None:
    bus = EventBus()
    listener = bus.listen()
    reading = asyncio.ensure_future(anext(aiter(listener)))
    await asyncio.sleep(0)
    assert bus.listeners == 1
    bus.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(reading, 60)
    assert bus.listeners == 0


def test_a_kind_that_nobody_knows_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="no kind of event"):
        EventBus().publish("weather", {})


class Topics:
    """Config and status state with an announcer, and the kinds that it has told."""

    def __init__(self) -> None:
        self.bus, self.configs, self.statuses = EventBus(), ConfigState(), StatusState("w:1")
        self.announcer = Announcer(self.bus, self.configs, self.statuses)

    def config(self, *records: tuple[str, bytes | None]) -> None:
        for key, value in records:
            name = self.configs.apply(key, value)
            if name is not None:
                self.announcer.config(name)

    def status(self, target: str | TaskId, state: State, worker: str = "w:1") -> None:
        self.statuses.put(target, Status(state=state, worker_id=worker))
        self.announcer.status(target)

    @property
    def told(self) -> dict[str, int]:
        return dict(self.bus.published)


def test_what_was_there_before_is_no_news() -> None:
    topics = Topics()
    topics.config(connector_record("a", {"x": "1"}), *task_records("a", [{}]))
    topics.status("a", State.RUNNING)
    topics.announcer.begin()
    topics.config(connector_record("a", {"x": "1"}))
    topics.status("a", State.RUNNING)
    assert topics.told == {}


def test_each_change_is_told_once() -> None:
    topics = Topics()
    topics.announcer.begin()
    topics.config(connector_record("a", {"x": "1"}))
    assert topics.told == {"connector.created": 1}
    topics.config(*task_records("a", [{}, {}]))
    topics.config(*task_records("a", [{"y": "1"}, {}]))  # as many as before
    assert topics.told["tasks.config"] == 1
    topics.config(connector_record("a", {"x": "2"}), target_state_record("a", TargetState.PAUSED))
    topics.status(TaskId("a", 0), State.RUNNING)
    topics.status(TaskId("a", 0), State.RUNNING)
    topics.status(TaskId("a", 0), State.RUNNING, worker="other:1")
    topics.config(*delete_records("a"))
    assert topics.told == {
        "connector.created": 1,
        "tasks.config": 2,
        "connector.config": 1,
        "connector.target": 1,
        "task.state": 2,
        "connector.deleted": 1,
    }


figures = st.one_of(st.none(), st.integers(0, 1 << 50))
tasks = st.lists(
    st.fixed_dictionaries(
        {"state": st.sampled_from(["RUNNING", "PAUSED", "FAILED"]), "worker_id": st.just("w")},
        optional={
            "progress": st.fixed_dictionaries({"records": figures, "lag": figures, "last_ack_ms": figures})
        },
    ),
    max_size=4,
)


@given(tasks)
def test_totals_are_sums_or_unknown(tasks: list[dict[str, object]]) -> None:
    numbered = [{"id": i, **task} for i, task in enumerate(tasks)]
    answer = progress_of(
        {"name": "c", "type": "sink", "connector": {"state": "RUNNING"}, "tasks": numbered}, 5
    )
    alive = [row for row in answer["tasks"] if row["state"] != "FAILED"]
    for name in ("records", "lag"):
        parts = [row[name] for row in alive]
        known = bool(parts) and None not in parts
        assert answer["total"][name] == (sum(parts) if known else None)
