"""Static membership: group.instance.id keeps a member's place across restarts."""

from __future__ import annotations

import pytest
from support.group_sim import Sim

from klamm_broker.coordinator.model import LeavingMember, Protocol
from klamm_kafka.wire.errors import ErrorCode as E


def _stable(sim: Sim, **how):
    """Returns a Stable group of two static members, `one` (the leader) and `two`."""
    tokens = [sim.join(instance="one", **how), sim.join(instance="two", **how)]
    sim.settle()
    return sim.assign([sim.result(t) for t in tokens])


def test_static_members_need_no_second_join():
    sim = Sim()
    token = sim.join(instance="one", needs_id=True)
    sim.settle()
    assert sim.result(token).member_id == "one-id0"


def test_a_restarted_follower_keeps_its_assignment_without_a_rebalance():
    sim = Sim()
    one, two = _stable(sim)
    joined = sim.result(sim.join(instance="two"))
    assert joined.error is E.NONE
    assert joined.generation_id == two.generation_id == 1
    assert joined.member_id != two.member_id
    assert joined.leader == one.member_id
    assert not joined.skip_assignment
    assert sim.state() == "Stable"
    assert sim.result(sim.sync(joined.member_id, 1, instance="two")).assignment == two.member_id.encode()
    assert sim.heartbeat(one.member_id, 1, instance="one") is E.NONE


def test_a_restarted_leader_is_told_to_skip_the_assignment():
    sim = Sim()
    _, two = _stable(sim)
    joined = sim.result(sim.join(instance="one"))
    assert joined.skip_assignment
    assert joined.leader == joined.member_id
    assert {m.group_instance_id for m in joined.members} == {"one", "two"}
    assert sim.state() == "Stable"
    assert sim.heartbeat(two.member_id, 1, instance="two") is E.NONE


def test_an_older_restarted_leader_does_not_learn_that_it_leads():
    sim = Sim()
    one, _ = _stable(sim)
    joined = sim.result(sim.join(instance="one", skips=False))
    assert (joined.leader, joined.members, joined.skip_assignment) == (one.member_id, (), False)


def test_the_former_self_is_fenced():
    sim = Sim()
    _, two = _stable(sim)
    sim.join(instance="two")
    old = two.member_id
    assert sim.heartbeat(old, 1, instance="two") is E.FENCED_INSTANCE_ID
    assert sim.error(sim.sync(old, 1, instance="two")) is E.FENCED_INSTANCE_ID
    assert sim.error(sim.join(old, instance="two")) is E.FENCED_INSTANCE_ID
    assert (
        sim.error(sim.commit({("t", 0): 1}, member_id=old, generation=1, instance="two"))
        is E.FENCED_INSTANCE_ID
    )
    assert sim.leave(LeavingMember(old, "two")) == [E.FENCED_INSTANCE_ID]
    assert sim.heartbeat(old, 1) is E.UNKNOWN_MEMBER_ID


def test_parked_requests_of_the_former_self_are_fenced():
    sim = Sim()
    tokens = [sim.join(instance="one"), sim.join(instance="two")]
    sim.settle()
    two = sim.result(tokens[1])
    parked = sim.sync(two.member_id, 1, instance="two")
    replaced = sim.join(instance="two")
    assert sim.error(parked) is E.FENCED_INSTANCE_ID
    assert sim.parked(replaced), "the leader may assign to the old id, so that generation is lost"
    assert sim.state() == "PreparingRebalance"
    again = sim.join(instance="two")
    assert sim.error(replaced) is E.FENCED_INSTANCE_ID
    assert sim.parked(again)


def test_a_restart_that_changes_the_protocol_starts_a_rebalance():
    xy = (Protocol("x", b""), Protocol("y", b""))
    yx = (Protocol("y", b""), Protocol("x", b""))
    sim = Sim()
    tokens = [sim.join(instance="one", protocols=xy), sim.join(instance="two", protocols=xy)]
    sim.settle()
    sim.assign([sim.result(t) for t in tokens])
    token = sim.join(instance="two", protocols=(Protocol("y", b""),))
    assert sim.parked(token)
    assert sim.state() == "PreparingRebalance"
    other = Sim()
    tokens = [other.join(instance="one", protocols=xy), other.join(instance="two", protocols=xy)]
    other.settle()
    other.assign([other.result(t) for t in tokens])
    assert not other.parked(other.join(instance="two", protocols=yx)), "x still has a vote and came first"


def test_the_new_id_counts_once_it_is_durable():
    sim = Sim()
    _stable(sim)
    sim.auto = False
    token = sim.join(instance="two")
    assert sim.parked(token)
    sim.finish_appends()
    assert sim.error(token) is E.NONE
    loaded = sim.restarted()
    assert loaded.heartbeat(sim.result(token).member_id, 1, instance="two") is E.NONE


def test_a_new_id_that_cannot_be_stored_is_refused_and_the_group_starts_over():
    sim = Sim()
    one, _ = _stable(sim)
    sim.auto = False
    token = sim.join(instance="two")
    sim.finish_appends(E.KAFKA_STORAGE_ERROR)
    assert sim.error(token) is E.NOT_COORDINATOR
    assert sim.heartbeat(one.member_id, 1, instance="one") is E.REBALANCE_IN_PROGRESS
    retry = sim.join(instance="two")
    sim.join(one.member_id, instance="one")
    assert sim.result(retry).generation_id == 2


def test_a_member_whose_session_ran_out_while_it_was_parked_is_watched_again():
    sim = Sim()
    one, _ = _stable(sim, session_ms=10_000)
    sim.auto = False
    token = sim.join(instance="two", session_ms=10_000)
    for _ in range(2):
        sim.advance(6_000)
        assert sim.heartbeat(one.member_id, 1, instance="one") is E.NONE
    assert sim.parked(token)
    sim.finish_appends(E.KAFKA_STORAGE_ERROR)
    assert sim.error(token) is E.NOT_COORDINATOR
    sim.advance(200_000)
    sim.finish_appends()
    assert sim.state() == "Empty", "it never came back"


def test_a_rebalance_overtakes_the_write_of_a_new_id():
    sim = Sim()
    one, _ = _stable(sim)
    sim.auto = False
    token = sim.join(instance="two")
    sim.join(one.member_id, instance="one")  # the leader asks for a rebalance
    assert sim.result(token).generation_id == 2
    sim.finish_appends(E.KAFKA_STORAGE_ERROR)
    assert sim.state() == "CompletingRebalance"


def test_static_members_keep_their_place_until_their_session_ends():
    sim = Sim()
    one, _ = _stable(sim, session_ms=60_000, rebalance_ms=10_000)
    token = sim.join(one.member_id, instance="one", session_ms=60_000, rebalance_ms=10_000)
    sim.advance(10_000)
    joined = sim.result(token)
    assert joined.generation_id == 2
    assert len(joined.members) == 2, "the other one did not come, and is still a member"


def test_a_rebalance_without_anybody_waits_for_the_sessions():
    sim = Sim()
    one, two = _stable(sim, session_ms=60_000, rebalance_ms=10_000)
    sim.leave(LeavingMember(one.member_id, "one"))
    sim.advance(50_000)
    assert sim.state() == "PreparingRebalance"
    assert sim.coordinator.groups["g"].leader_id == two.member_id
    sim.advance(20_000)
    assert sim.state() == "Empty"


def test_an_administrator_removes_by_instance_id():
    sim = Sim()
    _stable(sim)
    assert sim.leave(LeavingMember("", "two"), LeavingMember("", "three")) == [E.NONE, E.UNKNOWN_MEMBER_ID]
    assert set(sim.coordinator.groups["g"].static_members) == {"one"}


@pytest.mark.parametrize("instance", ["i" * 30_000, "\N{GRINNING FACE}" * 8_191])
def test_member_ids_fit_the_wire(instance):
    sim = Sim()
    token = sim.join(instance=instance)
    sim.settle()
    assert len(sim.result(token).member_id.encode()) <= 32_767


def test_an_id_given_to_a_dynamic_member_is_no_static_one():
    sim = Sim()
    pending = sim.result(sim.join(needs_id=True)).member_id
    assert sim.error(sim.join(pending, instance="one")) is E.UNKNOWN_MEMBER_ID
