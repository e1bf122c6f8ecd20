"""Parts of a planned move: what it refuses while a failover holds a flow, and what it lets go on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.mirror import at_rest, flow_hold
from klamm.mirror.moves import cutover
from klamm.mirror.moves.common import CommonSteps
from klamm.mirror.moves.cutover import Cutover
from klamm.mirror.moves.ground import Refused
from klamm_mirror.move.steps import Kind, Move, Step, done

HAD = {"MirrorSourceConnector": "PAUSED"}


def failover(promoted: list[str]) -> Move:
    held = done(
        Move(kind=Kind.FAILOVER, flow="A->B", identity="0", began_ms=1), Step.HOLD, {"connectors": HAD}, 2
    )
    return done(done(held, Step.PROMOTE, {"promoted": promoted}, 3), Step.TELL, {}, 4)


class World:
    """A move along B->A. `held` are the flows that are stopped, `started_ms` when one was last started; `did` is what A->B was given."""

    def __init__(self, monkeypatch, held: set[str], found: Move | None, started_ms: int = 1) -> None:
        self.held, self.started_ms, self.did = held, started_ms, list[Any]()
        there = SimpleNamespace(name="A->B", source="A", target="B")
        journal = SimpleNamespace(
            catch_up=self._nothing, move=lambda kind, flow: found if flow == "A->B" else None
        )
        ground = SimpleNamespace(
            flow=SimpleNamespace(name="B->A", source="B", target="A"), source="cluster B", target="cluster A",
            opposite=lambda: there, journal=lambda *, at_source=False: journal, path=Path("mm2.properties"), mirror=None,
        )  # fmt: skip
        self.steps = Cutover(ground)  # type: ignore[arg-type]
        monkeypatch.setattr(flow_hold, "target_states", self._states)
        monkeypatch.setattr(at_rest, "release", self._release)
        monkeypatch.setattr(CommonSteps, "tell", self._nothing)

    async def _nothing(self, *_: Any) -> dict[str, Any]:
        return {}

    async def _states(self, cluster: str, flow: Any) -> Any:
        assert cluster == f"cluster {flow.target}"
        return SimpleNamespace(held=flow.name in self.held, started_ms=self.started_ms)

    async def _release(self, seat: Any, before: Any) -> None:
        self.did.append((seat.flow.name, before))

    async def tell(self, promoted: list[str]) -> Any:
        move = Move(kind=Kind.CUTOVER, flow="B->A", identity="1", began_ms=5)
        return await self.steps.tell(done(move, Step.PROMOTE, {"promoted": promoted}, 6), None)  # type: ignore[arg-type]


async def test_a_way_back_shows_first_what_only_the_lost_cluster_has(monkeypatch):
    refuse = World(monkeypatch, {"A->B"}, failover([])).steps._refuse_way_back
    with pytest.raises(
        Refused, match=r"A->B did not copy all that A has.*klamm mirror failback mm2.properties 'B->A'"
    ):
        await refuse()
    await World(monkeypatch, set(), failover([])).steps._refuse_way_back()
    await World(monkeypatch, {"A->B"}, failover(["t"])).steps._refuse_way_back()
    await World(monkeypatch, {"A->B"}, None).steps._refuse_way_back()
    await World(monkeypatch, {"A->B"}, failover([]), started_ms=9).steps._refuse_way_back()


async def test_a_flow_that_an_operator_has_stopped_copies_nothing(monkeypatch):
    world = World(monkeypatch, {"B->A"}, None)
    with pytest.raises(Refused, match="B->A is stopped: resume its connectors"):
        await cutover.check_flow(world.steps.ground, world.steps)


@pytest.mark.parametrize(
    ("setting", "found"),
    [("", []), ("nope", []), ("nope, orders", ["orders"]), ("ord", []), ("ord.*,pay|x", ["ord.*"])],
)
def test_a_pause_of_no_topic_of_the_flow_is_none(setting, found):
    assert cutover.paused_of(setting, {"orders", "payments"}) == found


async def test_a_way_back_of_promoted_copies_lets_the_held_flow_go_on(monkeypatch):
    world = World(monkeypatch, {"A->B"}, failover(["t"]))
    assert await world.tell(["t"]) == {"released": "A->B"}
    assert world.did == [("A->B", HAD)]
    cases = [
        (set[str](), failover(["t"]), 1),
        ({"A->B"}, failover([]), 1),
        ({"A->B"}, failover(["t"]), 9),  # it went on after the failover, and was stopped again
    ]
    for held, found, started_ms in cases:
        other = World(monkeypatch, held, found, started_ms)
        assert await other.tell(["t"]) == {"released": None}
        assert not other.did
