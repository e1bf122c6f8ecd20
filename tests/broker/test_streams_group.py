"""Streams groups step by step: joins, delays, revocations, deadlines, what is refused, and what survives."""

from __future__ import annotations

import pytest
from support.group_sim import GROUP
from support.streams_group_sim import SimThread, StreamsSim, topology

from klamm_broker.coordinator.consumer.errors import GroupError
from klamm_broker.coordinator.model import CommitRequest, OffsetToCommit, TopicPartition
from klamm_broker.coordinator.streams.config import StreamsSettings
from klamm_broker.coordinator.streams.member import Endpoint, MemberState
from klamm_broker.coordinator.streams.model import Status
from klamm_broker.coordinator.streams.topology import configure
from klamm_broker.coordinator.txn_offsets import TxnCommitRequest
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages import streams_group_records as stored

SETTINGS = StreamsSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0)


def sim_with(partitions=4, **settings):
    sim = StreamsSim(settings=SETTINGS._replace(**settings))
    sim.create_topic("in", partitions)
    return sim


def thread(sim, name, process=None, **more):
    return SimThread(sim, name, process or f"process of {name}", topology("in", **more))


def statuses(result):
    return [s.status for s in result.statuses]


def test_internal_topics_are_asked_for_and_then_there_are_tasks():
    sim = sim_with()
    a = thread(sim, "a")
    first = a.beat()
    assert statuses(first) == [Status.MISSING_INTERNAL_TOPICS]
    assert [(t.name, t.partitions) for t in first.missing_topics] == [("log", 4)]
    assert sim.group.state == "NotReady"
    second = a.beat()
    assert (statuses(second), second.assigned.active) == ([], {"0": {0: 3, 1: 3, 2: 3, 3: 3}})
    assert sim.group.state == "Stable"


def test_a_group_has_a_limit_of_tasks():
    many = SimThread(sim_with(partitions=1_000), "a", "p", topology(*["in"] * 10))
    assert many.beat().error is E.NONE
    more = SimThread(sim_with(partitions=1_000), "a", "p", topology(*["in"] * 11))
    refused = more.sim.beat(**more.fields())
    assert refused.error is E.STREAMS_INVALID_TOPOLOGY
    assert refused.error_message == (
        "The topology has 11000 tasks in 11 subtopologies: a group may have at most 10000."
    )


def test_a_new_group_waits_for_more_members():
    sim = sim_with(initial_rebalance_delay_ms=3_000)
    sim.create_topic("log", 4)
    a, b = thread(sim, "a"), thread(sim, "b")
    assert statuses(a.beat()) == [Status.ASSIGNMENT_DELAYED]
    sim.advance(2_000)
    b.beat()
    assert sim.group.state == "Assigning"
    a.beat()
    sim.advance(1_000)
    assert sim.group.target_epoch == sim.group.epoch, "the timer assigned"
    for it in (a, b):
        it.beat()
    assert {len(a.active["0"]), len(b.active["0"])} == {2}


def test_assignments_keep_their_distance_in_time():
    sim = sim_with(assignment_interval_ms=1_000)
    sim.create_topic("log", 4)
    a, b = thread(sim, "a"), thread(sim, "b")
    a.beat()
    assert statuses(b.beat()) == [Status.ASSIGNMENT_DELAYED]
    sim.advance(1_000)
    assert statuses(b.beat()) == []


def test_a_thread_that_gives_nothing_up_is_removed():
    sim = sim_with()
    sim.create_topic("log", 4)
    a, b = thread(sim, "a"), thread(sim, "b")
    a.beat()
    a.slow = True
    b.beat()
    a.beat()
    assert sim.group.members["a"].state is MemberState.UNREVOKED_TASKS
    for _ in range(2):
        sim.advance(10_000)
        a.beat()
        b.beat()
    sim.advance(9_999)
    assert "a" in sim.group.members
    sim.advance(1)
    assert "a" not in sim.group.members, "30 s are its rebalance timeout"
    b.beat()
    assert b.active == {"0": {0, 1, 2, 3}}
    assert a.beat().error is E.UNKNOWN_MEMBER_ID


def test_a_silent_thread_is_removed():
    sim = sim_with()
    thread(sim, "a").beat()
    sim.advance(44_999)
    assert "a" in sim.group.members
    sim.advance(1)
    assert sim.group.state == "Empty"


def test_a_standby_is_in_another_process():
    sim = sim_with(num_standby_replicas=1)
    sim.create_topic("log", 4)
    same = [thread(sim, name, "one") for name in ("a", "b")]
    for _ in range(4):
        for it in same:
            it.beat()
    assert not any(it.standby for it in same), "there is no other process"
    other = thread(sim, "c", "two")
    for _ in range(6):
        for it in (*same, other):
            it.beat()
    assert len(other.tasks) == 4
    assert sum(len(t.standby.get("0", ())) for t in (*same, other)) == 4


def test_a_change_of_standbys_begins_an_epoch():
    sim = sim_with()
    sim.create_topic("log", 4)
    a = thread(sim, "a")
    before = a.beat().member_epoch
    sim.settings = sim.settings._replace(num_standby_replicas=1)
    assert a.beat().member_epoch == before + 1


def test_a_request_to_shut_down_reaches_everybody_until_all_have_gone():
    sim = sim_with()
    a, b = thread(sim, "a"), thread(sim, "b")
    a.beat()
    b.beat()
    told = sim.beat(**{**a.fields(), "shutdown": True})
    assert Status.SHUTDOWN_APPLICATION in statuses(told)
    assert Status.SHUTDOWN_APPLICATION in statuses(b.beat())
    a.leave()
    b.leave()
    assert Status.SHUTDOWN_APPLICATION not in statuses(thread(sim, "c").beat())


def test_an_older_topology_is_stale_and_a_changed_one_is_refused():
    sim = sim_with()
    thread(sim, "a", epoch=1).beat()
    assert Status.STALE_TOPOLOGY in statuses(thread(sim, "b", epoch=0).beat())
    assert thread(sim, "c", epoch=2).beat().error is E.INVALID_REQUEST
    assert thread(sim, "d", epoch=1, log="other").beat().error is E.INVALID_REQUEST


def test_endpoints_tell_where_partitions_are():
    sim = sim_with(2)
    sim.create_topic("log", 2)
    a = thread(sim, "a")
    sim.beat(**a.fields(), endpoint=Endpoint("here", 1), endpoint_epoch=-1)
    a.epoch = 2
    told = sim.beat(**a.fields(), endpoint_epoch=-1)
    (found,) = told.endpoints
    assert found.endpoint == Endpoint("here", 1)
    assert [(p.topic, list(p.partitions)) for p in found.active] == [("in", [0, 1])]
    assert sim.beat(**a.fields(), endpoint_epoch=told.endpoint_epoch).endpoints is None


def test_a_lost_answer_is_told_again():
    sim = sim_with()
    sim.create_topic("log", 4)
    a, b = thread(sim, "a"), thread(sim, "b")
    a.beat()
    b.beat()
    sim.send(**a.fields())
    before = a.epoch
    told = a.beat()
    assert (told.member_epoch, len(told.assigned.active["0"])) == (before, 2), "what it is to give up"
    a.beat()
    sim.send(**b.fields())
    told = b.beat()
    assert len(told.assigned.active["0"]) == 2
    assert b.beat().assigned is None, "it has said that it knows"


def test_a_full_group_takes_nobody():
    sim = sim_with()
    sim.max_size = 1
    sim = sim.restarted()
    thread(sim, "a").beat()
    assert thread(sim, "b").beat().error is E.GROUP_MAX_SIZE_REACHED


def commit(kind, epoch, member="a", partition=0, **more):
    offsets = {TopicPartition("in", partition): OffsetToCommit(1, -1, "", bytes(16))}
    return kind(group_id=GROUP, generation_id=epoch, member_id=member, offsets=offsets, **more)


def test_only_members_commit_with_their_epoch_or_that_of_the_task():
    sim = sim_with()
    sim.create_topic("log", 4)
    a, b = thread(sim, "a"), thread(sim, "b")
    a.beat()
    old = a.epoch
    for it in (b, a, a, b, a):
        it.beat()
    group, kept = sim.group, min(a.active["0"])
    lost = min(b.active["0"])
    assert group.validate_commit(commit(CommitRequest, a.epoch)) is E.NONE
    assert group.validate_commit(commit(CommitRequest, old, partition=kept)) is E.NONE
    assert group.validate_commit(commit(CommitRequest, old, partition=lost)) is E.STALE_MEMBER_EPOCH
    assert group.validate_commit(commit(CommitRequest, a.epoch + 1)) is E.STALE_MEMBER_EPOCH
    assert group.validate_commit(commit(CommitRequest, 1, member="x")) is E.UNKNOWN_MEMBER_ID
    old_version = commit(CommitRequest, a.epoch, reports_missing_group=False)
    assert group.validate_commit(old_version) is E.UNSUPPORTED_VERSION
    producer = {"producer_id": 1, "producer_epoch": 0, "reports_missing_group": False}
    assert group.validate_commit(commit(TxnCommitRequest, a.epoch, **producer)) is E.NONE
    assert group.validate_commit(commit(TxnCommitRequest, a.epoch + 1, **producer)) is E.ILLEGAL_GENERATION
    assert group.validate_commit(commit(TxnCommitRequest, -1, member="", **producer)) is E.NONE
    assert group.is_subscribed_to("in")
    assert not group.is_subscribed_to("log")


def test_a_topology_that_names_what_is_not_there_is_invalid():
    odd = stored.Subtopology(
        subtopology_id="0",
        source_topics=["in"],
        copartition_groups=[stored.CopartitionGroup(source_topics=[7])],
    )
    with pytest.raises(GroupError, match="copartition group"):
        configure(stored.StreamsGroupTopologyValue(epoch=0, subtopologies=[odd]), lambda _: 1)
