"""Worker groups on a real broker: who runs what as workers come, go, hang and are cut off."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest
from support.worker_group import worker_group

from klamm.connect.model import TaskId


@pytest.fixture
def name() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


async def test_group_two_workers_share_the_work(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name) as group:
        group.topic.put(a=3, b=1)
        (one,) = await group.start("one")
        assert one.items == group.topic.items
        assert one.membership.is_leader
        assert one.membership.leader_url == "http://one:8083"
        assert one.membership.protocol_version == 2
        (two,) = await group.start("two")
        await group.until()
        assert len(one.tasks) == len(two.tasks) == 2
        assert len(one.items) == len(two.items) == 3
        assert group.arena.clashes == []
        assert group.arena.moves == 6 + 3
        assert two.membership.leader_url == "http://one:8083"
        assert sorted((await two.membership.members()).values()) == ["http://one:8083", "http://two:8083"]
        for item in group.topic.items:
            owner = next(m for m in (one, two) if item in m.items)
            assert one.membership.owner_url(item) == f"http://{owner.listener.name}:8083"
        assert one.membership.owner_url(TaskId("a", 7)) is None
        assert two.membership.owner_url("a") is None


async def test_group_what_leaves_runs_elsewhere_and_the_rest_stays(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name) as group:
        group.topic.put(a=6)
        one, two, three = await group.start("one", "two", "three")
        await group.until()
        kept = {m.listener.name: set(m.items) for m in (one, three)}
        moves = group.arena.moves
        moved = len(two.items)
        await group.leave("two")
        assert two.items == set()
        await group.until()
        assert all(kept[m.listener.name] <= m.items for m in (one, three))
        assert group.arena.moves == moves + moved
        assert group.arena.clashes == []


async def test_group_follows_the_configuration(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name) as group:
        await group.start("one", "two")
        await group.change(a=4, b=2)
        await group.until()
        await group.change(a=1, b=-1)
        await group.until()
        await group.change(c=3)
        await group.until()
        assert group.arena.clashes == []


async def test_group_loads_move_tasks(bootstrap: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers' figures reach the leader with the next rebalance, which a great change asks for."""
    for key, ms in {"INTERVAL_MS": 200, "LASTING_MS": 100, "AVERAGE_MS": 50, "WARM_UP_MS": 50}.items():
        monkeypatch.setattr(f"klamm.connect.group.load_watch.{key}", ms)
    async with worker_group(bootstrap, name) as group:
        group.topic.put(a=8)
        one, two = await group.start("one", "two")
        await group.until()
        busy = {str(t): 0.9 for t in one.tasks}
        quiet = {str(t): 0.0 for t in two.tasks}
        for member in (one, two):
            member.listener.costs = busy | quiet
        await group.until(lambda: len({str(t) for t in one.tasks} & busy.keys()) == 2 and group.settled())
        assert {str(t) for t in one.tasks} <= busy.keys(), "idle tasks stay where they are"
        assert group.arena.clashes == []

        # What came last is told in one more round each; then there is nothing more to say.
        async def quiet() -> bool:
            rounds = one.membership.rebalances
            await asyncio.sleep(1)
            return one.membership.rebalances == rounds

        async with asyncio.timeout(60):
            while not await quiet():
                pass


async def test_group_changes_in_quick_succession_share_a_round(bootstrap: str, name: str) -> None:
    """With two rounds for each of hundreds of connectors in a row, the worker does little else."""
    async with worker_group(bootstrap, name) as group:
        (one,) = await group.start("one")
        assigned = one.listener.on_assigned

        async def slowly(*args: Any) -> None:
            await asyncio.sleep(0.4)
            await assigned(*args)

        one.listener.on_assigned = slowly  # type: ignore[method-assign]
        await group.change(a=1)
        await group.until()
        rounds = one.membership.rebalances
        for connector in "bcd":
            await group.change(**{connector: 2})
            await asyncio.sleep(0.05)
        await group.until()
        assert one.membership.rebalances == rounds + 1
        await asyncio.sleep(0.5)
        began = time.monotonic()
        await group.change(e=1)
        await group.until(lambda: one.membership.rebalancing)
        assert time.monotonic() - began < 0.3, "a change after a while has its round at once"


async def test_group_nobody_rests_while_the_group_waits(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name) as group:
        group.topic.put(a=2)
        (one,) = await group.start("one")
        one.membership._rest_until = time.monotonic() + 60
        await group.change(b=2)
        await asyncio.sleep(0.3)
        assert "b" not in one.items, "it rests"
        (two,) = await group.start("two")
        await group.until(timeout_s=20)
        assert two.items


async def test_group_a_leader_knows_the_members_without_a_question(
    bootstrap: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator's answer has the work of all: megabytes for thousands of tasks, after every rebalance."""
    async with worker_group(bootstrap, name) as group:
        one, two = await group.start("one", "two")
        await group.until()
        leader, other = (one, two) if one.membership.is_leader else (two, one)

        async def refused() -> dict[str, str]:
            raise AssertionError("asked")

        for member in (one, two):
            monkeypatch.setattr(member.membership._pulse, "urls", refused)
        assert sorted((await leader.membership.members()).values()) == ["http://one:8083", "http://two:8083"]
        with pytest.raises(AssertionError, match="asked"):
            await other.membership.members()
