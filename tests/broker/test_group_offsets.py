"""Offsets of groups: commit, fetch, delete, expiry; and what loading brings back."""

from __future__ import annotations

import pytest
from support.group_sim import Sim, subscription

from klamm_broker.coordinator import records
from klamm_broker.coordinator.model import OffsetToCommit, Protocol, TopicPartition
from klamm_kafka.wire.errors import ErrorCode as E

DAY_MS = 86_400_000
T0, T1 = ("t", 0), ("t", 1)
CONSUMER = {"protocol_type": "consumer", "protocols": (Protocol("range", subscription("t")),)}


def _codes(sim: Sim, token: str) -> dict:
    result = sim.result(token)
    assert result.error is E.NONE
    return {tuple(at): code for at, code in result.partitions.items()}


def test_a_commit_is_answered_and_seen_once_it_is_durable():
    sim = Sim(auto=False)
    token = sim.commit({T0: 5})
    assert sim.parked(token)
    assert sim.offsets() == {}
    sim.finish_appends()
    assert _codes(sim, token) == {T0: E.NONE}
    assert sim.offsets() == {T0: 5}


@pytest.mark.parametrize(
    ("append", "told"),
    [
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.RECORD_LIST_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_a_commit_that_cannot_be_written_changes_nothing(append, told):
    sim = Sim()
    sim.commit({T0: 5})
    sim.auto = False
    token = sim.commit({T0: 6, T1: 1})
    sim.finish_appends(append)
    assert _codes(sim, token) == {T0: told, T1: told}
    assert sim.offsets() == {T0: 5}


def test_a_failed_first_commit_leaves_no_group():
    sim = Sim(auto=False)
    sim.commit({T0: 5})
    sim.finish_appends(E.KAFKA_STORAGE_ERROR)
    sim.advance(700_000)
    sim.finish_appends()
    assert not sim.coordinator.groups


def test_the_last_of_several_commits_under_way_wins():
    sim = Sim(auto=False)
    for offset in (5, 7, 6):
        sim.commit({T0: offset})
    sim.finish_appends()
    assert sim.offsets() == {T0: 6}
    assert sim.restarted().offsets() == {T0: 6}


def test_metadata_epoch_and_time_are_kept():
    sim = Sim()
    sim.commit({T0: OffsetToCommit(5, 3, "note")})
    for s in (sim, sim.restarted()):
        kept = s.coordinator.fetch("g").offsets[TopicPartition(*T0)]
        assert (kept.offset, kept.leader_epoch, kept.metadata) == (5, 3, "note")
        assert kept.commit_timestamp_ms == sim.now.wall_ms


def test_too_much_metadata_refuses_that_partition_only():
    sim = Sim(offset_metadata_max_bytes=4)
    token = sim.commit({T0: OffsetToCommit(5, -1, "12345"), T1: OffsetToCommit(6, -1, "1234")})
    assert _codes(sim, token) == {T0: E.OFFSET_METADATA_TOO_LARGE, T1: E.NONE}
    assert sim.offsets() == {T1: 6}
    alone = sim.commit({T0: OffsetToCommit(5, -1, "12345")}, group="other")
    assert _codes(sim, alone) == {T0: E.OFFSET_METADATA_TOO_LARGE}
    assert "other" not in sim.coordinator.groups


@pytest.mark.parametrize(("metadata", "told"), [
    ("\U0001f600" * 8191, E.NONE),
    ("\U0001f600" * 8192, E.OFFSET_METADATA_TOO_LARGE),
    ("\U0001f600" * 8192 + "a" * 30_000, E.OFFSET_METADATA_TOO_LARGE),
    ("a" * 32_767, E.NONE),
    ("a" * 32_768, E.OFFSET_METADATA_TOO_LARGE),
])  # fmt: skip
@pytest.mark.parametrize("retention_ms", [None, 1000])
def test_metadata_that_no_record_can_hold_is_too_large_whatever_the_limit(metadata, told, retention_ms):
    sim = Sim(offset_metadata_max_bytes=1_000_000)
    token = sim.commit({T0: OffsetToCommit(5, -1, metadata), T1: 6}, retention_ms=retention_ms)
    assert _codes(sim, token) == {T0: told, T1: E.NONE}
    assert not sim.coordinator.groups["g"].pending_offsets


def test_a_record_that_cannot_be_made_leaves_nothing_pending(monkeypatch):
    sim = Sim()
    sim.commit({T0: 5})

    def fail(*_) -> None:
        raise ValueError("too long")

    with monkeypatch.context() as patched:
        patched.setattr(records, "committed_offset", fail)
        patched.setattr(records, "offset_tombstone", fail)
        with pytest.raises(ValueError, match="too long"):
            sim.commit({T0: 6})
        with pytest.raises(ValueError, match="too long"):
            sim.coordinator.on_partitions_deleted([TopicPartition("t", 0)], sim.now)
    assert not sim.coordinator.groups["g"].pending_offsets
    assert sim.offsets() == {T0: 5}


def test_what_a_call_asked_for_before_it_raised_is_done_with_the_next(monkeypatch, caplog):
    sim = Sim()
    for group in ("a", "b"):
        sim.commit({T0: 5, T1: 1}, group=group)
    administration = sim.coordinator._administration
    real = administration.forget

    def fail_for_b(group, partitions) -> None:
        if group.group_id == "b":
            raise RuntimeError("a defect")
        real(group, partitions)

    with monkeypatch.context() as patched:
        patched.setattr(administration, "forget", fail_for_b)
        with pytest.raises(RuntimeError, match="a defect"):
            sim.coordinator.on_partitions_deleted([TopicPartition("t", 0)], sim.now)
    assert sim.coordinator.groups["a"].pending_offsets
    assert sim.coordinator.heartbeat("none", "m", None, 1, sim.now) is E.UNKNOWN_MEMBER_ID
    token = sim.commit({T1: 2}, group="b")
    assert _codes(sim, token) == {T1: E.NONE}
    assert not sim.coordinator.groups["a"].pending_offsets
    assert sim.offsets("a") == {T1: 1}
    assert "effects of it are done late" in caplog.text


def test_members_commit_with_their_generation():
    sim = Sim()
    (member,) = sim.stable(1)
    m = member.member_id
    cases = [
        ({"member_id": m, "generation": 1}, E.NONE),
        ({"member_id": m, "generation": 0}, E.ILLEGAL_GENERATION),
        ({"member_id": m, "generation": -1}, E.ILLEGAL_GENERATION),
        ({"member_id": "stranger", "generation": 1}, E.UNKNOWN_MEMBER_ID),
        ({"member_id": m, "generation": 1, "instance": "nobody"}, E.UNKNOWN_MEMBER_ID),
        ({}, E.UNKNOWN_MEMBER_ID),
        ({"group": "none", "member_id": m, "generation": 1}, E.GROUP_ID_NOT_FOUND),
        ({"group": "none", "generation": 1, "reports_missing_group": False}, E.ILLEGAL_GENERATION),
    ]
    for how, error in cases:
        token = sim.commit({T0: 1}, **how)
        assert sim.error(token) is error, how
    assert "none" not in sim.coordinator.groups


def test_members_may_commit_while_they_join_but_not_while_they_sync():
    sim = Sim()
    a, b = sim.stable(2)
    sim.join(a.member_id)
    assert sim.error(sim.commit({T0: 1}, member_id=b.member_id, generation=1)) is E.NONE
    sim.join(b.member_id)
    assert sim.state() == "CompletingRebalance"
    assert sim.error(sim.commit({T0: 2}, member_id=b.member_id, generation=2)) is E.REBALANCE_IN_PROGRESS


def test_a_commit_is_as_good_as_a_heartbeat():
    sim = Sim()
    (member,) = sim.stable(1, session_ms=10_000)
    for _ in range(5):
        sim.advance(6_000)
        assert sim.error(sim.commit({T0: 1}, member_id=member.member_id, generation=1)) is E.NONE
    assert sim.state() == "Stable"


def test_fetch_knows_nothing_of_unknown_groups():
    assert Sim().offsets("none") == {}


def test_an_empty_group_takes_commits_from_outside():
    sim = Sim()
    (member,) = sim.stable(1)
    sim.leave(member.member_id)
    assert sim.error(sim.commit({T0: 1})) is E.NONE
    assert sim.offsets() == {T0: 1}


# Deletion


def test_delete_group_takes_the_offsets_along():
    sim = Sim()
    (member,) = sim.stable(1)
    sim.commit({T0: 1}, member_id=member.member_id, generation=1)
    assert sim.error(sim.delete()) is E.NON_EMPTY_GROUP
    sim.leave(member.member_id)
    assert sim.error(sim.delete()) is E.NONE
    assert sim.error(sim.delete()) is E.GROUP_ID_NOT_FOUND
    assert not sim.restarted().coordinator.groups
    assert sim.coordinator.describe("g").error is E.GROUP_ID_NOT_FOUND
    assert sim.state() == "Dead"


def test_while_a_deletion_is_written_the_group_is_unavailable():
    sim = Sim()
    sim.commit({T0: 1})
    sim.auto = False
    token = sim.delete()
    assert sim.error(sim.commit({T0: 2})) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.error(sim.join()) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert sim.coordinator.fetch("g").error is E.COORDINATOR_LOAD_IN_PROGRESS
    sim.finish_appends(E.KAFKA_STORAGE_ERROR)
    assert sim.error(token) is E.NOT_COORDINATOR
    assert sim.offsets() == {T0: 1}, "nothing was deleted"


def test_a_deletion_covers_commits_that_are_still_being_written():
    sim = Sim(auto=False)
    sim.commit({T0: 1})
    sim.delete()
    sim.finish_appends()
    assert not sim.coordinator.groups
    assert not sim.restarted().coordinator.groups


def test_delete_offsets():
    sim = Sim()
    (member,) = sim.stable(1, **CONSUMER)
    sim.commit({T0: 1, ("other", 0): 2}, member_id=member.member_id, generation=1)
    token = sim.delete_offsets(T0, ("other", 0), ("none", 0))
    assert _codes(sim, token) == {T0: E.GROUP_SUBSCRIBED_TO_TOPIC, ("other", 0): E.NONE, ("none", 0): E.NONE}
    assert sim.offsets() == {T0: 1} == sim.restarted().offsets()
    sim.leave(member.member_id)
    assert _codes(sim, sim.delete_offsets(T0)) == {T0: E.NONE}
    assert sim.error(sim.delete_offsets(T0, group="none")) is E.GROUP_ID_NOT_FOUND


def test_delete_offsets_of_a_foreign_protocol_needs_an_empty_group():
    sim = Sim()
    sim.stable(1)
    assert sim.error(sim.delete_offsets(T0)) is E.NON_EMPTY_GROUP


def test_an_unreadable_subscription_protects_all_offsets():
    sim = Sim()
    (member,) = sim.stable(1, protocol_type="consumer", protocols=(Protocol("range", b"\x00"),))
    sim.commit({T0: 1}, member_id=member.member_id, generation=1)
    assert _codes(sim, sim.delete_offsets(T0)) == {T0: E.GROUP_SUBSCRIBED_TO_TOPIC}


def test_many_tombstones_go_in_several_batches():
    sim = Sim(auto=False)
    sim.commit({("t", i): i for i in range(2_500)})
    sim.finish_appends()
    token = sim.delete()
    assert [len(a.records) for queue in sim.in_flight.values() for a in queue] == [1000, 1000, 501]
    sim.finish_appends()
    assert sim.error(token) is E.NONE
    assert not sim.restarted().coordinator.groups


def test_offsets_of_deleted_partitions_go():
    sim = Sim()
    sim.commit({T0: 1, T1: 2})
    sim.run(sim.coordinator.on_partitions_deleted([TopicPartition(*T0)], sim.now))
    assert sim.offsets() == {T1: 2} == sim.restarted().offsets()


def test_offsets_of_a_topic_that_was_replaced_go_after_loading():
    old, new = b"o" * 16, b"n" * 16
    sim = Sim()
    sim.commit({T0: OffsetToCommit(1, topic_id=old), ("kept", 0): OffsetToCommit(2, topic_id=new), T1: 3})
    loaded = sim.restarted()
    loaded.forget_deleted_topics({"t": new, "kept": new})
    expected = {("kept", 0): 2, T1: 3}
    assert loaded.offsets() == expected == loaded.restarted().offsets()


# Expiry


def test_offsets_outside_group_management_expire_by_their_commit():
    sim = Sim()
    sim.commit({T0: 1})
    sim.advance(4 * DAY_MS)
    sim.commit({T1: 2})
    sim.advance(4 * DAY_MS)
    assert sim.offsets() == {T1: 2} == sim.restarted().offsets()
    sim.advance(4 * DAY_MS)
    assert not sim.coordinator.groups
    assert not sim.restarted().coordinator.groups


def test_offsets_of_an_empty_group_expire_from_when_it_became_empty():
    sim = Sim()
    (member,) = sim.stable(1, session_ms=6 * 60_000 * 5)
    sim.commit({T0: 1}, member_id=member.member_id, generation=1)
    for _ in range(8 * 24 * 4):
        sim.advance(15 * 60_000)
        sim.heartbeat(member.member_id, 1)
    assert sim.state() == "Stable"
    sim.leave(member.member_id)
    sim.advance(6 * DAY_MS)
    assert sim.offsets() == {T0: 1}
    loaded = sim.restarted()
    loaded.advance(2 * DAY_MS)
    assert not loaded.coordinator.groups, "the time of becoming empty survives a restart"
    sim.advance(2 * DAY_MS)
    assert not sim.coordinator.groups


def test_topics_a_stable_consumer_group_gave_up_expire():
    sim = Sim(offsets_retention_ms=3_600_000)
    (member,) = sim.stable(1, session_ms=1_800_000, **CONSUMER)
    sim.commit({T0: 1, ("other", 0): 2}, member_id=member.member_id, generation=1)
    for _ in range(8):
        sim.advance(600_000)
        assert sim.heartbeat(member.member_id, 1) is E.NONE
    assert sim.offsets() == {T0: 1}


def test_offsets_of_a_foreign_protocol_stay_while_it_has_members():
    sim = Sim(offsets_retention_ms=3_600_000)
    (member,) = sim.stable(1, session_ms=1_800_000)
    sim.commit({T0: 1}, member_id=member.member_id, generation=1)
    for _ in range(8):
        sim.advance(600_000)
        sim.heartbeat(member.member_id, 1)
    assert sim.offsets() == {T0: 1}


def test_a_retention_of_its_own_decides():
    sim = Sim()
    sim.commit({T0: 1}, retention_ms=1_000)
    sim.commit({T1: 2}, retention_ms=DAY_MS)
    loaded = sim.restarted()
    for s in (sim, loaded):
        s.advance(600_000)
        assert s.offsets() == {T1: 2}


def test_expiry_looks_at_some_groups_at_a_time():
    sim = Sim()
    for i in range(450):
        sim.commit({T0: 1}, group=f"g{i}")
    sim.advance(8 * DAY_MS)
    assert not sim.coordinator.groups


# Listing


def test_list_and_describe():
    sim = Sim()
    sim.stable(1, **CONSUMER)
    sim.commit({T0: 1}, group="simple")
    listed = lambda *a: {(g.group_id, g.protocol_type, g.state) for g in sim.coordinator.list_groups(*a)[1]}
    assert listed() == {("g", "consumer", "Stable"), ("simple", "", "Empty")}
    assert listed(["stable"]) == {("g", "consumer", "Stable")}
    assert listed([], ["Classic"]) == listed()
    assert listed([], ["consumer"]) == set()
    described = sim.coordinator.describe("g")
    assert (described.state, described.protocol_type, described.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = described.members
    assert member.metadata == subscription("t")
    assert member.assignment == member.member_id.encode()
    sim.join(member.member_id, **CONSUMER)
    assert sim.state() == "CompletingRebalance"
    rebalancing = sim.coordinator.describe("g")
    assert rebalancing.protocol_data == ""
    assert rebalancing.members[0].metadata == rebalancing.members[0].assignment == b""
