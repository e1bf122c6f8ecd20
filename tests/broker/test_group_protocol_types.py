"""Groups that are not of consumers: Connect's workers and the schema registry's, whose metadata the broker never reads."""

from __future__ import annotations

import pytest
from support.consumer_group_sim import ConsumerSim, SimMember
from support.group_sim import GROUP

from klamm_broker.coordinator.model import Protocol
from klamm_kafka.wire.errors import ErrorCode as E

OPAQUE = bytes(range(256))
KINDS = {
    "connect eager": ("connect", ("default",)),
    "connect incremental": ("connect", ("sessioned", "compatible", "default")),
    "schema registry": ("sr", ("v0",)),
}
kinds = pytest.mark.parametrize(("type_", "names"), KINDS.values(), ids=KINDS)


@pytest.fixture
def sim() -> ConsumerSim:
    sim = ConsumerSim()
    sim.create_topic("t", 2)
    return sim


def protocols(names: tuple[str, ...], who: int) -> tuple[Protocol, ...]:
    return tuple(Protocol(name, OPAQUE + bytes([who])) for name in names)


def stable(sim: ConsumerSim, type_: str, names: tuple[str, ...], count: int = 2):
    tokens = [sim.join(protocol_type=type_, protocols=protocols(names, i)) for i in range(count)]
    sim.settle()
    return sim.assign([sim.result(t) for t in tokens])


@kinds
def test_the_leader_gets_what_members_said_and_members_get_what_it_assigned(sim, type_, names):
    leader, follower = stable(sim, type_, names)
    assert (leader.protocol_type, leader.protocol_name) == (type_, names[0])
    assert {m.metadata for m in leader.members} == {OPAQUE + b"\0", OPAQUE + b"\1"}
    assert not follower.members
    for found in (sim, sim.restarted()):
        described = found.coordinator.describe(GROUP)
        assert (described.state, described.protocol_type, described.protocol_data) == (
            "Stable",
            type_,
            names[0],
        )
        assert {m.assignment for m in described.members} == {
            leader.member_id.encode(),
            follower.member_id.encode(),
        }
        (listed,) = found.coordinator.list_groups(types=["classic"])[1]
        assert listed.protocol_type == type_
        assert not found.coordinator.list_groups(types=["consumer"])[1]


@kinds
def test_a_worker_that_joins_again_with_other_metadata_starts_a_rebalance(sim, type_, names):
    """Incremental cooperative rebalancing: members keep what they have and say so in their metadata."""
    leader, follower = stable(sim, type_, names)
    again = sim.join(follower.member_id, protocol_type=type_, protocols=protocols(names, 7))
    assert sim.heartbeat(leader.member_id, leader.generation_id) is E.REBALANCE_IN_PROGRESS
    led = sim.join(leader.member_id, protocol_type=type_, protocols=protocols(names, 0))
    joined = [sim.result(led), sim.result(again)]
    assert {j.generation_id for j in joined} == {leader.generation_id + 1}
    assert {m.metadata for m in joined[0].members} == {OPAQUE + b"\0", OPAQUE + b"\7"}
    sim.assign(joined)


@kinds
def test_others_are_kept_out_and_nothing_is_read_into_it(sim, type_, names):
    (worker,) = stable(sim, type_, names, count=1)
    other = sim.join(protocol_type="consumer", protocols=protocols(names, 1))
    assert sim.error(other) is E.INCONSISTENT_GROUP_PROTOCOL
    refused = sim.beat(**SimMember(sim, "new", "t").fields())
    assert refused.error is E.GROUP_ID_NOT_FOUND
    assert "does not use the consumer embedded protocol" in refused.error_message
    commit = sim.commit({("t", 0): 3}, member_id=worker.member_id, generation=worker.generation_id)
    assert sim.error(commit) is E.NONE
    assert sim.error(sim.delete_offsets(("t", 0))) is E.NON_EMPTY_GROUP
    assert sim.heartbeat(worker.member_id, worker.generation_id) is E.NONE
    assert sim.leave(worker.member_id) == [E.NONE]
    assert sim.error(sim.delete_offsets(("t", 0))) is E.NONE
    assert sim.error(sim.delete()) is E.NONE


def test_a_worker_of_an_older_release_takes_the_others_to_the_protocol_that_all_have(sim):
    newer, older = KINDS["connect incremental"][1], KINDS["connect eager"][1]
    tokens = [
        sim.join(protocol_type="connect", protocols=protocols(names, i))
        for i, names in enumerate((newer, newer, older))
    ]
    sim.settle()
    assert {sim.result(t).protocol_name for t in tokens} == {"default"}
