"""Parts of a move back: what it refuses, waits for, and does again after a kill with records that only one side has."""

from __future__ import annotations

import stat
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.mirror import at_rest, flow_hold
from klamm.mirror.moves import failback
from klamm.mirror.moves.failback import Failback, by_partition, passed_over
from klamm.mirror.moves.ground import NotYet, Options, Refused
from klamm_kafka.wire.batch import Record
from klamm_mirror.copy.source_offsets import Position
from klamm_mirror.move.steps import EXPORTED, Kind, Move, Step, begun, done, restarted, undo_next
from klamm_mirror.settings.keep_offsets import PROMOTED
from klamm_mirror.topics import internal_topics

TAIL = {"topic": "t", "partition": 0, "start": 500, "end": 520, "records": 20, "lost": 0}
FOUND = {"at": "A", "diverged": [TAIL], "own": [], "ends": {"t-0": 520}}


class Forward:
    """A->B, which has copied up to `next_`."""

    def __init__(self, next_: int = 500, *, keeps: bool = False) -> None:
        self.flow = SimpleNamespace(name="A->B", source="A", target="B")
        self.target, self.seat, self.keeps_offsets = "cluster B", "seat", keeps
        self.topics = SimpleNamespace(remote=lambda topic: topic)
        self.next = next_

    async def positions(self) -> dict[tuple[str, int], Position]:
        return {("t", 0): Position(offset=self.next - 1)}

    async def partitions(self) -> list[tuple[str, int]]:
        return [("t", 0)]

    async def ends(self) -> dict[tuple[str, int], int]:
        return {("t", 0): 520}


class Ground:
    """B->A."""

    def __init__(self, **options: Any) -> None:
        self.flow = SimpleNamespace(name="B->A", source="B", target="A")
        self.path, self.props, self.options = "mm2.properties", dict[str, str](), Options(**options)
        self.policy = SimpleNamespace(hides_origin=False)
        self.source = self.target = None
        self.failover: Move | None = None

    def journal(self, *, at_source: bool = False) -> Any:
        async def catch_up() -> bool:
            return True

        assert at_source
        return SimpleNamespace(catch_up=catch_up, move=lambda kind, flow: self.failover)

    def begin_wait(self) -> None:
        pass

    async def wait(self, why: str, share: float | None = None) -> None:
        raise NotYet(why)


class World:
    """A move back that has come to `settle`. `did` is what was done with A->B."""

    def __init__(self, monkeypatch, forward: Forward | None = None, **options: Any) -> None:
        self.steps = Failback(Ground(**options), forward or Forward())  # type: ignore[arg-type]
        self.held = True
        self.did: list[Any] = []
        self.move = Move(kind=Kind.FAILBACK, flow="B->A", identity="1", began_ms=1)
        for step, found in ((Step.CHECK, {}), (Step.DIVERGED, FOUND)):
            self.move = done(self.move, step, found, 2)
        monkeypatch.setattr(flow_hold, "target_states", self._states)
        monkeypatch.setattr(at_rest, "set_places", self._set_places)
        monkeypatch.setattr(at_rest, "release", self._release)
        monkeypatch.setattr(Failback, "_sides", self._sides)
        monkeypatch.setattr(failback, "own_records", self._own_records)

    async def _states(self, target: Any, flow: Any) -> Any:
        assert (target, flow.name) == ("cluster B", "A->B")
        return SimpleNamespace(held=self.held)

    async def _set_places(self, seat: Any, places: Any, before: Any) -> None:
        self.did.append(dict(places))

    async def _release(self, seat: Any, before: Any = None) -> None:
        self.did.append("released" if before is None else before)

    async def _sides(self, _: Any = None) -> tuple[Any, Any]:
        return None, None

    async def _own_records(self, side: Any, partition: Any, start: int, end: int) -> Any:
        for offset in range(start, end):
            yield Record(offset=offset, timestamp=1, key=None, value=b"v")

    async def settle(self) -> Any:
        async def begin(before: Any) -> None:
            self.move = begun(self.move, Step.SETTLE, before, 3)

        return await self.steps.settle(self.move, begin)


async def test_nothing_is_settled_while_the_flow_there_runs(monkeypatch, tmp_path):
    world = World(monkeypatch, diverged="export", export=tmp_path / "late")
    world.held = False
    for step in (world.settle(), world.steps.check(world.move, None)):  # type: ignore[arg-type]
        with pytest.raises(Refused, match=r"A->B is not held.*cutover mm2.properties 'B->A'"):
            await step
    assert not world.did
    assert not list(tmp_path.iterdir())


async def test_an_export_is_private_whole_and_sets_the_flow_behind_it(monkeypatch, tmp_path):
    world = World(monkeypatch, diverged="export", export=tmp_path / "late")
    found = await world.settle()
    passed = [{"topic": "t", "partition": 0, "start": 500, "end": 520}]
    assert found == {
        "decision": "export", "records": 20, "file": str(tmp_path / "late"), EXPORTED: passed,
    }  # fmt: skip
    assert world.did == [{("t", 0): 520}, "released"]
    assert [p.name for p in tmp_path.iterdir()] == ["late"]
    assert stat.S_IMODE((tmp_path / "late").stat().st_mode) == 0o600
    assert len((tmp_path / "late").read_text().splitlines()) == 20


async def test_a_flow_that_was_let_go_is_not_set_back(monkeypatch, tmp_path):
    """The command was killed between the flow's release and the note of it; the flow has gone on since."""
    world = World(monkeypatch, diverged="export", export=tmp_path / "late")
    await world.settle()
    (tmp_path / "late").write_text("as it was written first")
    world.held, world.did = False, []
    world.steps.forward.next = 600  # type: ignore[attr-defined]
    world.steps.ground.options = Options()  # the decision and the file are noted
    await world.settle()
    assert world.did == ["released"]
    assert (tmp_path / "late").read_text() == "as it was written first"


async def test_connectors_that_an_operator_had_paused_stay_so(monkeypatch):
    world = World(monkeypatch, diverged="export")
    world.move = done(world.move, Step.DIVERGED, {**FOUND, "diverged": []}, 2)
    had = {"MirrorSourceConnector": "PAUSED", "MirrorCheckpointConnector": "STARTED"}
    failover = Move(kind=Kind.FAILOVER, flow="A->B", identity="0", began_ms=0)
    world.steps.ground.failover = done(failover, Step.HOLD, {"connectors": had}, 1)  # type: ignore[attr-defined]
    await world.settle()
    assert world.did == [had]


async def test_a_move_that_begins_anew_ends_an_export_that_was_begun(monkeypatch, tmp_path):
    """The flow was set behind the records, and not yet let go: nothing shows them any more."""
    world = World(monkeypatch, diverged="export", export=tmp_path / "late")
    await world.settle()
    world.steps.forward.next = 520  # type: ignore[attr-defined]
    world.move = done(restarted(world.move, 4), Step.CHECK, {}, 5)
    found = await world.steps.diverged(world.move, None)  # type: ignore[arg-type]
    assert found["diverged"] == [TAIL]
    world.move = done(world.move, Step.DIVERGED, found, 6)
    world.steps.ground.options = Options()
    settled = await world.settle()
    assert world.did == [{("t", 0): 520}, "released", "released"]
    assert by_partition(settled[EXPORTED]) == {("t", 0): [(500, 520)]}


async def test_a_later_export_adds_to_what_was_exported(monkeypatch, tmp_path):
    world = World(monkeypatch, diverged="export", export=tmp_path / "later")
    former = {"topic": "t", "partition": 0, "start": 100, "end": 120}
    world.move = done(world.move, Step.DIVERGED, {**FOUND, EXPORTED: [former]}, 2)
    settled = await world.settle()
    assert by_partition(settled[EXPORTED]) == {("t", 0): [(100, 120), (500, 520)]}


async def test_no_file_is_overwritten(monkeypatch, tmp_path):
    (tmp_path / "late").write_text("former")
    world = World(monkeypatch, diverged="export", export=tmp_path / "late")
    with pytest.raises(Refused, match="there is such a file"):
        await world.settle()
    assert (tmp_path / "late").read_text() == "former"
    assert not world.did
    assert Step.SETTLE not in world.move.notes


@pytest.mark.parametrize(
    ("next_", "places"), [(500, {("t", 0): 520}), (519, {("t", 0): 520}), (520, {}), (700, {})]
)
def test_only_partitions_behind_their_export_are_set(next_, places):
    assert passed_over([TAIL], {("t", 0): Position(offset=next_ - 1)}) == places
    assert (
        passed_over([TAIL], {}) == passed_over([TAIL], {("t", 0): Position(offset=None)}) == {("t", 0): 520}
    )


async def test_a_decision_is_not_undone_and_not_changed(monkeypatch, tmp_path):
    world = World(monkeypatch, diverged="export", export=tmp_path / "late")
    world.move = done(world.move, Step.SETTLE, await world.settle(), 4)
    world.held = False
    assert undo_next(world.move) is Step.SETTLE
    with pytest.raises(Refused, match="settle is not undone"):
        await world.steps.undo_settle(world.move, {}, None)  # type: ignore[arg-type]
    for said, refused in ((None, False), ("export", False), ("copy", True)):
        world.steps.ground.options = Options(diverged=said)
        if refused:
            with pytest.raises(Refused, match="export is decided"):
                await world.steps.agree(world.move)
        else:
            await world.steps.agree(world.move)


async def test_a_decision_does_not_serve_for_the_next_failover(monkeypatch):
    world = World(monkeypatch, diverged="copy")
    world.move = done(world.move, Step.SETTLE, {"decision": "copy"}, 4)
    with pytest.raises(Refused, match=r"held again.*--restart"):
        await world.steps.agree(world.move)


async def test_promoted_copies_do_not_tell_what_the_lost_cluster_has_alone(monkeypatch):
    world = World(monkeypatch, Forward(keeps=True))

    async def states(cluster: Any, topics: Any) -> dict[str, str]:
        return dict.fromkeys(topics, PROMOTED)

    monkeypatch.setattr(failback, "states_of", states)
    with pytest.raises(Refused, match=r"t: promoted at B.*delete the topic at A"):
        await world.steps.check(world.move, None)  # type: ignore[arg-type]


async def test_topics_that_nobody_wrote_at_the_other_side_go_back_too(monkeypatch):
    world = World(monkeypatch)

    async def where(_: Any) -> dict[str, Any]:
        return {"cluster": "A", "topics": [{"topic": "u", "target_topic": "B.u"}]}

    monkeypatch.setattr(failback.CommonSteps, "where", where)
    told = await world.steps.where()
    assert told["topics"] == [
        {"topic": "t", "target_topic": "t"}, {"topic": "u", "target_topic": "B.u"}
    ]  # fmt: skip


async def test_open_transactions_are_waited_for_and_told(monkeypatch):
    world = World(monkeypatch)
    settled = {("t", 0): 510}

    async def offsets(cluster: Any, partitions: Any, which: int, *, committed: bool = False) -> Any:
        assert committed
        return settled

    monkeypatch.setattr(internal_topics, "offsets_of", offsets)
    side = SimpleNamespace(cluster=None)
    with pytest.raises(NotYet, match="A has open transactions in t-0"):
        await world.steps._settled_ends(side)  # type: ignore[arg-type]
    settled["t", 0] = 530
    assert await world.steps._settled_ends(side) == {("t", 0): 520}  # type: ignore[arg-type]
