"""A flow that is held stays so until it is let go, and gets back what an operator had set before."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.connect.errors import Conflict
from klamm.connect.topics.config_topic import TARGET_STATE, TargetState, connector_record, target_state_record
from klamm.mirror import flow_hold, flow_offsets, held_by
from klamm.mirror.flow import configure
from klamm.mirror.held_by import holding
from klamm.mirror.places import Place
from klamm_base.errors import KlammError
from klamm_kafka.wire.batch import Record
from klamm_mirror.move.steps import Kind, Move, Step, begun, done
from klamm_mirror.settings.mm2_config import CHECKPOINT, SOURCE


class Service:
    """The part of a worker's service that a hold, a change of offsets and a changed file use."""

    def __init__(self, **states: TargetState) -> None:
        self.states = states
        self.offsets = self
        self.runtime = SimpleNamespace(configs=self)

    def __contains__(self, name: str) -> bool:
        return name in self.states

    def connectors(self) -> list[str]:
        return list(self.states)

    def config(self, name: str) -> dict[str, str]:
        return {"name": name}

    def target(self, name: str) -> TargetState:
        return self.states[name]

    async def set_target(self, name: str, state: TargetState) -> None:
        self.states[name] = state

    async def wait_stopped(self, name: str) -> None:
        assert self.states[name] is TargetState.STOPPED

    async def alter(self, name: str, _: Any) -> str:
        raise Conflict(f"the tasks of {name} have not stopped")

    async def delete(self, name: str) -> None:
        del self.states[name]

    async def create(self, name: str, _: Any, state: TargetState) -> None:
        self.states[name] = state

    async def put_config(self, name: str, _: Any) -> None:
        self.states.setdefault(name, TargetState.STARTED)


def test_a_flow_that_is_held_stays_so_when_the_file_leaves_it_out_and_names_it_again():
    held = dict.fromkeys((SOURCE, CHECKPOINT), TargetState.STOPPED)
    wanted = {name: {"name": name} for name in held}
    service: Any = Service(**held, other=TargetState.STARTED)
    asyncio.run(configure(service, {}))
    assert service.states == held
    del service.states[CHECKPOINT]
    asyncio.run(configure(service, wanted))
    assert service.states == held


def test_a_flow_that_is_only_stopped_in_part_is_removed_and_started():
    service: Any = Service(**{SOURCE: TargetState.STOPPED, CHECKPOINT: TargetState.STARTED})
    asyncio.run(configure(service, {}))
    assert service.states == {}
    asyncio.run(configure(service, {SOURCE: {"name": SOURCE}}))
    assert service.states == {SOURCE: TargetState.STARTED}


def test_offsets_that_could_not_be_set_start_nothing_later(tmp_path):
    service: Any = Service(**dict.fromkeys((SOURCE, CHECKPOINT), TargetState.STARTED))
    place = Place("A->B", "1", tmp_path)
    with pytest.raises(KlammError, match="have not stopped"):
        asyncio.run(flow_offsets.alter(service, place, []))
    assert service.states[SOURCE] is TargetState.STARTED
    assert not place.altering.exists()


@pytest.mark.parametrize("held", [False, True])
def test_a_change_of_offsets_that_was_killed_starts_no_flow_that_was_held_since(tmp_path, held):
    other = TargetState.STOPPED if held else TargetState.STARTED
    service: Any = Service(**{SOURCE: TargetState.STOPPED, CHECKPOINT: other})
    place = Place("A->B", "1", tmp_path)
    place.altering.touch()
    asyncio.run(flow_offsets.go_on(service, place))
    assert service.states[SOURCE] is other
    assert not place.altering.exists()


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


def states(*changes: tuple[int, str, TargetState | None], edited_ms: int = 0) -> flow_hold.TargetStates:
    """Reads changes (time, connector, state; None: removed) of a flow with both connectors. An edited file writes them anew."""
    flow: Any = SimpleNamespace(worker={"config.storage.topic": "configs"})
    found = flow_hold.TargetStates(None, flow)  # type: ignore[arg-type]
    made = [(edited_ms, connector_record(name, {"name": name})) for name in (SOURCE, CHECKPOINT)]
    told = [(at, target_state_record(n, s) if s else (TARGET_STATE + n, None)) for at, n, s in changes]
    for at_ms, (key, value) in [*made, *told] if not edited_ms else [*told, *made]:
        found.take(Record(offset=0, timestamp=at_ms, key=key.encode(), value=value))
    return found


STOPPED, STARTED = TargetState.STOPPED, TargetState.STARTED
HELD = [(3, SOURCE, STOPPED), (4, CHECKPOINT, STOPPED)]


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ([], False),
        (HELD[:1], False),
        (HELD, True),
        ([*HELD, (8, SOURCE, STOPPED)], True),
        ([*HELD, (8, SOURCE, STARTED)], False),
        ([*HELD, (8, SOURCE, STARTED), (9, SOURCE, STOPPED)], False),
        ([*HELD, (8, SOURCE, None), (9, SOURCE, STOPPED)], False),
        ([(1, SOURCE, STARTED), *HELD], True),
        ([(3, CHECKPOINT, STOPPED), (8, SOURCE, STOPPED)], True),  # compaction left the last stop of each
    ],
)
async def test_a_failover_holds_its_flow_until_the_flow_goes_on(changes, held):
    journal: Any = Journal(ended=True)
    assert await holding(journal, "A->B", states(*changes)) is (journal.failover if held else None)
    assert await holding(journal, "B->A", states(*changes)) is None


async def test_a_failover_holds_its_flow_over_a_change_of_the_file_and_compaction():
    journal: Any = Journal(ended=True)
    assert await holding(journal, "A->B", states(*HELD, edited_ms=20)) is journal.failover


async def test_a_failover_that_is_about_to_hold_its_flow_may_have_stopped_it():
    journal: Any = Journal(ended=False)
    assert (
        await holding(journal, "A->B", states((7, SOURCE, STOPPED), (7, CHECKPOINT, STOPPED)))
        is journal.failover
    )


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
