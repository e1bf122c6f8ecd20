"""A defect (an exception that nobody expects) in one group request: whoever waits is answered, the others are served."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
from support.consumer_group_sim import ConsumerSim, SimMember, settle
from support.group_sim import GROUP, Sim
from support.inprocess import connect, serving

from klamm_broker.coordinator.administration import Administration
from klamm_broker.coordinator.consumer.core import Core
from klamm_broker.coordinator.consumer.group import ConsumerGroup
from klamm_broker.coordinator.effects import Now, Turn
from klamm_broker.coordinator.model import LeavingMember, TopicPartition
from klamm_broker.coordinator.offsets import Offsets
from klamm_broker.coordinator.rebalance import Rebalancer
from klamm_broker.coordinator.table import GroupTable
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

PATHS = os.pathsep.join(path for path in sys.path if path)


def fail_once(monkeypatch, owner: type, name: str) -> list[str]:
    """Makes the next call of this method raise; the returned list has an entry once it did."""
    failed: list[str] = []
    real = getattr(owner, name)

    def call(*args, **kwargs):
        if not failed:
            failed.append(name)
            raise RuntimeError("a defect")
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return failed


@pytest.fixture
def sim() -> ConsumerSim:
    sim = ConsumerSim()
    sim.create_topic("t", 6)
    return sim


def leave(sim: Sim) -> str:
    token = sim.token("leave")
    sim.run(sim.coordinator.leave(GROUP, [LeavingMember("a")], token, sim.now))
    return token


@pytest.mark.parametrize(
    ("ask", "owner", "name"),
    [
        (lambda sim: sim.join("", protocol_type="consumer"), GroupTable, "unavailable"),
        (lambda sim: sim.sync("a", 2), GroupTable, "unavailable"),
        (leave, GroupTable, "unavailable"),
        (lambda sim: sim.delete(), GroupTable, "unavailable"),
        (lambda sim: sim.delete_offsets(("t", 0)), GroupTable, "unavailable"),
        (lambda sim: sim.commit({("t", 0): 1}), GroupTable, "unavailable"),
        (lambda sim: sim.send(**SimMember(sim, "c", "t").fields()), Core, "open"),
    ],
    ids=["join", "sync", "leave", "delete", "delete offsets", "commit", "heartbeat"],
)
def test_a_request_that_waits_and_fails_is_answered_and_so_are_those_behind_it(
    sim, monkeypatch, ask, owner, name
):
    SimMember(sim, "a", "t").beat()
    sim.auto = False
    first = sim.send(**SimMember(sim, "b", "t").fields())
    second = ask(sim)
    third = sim.send(**SimMember(sim, "d", "t").fields())
    assert not {first, second, third} & sim.replies.keys(), "they wait for the change that is being written"
    failed = fail_once(monkeypatch, owner, name)
    with pytest.raises(RuntimeError, match="a defect"):
        sim.finish_append(sim.group.partition)
    sim.auto = True
    sim.run(sim.coordinator.tick(sim.now))
    sim.finish_appends()
    assert failed
    assert sim.error(second) is E.UNKNOWN_SERVER_ERROR
    assert (sim.error(first), sim.error(third)) == (E.NONE, E.NONE)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_change_that_is_durable_and_cannot_be_taken_in_is_answered(sim, monkeypatch, leaves):
    a, b = SimMember(sim, "a", "t"), SimMember(sim, "b", "t")
    settle([a, b])
    sim.auto = False
    token = sim.send(member_id="a", member_epoch=-1) if leaves else sim.send(**SimMember(sim, "c").fields())
    fail_once(monkeypatch, ConsumerGroup, "apply")
    with pytest.raises(RuntimeError, match="a defect"):
        sim.finish_append(sim.group.partition)
    sim.run(sim.coordinator.tick(sim.now))
    assert sim.error(token) is E.UNKNOWN_SERVER_ERROR


def test_a_commit_that_is_durable_and_cannot_be_taken_in_is_answered(monkeypatch):
    sim = Sim(auto=False)
    token = sim.commit({("t", 0): 5})
    fail_once(monkeypatch, Offsets, "_settle")
    with pytest.raises(RuntimeError, match="a defect"):
        sim.finish_append(next(iter(sim.in_flight)))
    sim.run(sim.coordinator.tick(sim.now))
    assert sim.error(token) is E.UNKNOWN_SERVER_ERROR


async def test_a_request_of_a_client_that_fails_behind_an_append_is_answered(tmp_path, monkeypatch):
    """On the wire: the join's change is written, then taking it in fails."""
    async with serving(tmp_path) as server, await connect(server) as connection:
        fail_once(monkeypatch, ConsumerGroup, "apply")
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"], topic_partitions=[],
        )  # fmt: skip
        assert (await connection.request(request, 1)).error_code == E.UNKNOWN_SERVER_ERROR


# Time


def test_a_session_whose_end_fails_ends_later(sim, monkeypatch, caplog):
    a, b = SimMember(sim, "a", "t"), SimMember(sim, "b", "t")
    settle([a, b])
    failed = fail_once(monkeypatch, Core, "fence")
    with caplog.at_level(logging.ERROR):
        sim.advance(60_000)
    assert failed
    assert "tried again: member g" in caplog.text
    assert not sim.group.members, "neither stays for ever, nor keeps the other"


def test_a_classic_session_whose_end_fails_ends_later(monkeypatch):
    sim = Sim()
    sim.stable(1)
    failed = fail_once(monkeypatch, Rebalancer, "expire_session")
    sim.advance(30_000)
    assert failed
    assert sim.state() == "Empty"


def test_a_deadline_that_waits_and_fails_comes_again(sim, monkeypatch):
    a, b = SimMember(sim, "a", "t"), SimMember(sim, "b", "t")
    settle([a, b])
    for _ in range(9):
        sim.advance(4_000)
        b.beat()
    sim.advance(3_000)
    sim.auto = False
    first = sim.send(**SimMember(sim, "c", "t").fields())
    sim.mono_ms += 5_000
    sim.run(sim.coordinator.tick(sim.now))
    assert "a" in sim.group.members, "its end waits"
    fail_once(monkeypatch, Core, "fence")
    with pytest.raises(RuntimeError, match="a defect"):
        sim.finish_append(sim.group.partition)
    sim.auto = True
    sim.advance(1_000)
    assert sim.error(first) is E.NONE
    assert "a" not in sim.group.members


def test_offsets_expire_after_a_clean_up_that_failed(monkeypatch):
    sim = Sim(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=10_000)
    sim.commit({("t", 0): 5})
    failed = fail_once(monkeypatch, Administration, "expire_offsets")
    sim.advance(40_000)
    assert failed
    assert not sim.coordinator.groups


def test_what_does_not_wait_raises_to_whoever_asks():
    turn = Turn()

    def fail(_: E) -> None:
        raise RuntimeError("a defect")

    turn.append(0, [], fail)
    (append,) = turn.end()
    with pytest.raises(RuntimeError, match="a defect"):
        append.then(E.NONE, Now(0, 0))


# What a change that is being written decides


def test_a_commit_waits_for_the_change_that_is_being_written(sim):
    """Else the offset of a member that has been removed would come after those of whoever took over."""
    a, b = SimMember(sim, "a", "t"), SimMember(sim, "b", "t")
    settle([a, b])
    sim.auto = False
    left = sim.send(member_id="a", member_epoch=-1)
    commit = sim.commit({("t", 0): 5}, member_id="a", generation=a.epoch)
    assert sim.parked(commit)
    sim.finish_appends()
    assert sim.error(left) is E.NONE
    assert sim.error(commit) is E.UNKNOWN_MEMBER_ID
    assert sim.offsets() == {}


def test_nothing_is_left_of_members_that_were_removed_while_they_gave_up(sim):
    a, b = SimMember(sim, "a", "t", slow=True), SimMember(sim, "b", "t")
    a.beat()
    a.owned = a.target
    sim.advance(1_000)
    b.beat()
    a.beat()
    assert set(sim.group.revocation_epochs) == {"a"}
    a.leave()
    assert sim.group.revocation_epochs == {}


def test_offsets_of_one_deleted_partition_are_found_among_many():
    sim = Sim()
    at = {("t", p): p for p in range(50)}
    sim.commit(at)
    sim.commit({("t", 3): 1}, group="other")
    sim.run(sim.coordinator.on_partitions_deleted([TopicPartition("t", 3)], sim.now))
    assert sim.offsets() == {k: v for k, v in at.items() if k != ("t", 3)}
    assert sim.offsets("other") == {}


def test_a_clean_up_that_finds_many_offsets_takes_several_ticks():
    sim = Sim(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=10_000)
    for group in range(4):
        sim.commit({("t", p): p for p in range(3_000)}, group=f"g{group}")
    sim.mono_ms = 20_000
    sim.run(sim.coordinator.tick(sim.now))
    assert len(sim.coordinator.groups) == 2
    sim.advance(10)
    assert not sim.coordinator.groups


# What an idle broker does not need


@pytest.mark.usefixtures("processes")
def test_what_only_consumer_groups_need_is_not_loaded_at_the_start(tmp_path):
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from support.inprocess import serving\n"
        "async def main():\n"
        "    async with serving(Path(sys.argv[1])):\n"
        "        print(sorted({'re2', 'xxhash'} & set(sys.modules)))\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": PATHS}
    )
    assert done.stdout.strip() == "[]"
