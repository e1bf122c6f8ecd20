"""A flow that is held gets back what an operator had set before."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.connect.topics.config_topic import TargetState, connector_record, target_state_record
from klamm.mirror import flow_hold, held_by
from klamm.mirror.held_by import holding
from klamm_base.errors import KlammError
from klamm_kafka.wire.batch import Record
from klamm_mirror.move.steps import Kind, Move, Step, begun, done
from klamm_mirror.settings.mm2_config import CHECKPOINT, SOURCE


class Service:
    """The part of a worker's service that a hold uses."""

    def __init__(self, **states: TargetState) -> None:
        self.states = states
        self.offsets = self

    def connectors(self) -> list[str]:
        return list(self.states)

    def target(self, name: str) -> TargetState:
        return self.states[name]

    async def set_target(self, name: str, state: TargetState) -> None:
        self.states[name] = state

    async def wait_stopped(self, name: str) -> None:
        assert self.states[name] is TargetState.STOPPED


def test_a_release_restores_the_states_before():
    before = {SOURCE: TargetState.PAUSED, CHECKPOINT: TargetState.STARTED}
    service = Service(**before)
    noted = asyncio.run(flow_hold.states(service))  # type: ignore[arg-type]
    asyncio.run(flow_hold.hold(service))  # type: ignore[arg-type]
    assert set(service.states.values()) == {TargetState.STOPPED}
    asyncio.run(flow_hold.release(service, noted))  # type: ignore[arg-type]
    assert service.states == before


def test_a_release_starts_what_nothing_is_known_of():
    service = Service(**{SOURCE: TargetState.STOPPED})
    asyncio.run(flow_hold.release(service))  # type: ignore[arg-type]
    assert service.states == {SOURCE: TargetState.STARTED}


class Journal:
    """The journal of a failover whose step `hold` was noted at 5 ms."""

    def __init__(self, *, ended: bool) -> None:
        move = Move(kind=Kind.FAILOVER, flow="A->B", identity="1", began_ms=1)
        note = done if ended else begun
        self.failover = note(move, Step.HOLD, {"connectors": {}}, 5)

    async def catch_up(self) -> bool:
        return True

    def move(self, kind: Kind, flow: str) -> Move | None:
        return self.failover if flow == "A->B" else None


def states(*changes: tuple[int, str, TargetState]) -> flow_hold.TargetStates:
    """Reads changes (time, connector, state) of a flow with both connectors."""
    flow: Any = SimpleNamespace(worker={"config.storage.topic": "configs"})
    found = flow_hold.TargetStates(None, flow)  # type: ignore[arg-type]
    made = [(0, connector_record(name, {"name": name})) for name in (SOURCE, CHECKPOINT)]
    for at_ms, (key, value) in [*made, *((at, target_state_record(n, s)) for at, n, s in changes)]:
        found.take(Record(offset=0, timestamp=at_ms, key=key.encode(), value=value))
    return found


STOPPED, STARTED = TargetState.STOPPED, TargetState.STARTED
HELD = [(3, SOURCE, STOPPED), (4, CHECKPOINT, STOPPED)]


@pytest.mark.parametrize(
    ("changes", "since"),
    [
        ([], None),
        (HELD[:1], None),
        (HELD, 4),
        ([*HELD, (8, SOURCE, STOPPED)], 4),
        ([*HELD, (8, SOURCE, STARTED)], None),
        ([*HELD, (8, SOURCE, STARTED), (9, SOURCE, STOPPED)], 9),
    ],
)
async def test_a_failover_holds_its_flow_until_the_flow_goes_on(changes, since):
    assert states(*changes).held_since == since
    journal: Any = Journal(ended=True)
    assert await holding(journal, "A->B", since) is (journal.failover if since == 4 else None)
    assert await holding(journal, "B->A", since) is None


async def test_a_failover_that_is_about_to_hold_its_flow_may_have_stopped_it():
    journal: Any = Journal(ended=False)
    assert await holding(journal, "A->B", 7) is journal.failover


async def test_no_error_ends_the_look_for_what_holds_a_flow(monkeypatch):
    said = asyncio.Queue[str | None]()
    errors = [KlammError("a cluster is away"), RuntimeError("a plugin's own")]

    async def topics(*_: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return Journal(ended=True), held

    async def caught_up() -> bool:
        return True

    held = states(*HELD)
    monkeypatch.setattr(held, "catch_up", caught_up)
    monkeypatch.setattr(held_by, "_topics", topics)
    monkeypatch.setattr(held_by, "LOOK_S", 0.01)
    flow: Any = SimpleNamespace(name="A->B")
    following = asyncio.create_task(held_by.follow_holds(flow, lambda: True, said.put_nowait))
    try:
        async with asyncio.timeout(10):
            assert "which move holds it: a cluster is away" in (await said.get() or "")
            assert 'RuntimeError("a plugin\'s own")' in (await said.get() or "")
            assert "goes on with it" in (await said.get() or "")
    finally:
        following.cancel()
