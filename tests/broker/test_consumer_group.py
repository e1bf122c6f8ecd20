"""Groups of the consumer protocol, as a state machine: joining, reconciling, leaving, errors, regular expressions."""

from __future__ import annotations

import pytest
from support.consumer_group_sim import ConsumerSim, SimMember, settle
from support.group_sim import GROUP

from klamm_broker.coordinator.consumer.member import MemberState
from klamm_broker.coordinator.consumer.model import GroupSettings
from klamm_broker.coordinator.model import CommitRequest, OffsetToCommit, TopicPartition
from klamm_broker.coordinator.txn_offsets import TxnCommitRequest
from klamm_kafka.wire.errors import ErrorCode as E


@pytest.fixture
def sim() -> ConsumerSim:
    sim = ConsumerSim()
    sim.create_topic("t", 6)
    return sim


def test_a_member_joins_and_gets_everything(sim):
    result = SimMember(sim, "a", "t").beat()
    assert (result.error, result.member_id, result.member_epoch) == (E.NONE, "a", 2)
    assert result.heartbeat_interval_ms == 5_000
    assert result.assignment == {sim.topics.by_name("t").id: [0, 1, 2, 3, 4, 5]}
    assert (sim.group.state, sim.group.epoch, sim.group.target_epoch) == ("Stable", 2, 2)


def test_a_second_member_waits_until_the_first_has_given_up(sim):
    a, b = SimMember(sim, "a", "t", slow=True), SimMember(sim, "b", "t")
    a.beat()
    a.owned = a.target
    sim.advance(1_000)
    joined = b.beat()
    assert (joined.member_epoch, joined.assignment) == (3, {})
    assert sim.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    told = a.beat()
    assert told.member_epoch == 2, "it keeps its epoch until it has given up"
    assert sum(map(len, told.assignment.values())) == 3
    assert sim.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert sim.group.state == "Reconciling"
    assert b.beat().assignment == {}, "still held"
    a.owned = a.target
    assert a.beat().member_epoch == 3
    got = b.beat()
    assert sum(map(len, got.assignment.values())) == 3
    assert sim.group.state == "Stable"


def test_heartbeats_without_news_bring_none_and_write_nothing(sim):
    a = SimMember(sim, "a", "t")
    a.beat()
    written = len(sim.log[sim.group.partition])
    result = sim.beat(member_id="a", member_epoch=a.epoch)
    assert (result.error, result.assignment) == (E.NONE, None)
    assert len(sim.log[sim.group.partition]) == written


def test_the_target_is_not_computed_more_often_than_the_interval_allows(sim):
    a, b = SimMember(sim, "a", "t"), SimMember(sim, "b", "t")
    a.beat()
    b.beat()
    assert (sim.group.epoch, sim.group.target_epoch, sim.group.state) == (3, 2, "Assigning")
    sim.advance(1_000)
    b.beat()
    assert sim.group.target_epoch == 3


def test_leaving_gives_everything_to_the_others(sim):
    a, b = SimMember(sim, "a", "t"), SimMember(sim, "b", "t")
    settle([a, b])
    assert b.leave() is E.NONE
    settle([a])
    assert len(a.partitions) == 6
    a.leave()
    assert (sim.group.state, sim.group.members) == ("Empty", {})


def test_silent_members_are_removed_when_their_session_ends(sim):
    a, b = SimMember(sim, "a", "t"), SimMember(sim, "b", "t")
    settle([a, b])
    for _ in range(10):
        sim.advance(5_000)
        a.beat()
    assert set(sim.group.members) == {"a"}
    assert len(a.partitions) == 6
    assert b.beat().error is E.UNKNOWN_MEMBER_ID


def test_members_that_do_not_give_up_in_time_are_removed(sim):
    a, b = SimMember(sim, "a", "t", slow=True), SimMember(sim, "b", "t")
    a.beat()
    a.owned = a.target
    sim.advance(1_000)
    b.beat()
    results = []
    while E.UNKNOWN_MEMBER_ID not in results:  # it lives, but gives nothing up
        assert len(results) < 14
        sim.advance(2_500)
        results.append(a.beat().error)
        b.beat()
    assert results == [E.NONE] * 12 + [E.UNKNOWN_MEMBER_ID], "after its rebalance timeout"
    settle([b])
    assert len(b.partitions) == 6
    assert set(sim.group.members) == {"b"}


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        (9, None, E.FENCED_MEMBER_EPOCH),
        (1, None, E.FENCED_MEMBER_EPOCH),
        (0, {}, E.NONE),
        (2, None, E.NONE),
    ],
)
def test_epochs_are_checked(sim, epoch, owned, error):
    SimMember(sim, "a", "t").beat()
    result = sim.beat(member_id="a", member_epoch=epoch, topics=["t"], rebalance_timeout_ms=1, owned=owned)
    assert result.error is error


def test_the_previous_epoch_is_good_when_the_answer_was_lost(sim):
    a, b = SimMember(sim, "a", "t"), SimMember(sim, "b", "t")
    a.beat()
    sim.advance(1_000)
    b.beat()
    a.beat()
    before = a.fields()
    a.beat()  # its answer is lost
    assert sim.group.members["a"].epoch == before["member_epoch"] + 1
    assert sim.beat(**before).error is E.NONE
    more = {sim.topics.by_name("t").id: frozenset(range(6))}
    assert sim.beat(**{**before, "owned": more}).error is E.FENCED_MEMBER_EPOCH


BAD = [
    ({"group_id": " "}, "GroupId can't be empty."),
    ({"member_id": ""}, "MemberId can't be empty."),
    ({"instance_id": ""}, "InstanceId can't be empty."),
    ({"rack_id": ""}, "RackId can't be empty."),
    ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
    ({"owned": None}, "TopicPartitions must be empty when (re-)joining."),
    ({"topics": None}, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."),
    ({"member_epoch": -2}, "InstanceId can't be null."),
    ({"member_epoch": -3}, "MemberEpoch is invalid."),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "message"), BAD, ids=[m for _, m in BAD])
def test_requests_that_cannot_be_right(sim, changed, message):
    good = {
        "member_id": "a", "member_epoch": 0, "rebalance_timeout_ms": 1000, "topics": ["t"], "owned": {}
    }  # fmt: skip
    result = sim.beat(**{**good, **changed})
    assert (result.error, result.error_message) == (E.INVALID_REQUEST, message)
    assert not sim.coordinator.groups


def test_unknown_groups_members_and_assignors(sim):
    assert sim.beat(member_id="a", member_epoch=1).error is E.GROUP_ID_NOT_FOUND
    assert sim.beat(member_id="a", member_epoch=-1).error is E.GROUP_ID_NOT_FOUND
    SimMember(sim, "a", "t").beat()
    assert sim.beat(member_id="b", member_epoch=1).error is E.UNKNOWN_MEMBER_ID
    assert sim.beat(member_id="b", member_epoch=-1).error is E.UNKNOWN_MEMBER_ID
    refused = SimMember(sim, "b", "t", assignor="mine").beat()
    assert refused.error is E.UNSUPPORTED_ASSIGNOR
    assert refused.error_message.endswith("Supported assignors: uniform, range.")


def test_a_full_group_takes_nobody_in():
    sim = ConsumerSim(consumer={"max_size": 1})
    SimMember(sim, "a", "t").beat()
    assert SimMember(sim, "b", "t").beat().error is E.GROUP_MAX_SIZE_REACHED


def test_static_members_come_back_under_another_id_and_keep_what_they_had(sim):
    a, b = SimMember(sim, "a", "t", instance="i"), SimMember(sim, "b", "t")
    settle([a, b])
    had, epoch = a.partitions, sim.group.epoch
    early = SimMember(sim, "c", "t", instance="i").beat()
    assert early.error is E.UNRELEASED_INSTANCE_ID
    assert a.leave(-2) is E.NONE
    settle([b])
    assert len(b.partitions) == 3, "its partitions wait for it"
    c = SimMember(sim, "c", "t", instance="i")
    assert c.beat().member_epoch == epoch, "nobody else is disturbed"
    assert c.partitions == had
    a.epoch = epoch
    assert a.beat().error is E.FENCED_INSTANCE_ID
    sim.advance(1)
    restarted = sim.restarted()
    assert restarted.group.members == sim.group.members
    assert c.leave() is E.NONE
    assert set(sim.group.members) == {"b"}


def test_a_static_member_that_stays_away_is_removed(sim):
    a, b = SimMember(sim, "a", "t", instance="i"), SimMember(sim, "b", "t")
    settle([a, b])
    a.leave(-2)
    for _ in range(12):
        sim.advance(5_000)
        b.beat()
    assert set(sim.group.members) == {"b"}
    assert len(b.partitions) == 6


def test_more_partitions_and_deleted_topics_begin_a_new_epoch(sim):
    sim.create_topic("u", 2)
    a = SimMember(sim, "a", "t", "u")
    settle([a])
    epoch = sim.group.epoch
    sim.create_topic("t", 8)
    settle([a])
    assert (len(a.partitions), sim.group.epoch) == (10, epoch + 1)
    gone = sim.topics.by_name("u").id
    sim.delete_topic("u")
    settle([a])
    assert len(a.partitions) == 8
    assert gone not in a.owned
    sim.create_topic("other", 1)
    settle([a])
    assert sim.group.epoch == epoch + 2, "nobody asked for it"


def test_regular_expressions_are_matched_against_whole_names(sim):
    sim.create_topic("tt", 1)
    a = SimMember(sim, "a", regex="t+")
    first = a.beat()
    assert (first.error, first.assignment) == (E.NONE, {}), "the topics are matched after the answer"
    settle([a])
    assert len(a.partitions) == 7
    sim.create_topic("ttt", 1)
    sim.create_topic("x", 1)
    settle([a])
    assert len(a.partitions) == 8
    a.regex = "t"
    settle([a])
    assert len(a.partitions) == 6
    assert set(sim.group.regexes) == {"t"}
    assert sim.restarted().group.regexes == sim.group.regexes
    a.leave()
    assert not sim.group.regexes


def test_an_invalid_regular_expression_is_refused(sim):
    result = SimMember(sim, "a", regex="(").beat()
    assert result.error is E.INVALID_REGULAR_EXPRESSION
    assert result.error_message.startswith("SubscribedTopicRegex `(` is not a valid regular expression: ")
    assert not sim.coordinator.groups


def test_the_assignor_that_most_ask_for_is_taken(sim):
    sim.create_topic("u", 6)
    a = SimMember(sim, "a", "t", "u", assignor="range")
    b = SimMember(sim, "b", "t", "u", assignor="range")
    settle([a, b])
    assert [sorted(p) for p in a.owned.values()] == [[0, 1, 2], [0, 1, 2]]
    assert sim.coordinator.describe_consumer(GROUP).assignor == "range"


def test_a_failed_append_changes_nothing(sim):
    a = SimMember(sim, "a", "t")
    a.beat()
    before = sim.group.members["a"], sim.group.epoch
    sim.auto = False
    token = sim.send(**SimMember(sim, "b", "t").fields())
    waiting = sim.send(**a.fields())
    assert token not in sim.replies
    sim.finish_appends(E.NOT_LEADER_OR_FOLLOWER)
    assert sim.replies[token].error is E.NOT_COORDINATOR
    assert sim.replies[waiting].error is E.NONE
    assert (sim.group.members["a"], sim.group.epoch) == before
    assert set(sim.group.members) == {"a"}


def test_group_configurations_are_looked_up_for_each_heartbeat():
    settings = {GROUP: GroupSettings(heartbeat_interval_ms=1_234, session_timeout_ms=50_000)}
    sim = ConsumerSim(consumer={"settings": lambda group_id: settings.get(group_id, GroupSettings())})
    a = SimMember(sim, "a", "t")
    assert a.beat().heartbeat_interval_ms == 1_234
    sim.advance(49_000)
    assert a.beat().error is E.NONE
    settings.clear()
    assert a.beat().heartbeat_interval_ms == 5_000


def commit(sim, member_id, epoch, *partitions, version_9=True):
    topic_id = sim.topics.by_name("t").id
    token = sim.token("commit")
    request = CommitRequest(
        group_id=GROUP,
        generation_id=epoch,
        member_id=member_id,
        reports_missing_group=version_9,
        offsets={TopicPartition("t", p): OffsetToCommit(1, topic_id=topic_id) for p in partitions},
    )
    sim.run(sim.coordinator.commit(request, token, sim.now))
    result = sim.replies[token]
    return result.error if result.error is not E.NONE else set(result.partitions.values()).pop()


def test_offsets_are_committed_by_those_that_own_the_partitions(sim):
    a, b = SimMember(sim, "a", "t"), SimMember(sim, "b", "t")
    settle([a])
    epoch = a.epoch
    assert commit(sim, "a", epoch, 0) is E.NONE
    assert commit(sim, "nobody", epoch, 0) is E.UNKNOWN_MEMBER_ID
    assert commit(sim, "", -1, 0) is E.UNKNOWN_MEMBER_ID
    assert commit(sim, "a", epoch + 1, 0) is E.STALE_MEMBER_EPOCH
    assert commit(sim, "a", epoch, 0, version_9=False) is E.UNSUPPORTED_VERSION
    settle([a, b])
    kept = min(p for _, p in a.partitions)
    lost = min(p for _, p in b.partitions)
    assert commit(sim, "a", epoch, kept) is E.NONE, "it has had this one all the time"
    assert commit(sim, "a", epoch, kept, lost) is E.STALE_MEMBER_EPOCH
    assert sim.coordinator.fetch(GROUP, member_id="a", member_epoch=epoch).error is E.STALE_MEMBER_EPOCH
    assert sim.coordinator.fetch(GROUP, member_id="x", member_epoch=epoch).error is E.UNKNOWN_MEMBER_ID
    assert len(sim.coordinator.fetch(GROUP, member_id="a", member_epoch=a.epoch).offsets) == 1
    assert set(sim.coordinator.fetch(GROUP).offsets) == {TopicPartition("t", 0)}
    a.leave()
    b.leave()
    assert commit(sim, "", -1, 5) is E.NONE, "nobody is in the group"


def test_offsets_within_a_transaction(sim):
    a = SimMember(sim, "a", "t")
    settle([a])

    def commit(member_id: str, epoch: int) -> E:
        token = sim.token("commit")
        request = TxnCommitRequest(
            group_id=GROUP, generation_id=epoch, member_id=member_id, producer_id=1, producer_epoch=0,
            offsets={TopicPartition("t", 0): OffsetToCommit(1, topic_id=sim.topics.by_name("t").id)},
        )  # fmt: skip
        sim.run(sim.coordinator.commit(request, token, sim.now))
        return sim.replies[token].error

    assert commit("", -1) is E.NONE, "older clients say nothing of members"
    assert commit("a", a.epoch) is E.NONE
    assert commit("a", a.epoch + 1) is E.ILLEGAL_GENERATION
    assert commit("x", a.epoch) is E.UNKNOWN_MEMBER_ID
    sim.run(sim.coordinator.on_marker(sim.group.partition, 1, committed=True, now=sim.now))
    assert [o.offset for o in sim.coordinator.fetch(GROUP).offsets.values()] == [1]


def test_what_administrators_see(sim):
    SimMember(sim, "a", "t").beat()
    described = sim.coordinator.describe(GROUP)
    assert (described.error, described.state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == "Group g is not a classic group."
    assert sim.coordinator.describe_consumer("none").error is E.GROUP_ID_NOT_FOUND
    for states, types, count in [((), (), 1), (("stable",), (), 1), (("Empty",), (), 0), ((), ("Consumer",), 1),
                                 ((), ("classic",), 0), ((), ("share",), 0)]:  # fmt: skip
        assert len(sim.coordinator.list_groups(states, types)[1]) == count
    assert delete(sim) is E.NON_EMPTY_GROUP


def delete(sim) -> E:
    token = sim.token("delete")
    sim.run(sim.coordinator.delete_group(GROUP, token, sim.now))
    return sim.replies[token]


def test_deleted_groups_leave_nothing_behind(sim):
    a = SimMember(sim, "a", "t")
    settle([a])
    assert commit(sim, "a", a.epoch, 0) is E.NONE
    a.leave()
    assert delete(sim) is E.NONE
    assert not sim.coordinator.groups
    assert not sim.restarted().coordinator.groups


def test_offsets_expire_unless_somebody_subscribes_and_the_empty_group_goes_with_the_last(sim):
    retention = sim.coordinator.config.offsets_retention_ms
    a = SimMember(sim, "a", "t")
    settle([a])
    assert commit(sim, "a", a.epoch, 0) is E.NONE
    for _ in range(retention // 40_000 + 20):
        sim.advance(40_000)
        a.beat()
    assert len(sim.coordinator.fetch(GROUP).offsets) == 1
    a.leave()
    sim.advance(700_000)
    assert not sim.coordinator.groups
    assert not sim.restarted().coordinator.groups


def test_a_group_that_is_being_deleted_takes_nobody_in(sim):
    a = SimMember(sim, "a", "t")
    settle([a])
    sim.auto = False
    left = sim.send(member_id="a", member_epoch=-1)
    token = sim.token("delete")
    sim.run(sim.coordinator.delete_group(GROUP, token, sim.now))
    joined = sim.send(**SimMember(sim, "b", "t").fields())
    assert not {left, token, joined} & sim.replies.keys()
    sim.finish_appends()
    assert (sim.replies[left].error, sim.replies[token]) == (E.NONE, E.NONE)
    assert sim.replies[joined].error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert not sim.coordinator.groups
    assert not sim.restarted().coordinator.groups


@pytest.mark.parametrize("how", [{"topics": ["u"]}, {"regex": "u.*"}], ids=["name", "regex"])
def test_a_topic_that_is_created_while_the_group_is_being_written_is_found(sim, how):
    a = SimMember(sim, "a", *how.get("topics", ()), regex=how.get("regex"))
    sim.auto = False
    token = sim.send(**a.fields())
    topic = sim.create_topic("u", 2)
    sim.finish_appends()
    sim.auto = True
    a.take(sim.replies[token])
    settle([a])
    assert a.partitions == {(topic.id, 0), (topic.id, 1)}


def test_many_regular_expressions_are_matched_some_at_a_time(sim):
    """Else a client with many of them, where there are many topics, would keep everybody waiting for seconds."""
    for i in range(4_000):
        sim.topics.put(f"x-{i}", 1)
    members = [SimMember(sim, f"m{i}", regex=f"x-{i}") for i in range(9)]
    matched = []
    for member in members:
        member.beat()
    sim.advance(11_000)
    sim.create_topic("y", 1)
    before = {e: r.timestamp_ms for e, r in sim.group.regexes.items()}
    members[0].beat()
    assert {e: r.timestamp_ms for e, r in sim.group.regexes.items()} == before, "not all in one turn"
    while sim.coordinator._core.matching:
        matched.append(len(sim.coordinator._core.matching["g"].found))
        sim.advance(1)
    assert matched == [2, 4, 6, 8]
    settle(members)
    assert sim.group.state == "Stable"
    assert all(len(m.partitions) == 1 for m in members)
    assert len(sim.group.regexes) == 9
