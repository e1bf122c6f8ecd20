"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup against one group, in simulated time."""

from __future__ import annotations

import pytest
from support.group_sim import Sim

from klamm_broker.coordinator.model import LeavingMember, Protocol
from klamm_kafka.wire.errors import ErrorCode as E

XY = (Protocol("x", b"1"), Protocol("y", b"2"))
YX = (Protocol("y", b"2"), Protocol("x", b"1"))
Z = (Protocol("z", b"3"),)


def test_a_new_dynamic_member_gets_its_id_first():
    sim = Sim()
    first = sim.result(sim.join(needs_id=True))
    assert first.error is E.MEMBER_ID_REQUIRED
    assert first.member_id == "client-id0"
    assert sim.state() == "Empty"
    token = sim.join(first.member_id, needs_id=True)
    sim.settle()
    joined = sim.result(token)
    assert (joined.error, joined.generation_id, joined.leader) == (E.NONE, 1, first.member_id)


def test_an_older_member_joins_at_once():
    sim = Sim()
    token = sim.join()
    sim.settle()
    joined = sim.result(token)
    assert joined.member_id == joined.leader == "client-id0"
    assert [m.member_id for m in joined.members] == ["client-id0"]


def test_the_initial_delay_collects_members_and_extends_while_they_come():
    sim = Sim(initial_rebalance_delay_ms=3000)
    first = sim.join(rebalance_ms=10_000)
    sim.advance(2000)
    second = sim.join(rebalance_ms=10_000)
    sim.advance(1000)
    assert sim.parked(first), "a member came within the delay, so it goes on"
    sim.advance(2999)
    assert sim.parked(first)
    sim.advance(1)
    assert sim.result(first).generation_id == sim.result(second).generation_id == 1


def test_the_initial_delay_never_exceeds_the_rebalance_timeout():
    sim = Sim(initial_rebalance_delay_ms=3000)
    first = sim.join(rebalance_ms=7000)
    for _ in range(7):
        assert sim.parked(first)
        sim.join(rebalance_ms=7000)
        sim.advance(1000)
    assert not sim.parked(first)


def test_the_initial_delay_is_short_when_nobody_else_comes():
    sim = Sim(initial_rebalance_delay_ms=3000)
    token = sim.join()
    sim.advance(2999)
    assert sim.parked(token)
    sim.advance(1)
    assert not sim.parked(token)


def test_only_the_leader_learns_of_the_members():
    sim = Sim()
    leader, follower = sim.stable(2)
    assert len(leader.members) == 2
    assert follower.members == ()
    assert follower.leader == leader.member_id


def test_assignments_are_handed_out_once_they_are_durable():
    sim = Sim(auto=False)
    tokens = [sim.join(), sim.join()]
    sim.settle()
    a, b = (sim.result(t) for t in tokens)
    follower = sim.sync(b.member_id, 1)
    leader = sim.sync(a.member_id, 1, {a.member_id: b"A", b.member_id: b"B"})
    assert sim.parked(follower)
    assert sim.parked(leader)
    assert sim.state() == "CompletingRebalance"
    sim.finish_appends()
    assert sim.result(leader).assignment == b"A"
    assert sim.result(follower).assignment == b"B"
    assert sim.state() == "Stable"


def test_a_member_the_leader_forgot_gets_an_empty_assignment():
    sim = Sim()
    tokens = [sim.join(), sim.join()]
    sim.settle()
    a, b = (sim.result(t) for t in tokens)
    sim.sync(a.member_id, 1, {a.member_id: b"A"})
    assert sim.result(sim.sync(b.member_id, 1)).assignment == b""


@pytest.mark.parametrize(
    ("append", "told"),
    [
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.CORRUPT_MESSAGE, E.CORRUPT_MESSAGE),
    ],
)
def test_an_assignment_that_cannot_be_stored_starts_over(append, told):
    sim = Sim(auto=False)
    token = sim.join()
    sim.settle()
    member = sim.result(token)
    sync = sim.sync(member.member_id, 1, {member.member_id: b"A"})
    sim.finish_appends(append)
    assert sim.error(sync) is told
    assert sim.state() == "PreparingRebalance"
    again = sim.join(member.member_id)
    assert sim.result(again).generation_id == 2


def test_a_leader_that_syncs_twice_is_stored_once():
    sim = Sim(auto=False)
    token = sim.join()
    sim.settle()
    member = sim.result(token)
    first = sim.sync(member.member_id, 1, {member.member_id: b"A"})
    second = sim.sync(member.member_id, 1, {member.member_id: b"B"})
    assert sim.error(first) is E.REBALANCE_IN_PROGRESS
    sim.finish_appends()
    assert sim.result(second).assignment == b"A"
    assert sum(len(records) for records in sim.log.values()) == 1


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_a_new_member_starts_a_rebalance(state):
    sim = Sim()
    old = sim.stable(1)[0]
    new = sim.join()
    assert sim.parked(new)
    assert sim.heartbeat(old.member_id, 1) is E.REBALANCE_IN_PROGRESS
    again = sim.join(old.member_id)
    assert sim.result(again).generation_id == sim.result(new).generation_id == 2
    if state == "Stable":
        sim.assign([sim.result(again), sim.result(new)])
        assert sim.heartbeat(old.member_id, 2) is E.NONE
    else:
        assert sim.state() == "CompletingRebalance"
        assert sim.heartbeat(old.member_id, 2) is E.NONE


def test_whoever_does_not_join_again_in_time_is_out():
    sim = Sim()
    a, b = sim.stable(2, session_ms=30_000, rebalance_ms=20_000)
    new = sim.join(rebalance_ms=20_000)
    again = sim.join(a.member_id, rebalance_ms=20_000)
    sim.advance(19_999)
    assert sim.parked(again)
    sim.advance(1)
    assert sim.result(again).generation_id == sim.result(new).generation_id == 2
    assert sim.heartbeat(b.member_id, 1) is E.UNKNOWN_MEMBER_ID


def test_the_leader_changes_when_it_does_not_join_again():
    sim = Sim()
    leader, other = sim.stable(2, session_ms=30_000, rebalance_ms=20_000)
    sim.join(rebalance_ms=20_000)
    again = sim.join(other.member_id, rebalance_ms=20_000)
    sim.advance(20_000)
    assert sim.result(again).leader != leader.member_id
    assert len(sim.result(again).members) == 2


def test_whoever_does_not_sync_in_time_is_out():
    sim = Sim()
    tokens = [sim.join(session_ms=60_000, rebalance_ms=20_000) for _ in range(2)]
    sim.settle()
    a, b = (sim.result(t) for t in tokens)
    parked = sim.sync(b.member_id, 1)
    sim.advance(20_000)
    assert sim.error(parked) is E.REBALANCE_IN_PROGRESS
    assert sim.heartbeat(a.member_id, 1) is E.UNKNOWN_MEMBER_ID
    assert sim.result(sim.join(b.member_id)).leader == b.member_id


def test_a_session_ends_without_heartbeats_and_goes_on_with_them():
    sim = Sim()
    a, b = sim.stable(2, session_ms=10_000)
    for _ in range(4):
        sim.advance(5_000)
        if sim.heartbeat(a.member_id, 1) is E.REBALANCE_IN_PROGRESS:
            break
    assert sim.heartbeat(b.member_id, 1) is E.UNKNOWN_MEMBER_ID
    assert sim.state() == "PreparingRebalance"


def test_a_pending_member_that_stays_away_is_forgotten():
    sim = Sim()
    sim.join(needs_id=True, session_ms=10_000)
    assert "g" in sim.coordinator.groups
    sim.advance(10_000)
    assert "g" not in sim.coordinator.groups, "nothing of this group is worth memory"
    assert sim.error(sim.join("client-id0", needs_id=True)) is E.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members():
    sim = Sim()
    (a,) = sim.stable(1)
    pending = sim.result(sim.join(needs_id=True)).member_id
    again = sim.join(a.member_id)
    assert sim.parked(again)
    joined = sim.join(pending)
    assert sim.result(again).generation_id == sim.result(joined).generation_id == 2


def test_a_parked_new_member_is_sent_away_after_five_minutes():
    sim = Sim()
    sim.stable(1, session_ms=1_800_000, rebalance_ms=1_800_000)
    token = sim.join(rebalance_ms=1_800_000)
    sim.advance(299_999)
    assert sim.parked(token)
    sim.advance(1)
    assert sim.error(token) is E.UNKNOWN_MEMBER_ID


def test_the_protocol_with_most_votes_wins_among_those_all_support():
    sim = Sim()
    tokens = [sim.join(protocols=p) for p in (XY, YX, YX)]
    sim.settle()
    assert {sim.result(t).protocol_name for t in tokens} == {"y"}
    other = Sim()
    tokens = [other.join(protocols=p) for p in (XY, XY, (Protocol("y", b"2"),))]
    other.settle()
    assert {other.result(t).protocol_name for t in tokens} == {"y"}
    assert {m.metadata for m in other.result(tokens[0]).members} == {b"2"}


def test_a_leader_that_joins_again_starts_a_rebalance_and_a_follower_does_not():
    sim = Sim()
    leader, follower = sim.stable(2)
    same = sim.result(sim.join(follower.member_id))
    assert (same.error, same.generation_id) == (E.NONE, 1)
    assert sim.state() == "Stable"
    assert sim.parked(sim.join(leader.member_id))
    assert sim.state() == "PreparingRebalance"


def test_a_follower_with_other_metadata_starts_a_rebalance():
    sim = Sim()
    _, follower = sim.stable(2)
    assert sim.parked(sim.join(follower.member_id, protocols=(Protocol("range", b"new"),)))
    assert sim.state() == "PreparingRebalance"


def test_a_lost_join_answer_is_given_again():
    sim = Sim()
    token = sim.join()
    sim.settle()
    member = sim.result(token)
    again = sim.result(sim.join(member.member_id))
    assert again == member
    changed = sim.join(member.member_id, protocols=(Protocol("range", b"new"),))
    assert sim.result(changed).generation_id == 2


def test_a_join_sent_twice_is_answered_on_both_connections():
    sim = Sim()
    a, _ = sim.stable(2)
    first = sim.join(a.member_id)
    second = sim.join(a.member_id)
    assert sim.error(first) is E.REBALANCE_IN_PROGRESS
    assert sim.parked(second)


def test_leave_starts_a_rebalance_and_the_last_one_empties_the_group():
    sim = Sim()
    a, b = sim.stable(2)
    assert sim.leave(b.member_id) == [E.NONE]
    assert sim.heartbeat(a.member_id, 1) is E.REBALANCE_IN_PROGRESS
    assert sim.leave(a.member_id) == [E.NONE]
    assert sim.state() == "Empty"
    assert sim.restarted().coordinator.groups["g"].generation_id == 2


def test_leave_in_a_batch():
    sim = Sim()
    a, b = sim.stable(2)
    errors = sim.leave(a.member_id, "stranger", LeavingMember("", "nobody"), b.member_id)
    assert errors == [E.NONE, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID, E.NONE]
    assert sim.state() == "Empty"


def test_leaving_answers_what_the_member_has_parked():
    sim = Sim()
    tokens = [sim.join(), sim.join()]
    sim.settle()
    _, b = (sim.result(t) for t in tokens)
    parked = sim.sync(b.member_id, 1)
    sim.leave(b.member_id)
    assert sim.error(parked) is E.UNKNOWN_MEMBER_ID


def test_a_pending_member_can_leave():
    sim = Sim()
    pending = sim.result(sim.join(needs_id=True)).member_id
    assert sim.leave(pending) == [E.NONE]
    assert "g" not in sim.coordinator.groups


def _stable(sim):
    return sim.stable(1)[0].member_id


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda s, m: s.join(group=""), E.INVALID_GROUP_ID),
        (lambda s, m: s.join(session_ms=5_999), E.INVALID_SESSION_TIMEOUT),
        (lambda s, m: s.join(session_ms=1_800_001), E.INVALID_SESSION_TIMEOUT),
        (lambda s, m: s.join("stranger"), E.UNKNOWN_MEMBER_ID),
        (lambda s, m: s.join("stranger", group="other"), E.UNKNOWN_MEMBER_ID),
        (lambda s, m: s.join("stranger", instance="nobody"), E.UNKNOWN_MEMBER_ID),
        (lambda s, m: s.join(protocols=Z), E.INCONSISTENT_GROUP_PROTOCOL),
        (lambda s, m: s.join(protocol_type="consumer"), E.INCONSISTENT_GROUP_PROTOCOL),
        (lambda s, m: s.join(group="other", protocols=()), E.INCONSISTENT_GROUP_PROTOCOL),
        (lambda s, m: s.join(group="other", protocol_type=""), E.INCONSISTENT_GROUP_PROTOCOL),
        (lambda s, m: s.sync(m, 1, group=""), E.INVALID_GROUP_ID),
        (lambda s, m: s.sync(m, 1, group="other"), E.UNKNOWN_MEMBER_ID),
        (lambda s, m: s.sync("stranger", 1), E.UNKNOWN_MEMBER_ID),
        (lambda s, m: s.sync(m, 2), E.ILLEGAL_GENERATION),
        (lambda s, m: s.sync(m, 1, protocol_type="consumer"), E.INCONSISTENT_GROUP_PROTOCOL),
        (lambda s, m: s.sync(m, 1, protocol_name="z"), E.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_refusals_of_join_and_sync(ask, error):
    sim = Sim()
    member = _stable(sim)
    token = ask(sim, member)
    assert sim.error(token) is error
    assert sim.state() == "Stable"
    assert set(sim.coordinator.groups) == {"g"}, "a refused request leaves nothing behind"


def test_sync_while_joining_says_so():
    sim = Sim()
    a, _ = sim.stable(2)
    sim.join(a.member_id)
    assert sim.error(sim.sync(a.member_id, 1)) is E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("group", "member", "generation", "instance", "error"),
    [
        ("", "", 1, None, E.INVALID_GROUP_ID),
        ("other", "", 1, None, E.UNKNOWN_MEMBER_ID),
        ("g", "stranger", 1, None, E.UNKNOWN_MEMBER_ID),
        ("g", None, 0, None, E.ILLEGAL_GENERATION),
        ("g", None, 2, None, E.ILLEGAL_GENERATION),
        ("g", None, 1, "nobody", E.UNKNOWN_MEMBER_ID),
        ("g", None, 1, None, E.NONE),
    ],
)
def test_heartbeats(group, member, generation, instance, error):
    sim = Sim()
    known = _stable(sim)
    assert (
        sim.heartbeat(known if member is None else member, generation, group=group, instance=instance)
        is error
    )


def test_leave_refusals():
    sim = Sim()
    sim.stable(1)
    assert sim.leave("m", group="") == [E.INVALID_GROUP_ID]
    assert sim.leave("m", group="other") == [E.UNKNOWN_MEMBER_ID]


def test_group_max_size():
    sim = Sim(max_size=2)
    a, b = sim.stable(2)
    assert sim.error(sim.join()) is E.GROUP_MAX_SIZE_REACHED
    again = sim.join(a.member_id)
    assert sim.parked(again), "members may always come back"
    assert sim.error(sim.join(b.member_id)) is E.NONE
    assert sim.error(again) is E.NONE


def test_a_loaded_group_that_is_too_large_sheds_members():
    sim = Sim()
    members = sim.stable(3)
    small = sim.restarted(max_size=2)
    assert small.state() == "PreparingRebalance"
    answers = [small.join(m.member_id) for m in members]
    small.settle()
    assert [small.error(t) for t in answers] == [E.NONE, E.NONE, E.GROUP_MAX_SIZE_REACHED]


def test_bounds_hold():
    sim = Sim(max_pending_members=2, max_groups=2)
    for _ in range(2):
        assert sim.error(sim.join(needs_id=True)) is E.MEMBER_ID_REQUIRED
    assert sim.error(sim.join(needs_id=True)) is E.GROUP_MAX_SIZE_REACHED
    sim.commit({("t", 0): 1}, group="two")
    assert sim.error(sim.join(group="three")) is E.POLICY_VIOLATION
    assert sim.error(sim.commit({("t", 0): 1}, group="four")) is E.POLICY_VIOLATION


def test_requests_wait_for_loading():
    sim = Sim()
    for partition in range(50):
        sim.coordinator.start_loading(partition)
    assert sim.error(sim.join()) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.error(sim.sync("m", 1)) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.heartbeat("m", 1) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.leave("m") == [E.COORDINATOR_LOAD_IN_PROGRESS]
    assert sim.error(sim.commit({("t", 0): 1})) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.coordinator.fetch("g").error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.error(sim.delete()) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.coordinator.describe("g").error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.coordinator.list_groups()[0] is E.COORDINATOR_LOAD_IN_PROGRESS


def test_a_stop_sends_everybody_away():
    sim = Sim()
    a, _ = sim.stable(2)
    parked = sim.join(a.member_id)
    sim.run(sim.coordinator.close(sim.now))
    assert sim.error(parked) is E.NOT_COORDINATOR
    assert sim.result(parked).member_id == a.member_id
    assert sim.error(sim.join()) is E.COORDINATOR_NOT_AVAILABLE
    assert sim.heartbeat(a.member_id, 1) is E.COORDINATOR_NOT_AVAILABLE
