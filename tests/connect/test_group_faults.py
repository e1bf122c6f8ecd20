"""Worker groups when something goes wrong: crashes, cuts, slow workers, a config topic that cannot be read."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from support.connect_worker import free_port
from support.cutting_proxy import CuttingProxy
from support.worker_churn import Churn
from support.worker_group import worker_group

from klamm.connect.group.listener import ConfigView
from klamm.connect.group.requests import MembershipLost
from klamm.testing import EmbeddedBroker
from klamm_kafka.client import Cluster
from klamm_kafka.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity


@pytest.fixture
def name() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


async def test_group_a_lost_workers_tasks_run_elsewhere_in_time(bootstrap: str, name: str) -> None:
    """They move when its session has ended (Kafka waits five minutes by default), and nothing else moves."""
    async with worker_group(bootstrap, name, session_timeout_ms="6000", heartbeat_interval_ms="200") as group:
        group.topic.put(a=6)
        one, _, three = await group.start("one", "two", "three")
        await group.until()
        kept = one.items | three.items
        moves = group.arena.moves
        two = await group.crash("two")
        assert not two.items
        await group.until()
        assert group.arena.moves - moves == len(group.topic.items - kept)
        assert group.arena.clashes == []


async def test_group_a_lost_leader_is_followed_by_another(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name, session_timeout_ms="1000") as group:
        group.topic.put(a=4)
        one, two = await group.start("one", "two")
        await group.until()
        leader, other = (one, two) if one.membership.is_leader else (two, one)
        await group.crash(leader.listener.name)
        await group.until()
        assert other.membership.is_leader
        assert other.items == group.topic.items


async def test_group_a_worker_that_is_cut_off_stops_before_others_start(bootstrap: str, name: str) -> None:
    async with (
        CuttingProxy(bootstrap) as proxy,
        worker_group(bootstrap, name, session_timeout_ms="6000") as group,
    ):
        group.topic.put(a=4)
        (one,) = await group.start("one")
        (two,) = await group.start("two", make_cluster=proxy.cluster)
        await group.until()
        assert two.membership.alive
        proxy.drop()
        await group.until(lambda: "lost" in two.listener.events)
        assert not two.membership.alive
        assert not two.membership.leader_url
        await group.until(lambda: one.items == group.topic.items)
        proxy.restore()
        await group.until(lambda: bool(two.items) and group.settled())
        assert two.listener.events.count("lost") == 1
        assert group.arena.clashes == []


async def test_group_a_short_cut_loses_nothing(bootstrap: str, name: str) -> None:
    async with (
        CuttingProxy(bootstrap) as proxy,
        worker_group(bootstrap, name) as group,
    ):
        group.topic.put(a=4)
        one, two = await group.start("one", "two", make_cluster=proxy.cluster)
        await group.until()
        moves = group.arena.moves
        for cut in (proxy.reset, proxy.drop):
            cut()
            await asyncio.sleep(0.3)  # as long as the network is away
            proxy.restore()
            heartbeats = one.membership.heartbeats, two.membership.heartbeats
            await group.until(lambda h=heartbeats: one.membership.heartbeats > h[0] + 1)
            await group.until(lambda h=heartbeats: two.membership.heartbeats > h[1] + 1)
        await group.until()
        assert "lost" not in one.listener.events + two.listener.events
        assert group.arena.moves == moves


async def test_group_a_worker_that_slept_notices_before_it_does_anything(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name, session_timeout_ms="1000") as group:
        group.topic.put(a=2)
        (one,) = await group.start("one")
        time.sleep(1.2)  # the loop stands still, for longer than the session
        assert not one.membership.alive
        await group.until(lambda: "lost" in one.listener.events)
        await group.until()


async def test_group_a_worker_that_is_thrown_out_stops_and_comes_back(bootstrap: str, name: str) -> None:
    """By an administrator, that is: it learns so from its next heartbeat, and others may be quicker. Generations tell
    then whose word counts.
    """
    async with worker_group(bootstrap, name) as group, Cluster(bootstrap) as admin:
        group.topic.put(a=4)
        one, two = await group.start("one", "two")
        await group.until()
        thrown = two.membership.member_id
        coordinator = await admin.coordinator(name)
        await coordinator.request(
            LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id=thrown)])
        )
        await group.until(lambda: "lost" in two.listener.events)
        await group.until(lambda: bool(two.items) and bool(one.items) and group.settled())
        assert two.membership.member_id != thrown


@pytest.mark.usefixtures("processes")
async def test_group_a_broker_that_restarts_keeps_its_group(tmp_path: Path, name: str) -> None:
    config = {"group.min.session.timeout.ms": "1000"}
    with EmbeddedBroker(tmp_path / "data", port=free_port(), config=config) as broker:
        async with worker_group(broker.bootstrap, name) as group:
            group.topic.put(a=4)
            one, two = await group.start("one", "two")
            await group.until()
            moves, members = group.arena.moves, (one.membership.member_id, two.membership.member_id)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            await group.change(b=2)
            await group.until(timeout_s=60)
            assert (one.membership.member_id, two.membership.member_id) == members
            assert group.arena.moves == moves + 3
            assert "lost" not in one.listener.events + two.listener.events


async def test_group_a_worker_that_starts_again_does_not_wait_for_its_old_session(
    bootstrap: str, name: str
) -> None:
    async with worker_group(bootstrap, name, session_timeout_ms="240000") as group:
        group.topic.put(a=4)
        await group.start("one")
        (two,) = await group.start("two", instance_id="host-2:8083")
        await group.until()
        had = set(two.items)
        moves = group.arena.moves
        await group.crash("two")
        async with asyncio.timeout(60):  # the session is longer
            (again,) = await group.start("two", instance_id="host-2:8083")
            await group.until()
        assert len(again.items) == len(had)
        assert group.arena.moves - moves <= 2 * len(had)


async def test_group_of_two_with_one_place_the_newer_stays(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name) as group:
        group.topic.put(a=1)
        (old,) = await group.start("one", instance_id="host:8083")
        lost = asyncio.create_task(old.membership.lost())
        (new,) = await group.start("two", instance_id="host:8083")
        with pytest.raises(MembershipLost, match="took the place of host:8083"):
            await asyncio.wait_for(lost, 60)
        await group.until(lambda: new.items == group.topic.items)


async def test_group_stops_with_a_sentence_where_consumers_are(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name) as group:
        await group.start("one", connect_protocol="compatible")
        stranger = group.make("stranger")
        stranger.membership._rebalancer._metadata = lambda _view: [("range", b"\x00\x00")]  # type: ignore[method-assign]
        with pytest.raises(MembershipLost, match=r"share no protocol.*connect\.protocol"):
            await stranger.membership.start()


async def test_group_says_what_is_wrong_with_a_session_timeout(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name) as group:
        hasty = group.make("hasty", session_timeout_ms="10")
        with pytest.raises(
            MembershipLost, match=r"session\.timeout\.ms=10 is not between .*group\.min\.session"
        ):
            await hasty.membership.start()


# Slow and lagging workers


async def test_group_a_slow_stop_holds_up_what_moves_only(bootstrap: str, name: str) -> None:
    """Longer than the session: heartbeats go on meanwhile."""
    async with worker_group(bootstrap, name, session_timeout_ms="4000") as group:
        group.topic.put(a=4)
        (one,) = await group.start("one")
        one.listener.stopping_takes_s = 4.5
        (two,) = await group.start("two")
        assert two.items == set()
        await group.until()
        one.listener.stopping_takes_s = 0.0
        assert len(two.tasks) == 2
        assert "lost" not in one.listener.events
        assert group.arena.clashes == []


async def test_group_who_stops_for_too_long_is_counted_out(bootstrap: str, name: str) -> None:
    """Under the eager protocol the group waits for everybody to stop, but no longer than rebalance.timeout.ms."""
    properties = {"connect_protocol": "eager", "rebalance_timeout_ms": "500", "session_timeout_ms": "5000"}
    async with worker_group(bootstrap, name, **properties) as group:
        group.topic.put(a=4)
        (one,) = await group.start("one")
        one.listener.stopping_takes_s = 1.0
        (two,) = await group.start("two")
        await group.until(lambda: "lost" in one.listener.events)
        one.listener.stopping_takes_s = 0.0
        await group.until(lambda: bool(one.items) and bool(two.items) and group.settled())


async def test_group_a_leader_that_is_behind_reads_on_first(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name) as group:
        group.topic.put(a=2)
        one = group.make("one")
        one.listener.known = ConfigView(offset=0)
        await one.membership.start()
        assert one.items == set()
        group.topic.put(b=2)
        (two,) = await group.start("two")
        await group.until()
        assert one.membership.is_leader
        assert one.items
        assert two.items


async def test_group_a_worker_that_cannot_read_the_config_topic_leaves(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name, worker_unsync_backoff_ms="300") as group:
        group.topic.put(a=4)
        (one,) = await group.start("one")
        two = group.make("two")
        two.listener.known, two.listener.readable = ConfigView(offset=0), False
        starting = asyncio.create_task(two.membership.start())
        await group.until(lambda: two.membership._unsynced > 1)
        assert two.items == set()
        two.listener.readable = True
        await starting
        await group.until(lambda: bool(two.items) and group.settled())
        assert one.items
        assert two.membership._unsynced == 0


# Protocols


async def test_group_eager(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name, connect_protocol="eager") as group:
        group.topic.put(a=3, b=1)
        one, two = await group.start("one", "two")
        await group.until()
        assert one.membership.protocol_version == two.membership.protocol_version == 0
        await group.change(c=2)
        await group.until()
        await group.leave("one")
        await group.until()
        assert two.items == group.topic.items
        assert group.arena.clashes == []


async def test_group_speaks_what_all_know(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name) as group:
        group.topic.put(a=5)
        (one,) = await group.start("one")
        assert one.membership.protocol_version == 2
        (two,) = await group.start("two", connect_protocol="compatible")
        await group.until()
        assert one.membership.protocol_version == two.membership.protocol_version == 1
        (three,) = await group.start("three", connect_protocol="eager")
        await group.until(lambda: bool(three.items) and group.settled())
        assert one.membership.protocol_version == three.membership.protocol_version == 0
        await group.leave("three")
        await group.leave("two")
        await group.until()
        assert one.membership.protocol_version == 2
        assert group.arena.clashes == []


# scheduled.rebalance.max.delay.ms


async def test_group_a_restart_within_the_delay_moves_nothing_else(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name, scheduled_rebalance_max_delay_ms="30000") as group:
        group.topic.put(a=6)
        one, two, three = await group.start("one", "two", "three")
        await group.until()
        leader = next(m for m in (one, two, three) if m.membership.is_leader)
        gone = next(m for m in (one, two, three) if m is not leader)
        stays = {m.listener.name: set(m.items) for m in (one, two, three) if m is not gone}
        moves, had = group.arena.moves, set(gone.items)
        await group.leave(gone.listener.name)
        await group.until(
            lambda: leader.listener.assignment is not None and leader.listener.assignment.delay_ms > 0
        )
        assert {i for i, n in group.arena.running.items() if n} == group.topic.items - had
        (again,) = await group.start(gone.listener.name)
        await group.until()
        assert again.items == had
        assert group.arena.moves == moves + len(had)
        assert all(group.members[n].items == items for n, items in stays.items())


async def test_group_after_the_delay_others_take_over(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name, scheduled_rebalance_max_delay_ms="800") as group:
        group.topic.put(a=6)
        one, two = await group.start("one", "two")
        await group.until()
        leader, gone = (one, two) if one.membership.is_leader else (two, one)
        began = time.monotonic()
        await group.leave(gone.listener.name)
        await group.until(lambda: leader.items == group.topic.items)
        assert time.monotonic() - began >= 0.8


# Everything together


async def test_group_churn(bootstrap: str, name: str) -> None:
    async with worker_group(bootstrap, name, session_timeout_ms="1000", heartbeat_interval_ms="50") as group:
        await Churn(group, seed=11).run(12)


@pytest.mark.parametrize(
    ("seed", "properties"),
    [
        (1, {}),
        (2, {}),
        (3, {"connect_protocol": "compatible"}),
        (4, {"connect_protocol": "eager"}),
        (5, {"scheduled_rebalance_max_delay_ms": "700"}),
    ],
)
async def test_group_long_churn(bootstrap: str, name: str, seed: int, properties: dict[str, str]) -> None:
    """A hundred rebalances and more, with cuts."""
    properties = {"session_timeout_ms": "1000", "heartbeat_interval_ms": "50", **properties}
    async with AsyncExitStack() as proxies, worker_group(bootstrap, name, **properties) as group:
        await Churn(group, seed, proxies).run(60)
