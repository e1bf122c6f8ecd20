"""Groups that change between the classic and the consumer protocol while members are in them."""

from __future__ import annotations

import pytest
from support.consumer_group_sim import ClassicMember, ConsumerSim, SimMember, settle
from support.group_sim import GROUP

from klamm_broker.coordinator.consumer.group import ConsumerGroup
from klamm_broker.coordinator.consumer.model import MigrationPolicy
from klamm_broker.coordinator.group import ClassicGroup
from klamm_broker.coordinator.model import LeavingMember, Protocol
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)


@pytest.fixture
def sim() -> ConsumerSim:
    sim = ConsumerSim()
    sim.create_topic("t", 6)
    return sim


def assignment_of(**topics: list[int]) -> bytes:
    parts = [ConsumerProtocolAssignmentTopicPartition(topic=t, partitions=p) for t, p in topics.items()]
    return b"\0\1" + ConsumerProtocolAssignment(assigned_partitions=parts, user_data=None).encode(1)


def classic_group(sim: ConsumerSim, instance: str | None = None) -> ClassicMember:
    """Returns a stable classic group with one member that has everything."""
    member = ClassicMember(sim, "t", instance=instance)
    joined = member.join()
    if joined is None:
        sim.advance(10)
    token = next(t for t in reversed(sim.replies) if str(t).startswith("join"))
    result = sim.replies[token]
    member.member_id, member.generation = result.member_id, result.generation_id
    member.sync({member.member_id: assignment_of(t=list(range(6)))})
    assert len(member.partitions) == 6
    return member


def test_a_member_of_the_new_protocol_upgrades_the_group(sim):
    old = classic_group(sim)
    generation = old.generation
    new = SimMember(sim, "n", "t")
    assert new.beat().error is E.NONE
    group = sim.group
    assert (group.epoch, group.members[old.member_id].epoch) == (generation + 1, generation)
    assert new.partitions == set(), "the classic member has them all"
    assert sim.restarted().group.members == group.members
    for _ in range(6):
        sim.advance(2_000)
        old.beat()
        new.beat()
        assert not old.partitions & new.partitions
    assert (len(old.partitions), len(new.partitions)) == (3, 3)
    assert group.state == "Stable"
    assert [m.is_classic for m in sim.coordinator.describe_consumer(GROUP).members] == [True, False]


def test_the_group_is_classic_again_when_the_last_new_member_leaves(sim):
    old, new = classic_group(sim), SimMember(sim, "n", "t")
    for _ in range(6):
        new.beat()
        sim.advance(2_000)
        old.beat()
    assert new.leave() is E.NONE
    group = sim.coordinator.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.state == "PreparingRebalance", "its members are to share what is free now"
    loaded = sim.restarted().coordinator.groups[GROUP]
    assert isinstance(loaded, ClassicGroup)
    assert set(loaded.members) == {old.member_id}
    assert old.beat() is E.REBALANCE_IN_PROGRESS
    assert old.join().error is E.NONE
    assert old.generation == group.generation_id
    assert old.sync({old.member_id: assignment_of(t=list(range(6)))}).error is E.NONE
    assert len(old.partitions) == 6


def test_a_silent_new_member_downgrades_the_group_too(sim):
    old, new = classic_group(sim), SimMember(sim, "n", "t")
    for _ in range(3):
        new.beat()
        sim.advance(2_000)
        old.beat()
    for _ in range(10):
        sim.advance(5_000)
        old.beat()
    assert isinstance(sim.coordinator.groups[GROUP], ClassicGroup)


def test_offsets_stay_when_the_group_changes_its_protocol(sim):
    old = classic_group(sim)
    sim.commit({("t", 0): 7}, member_id=old.member_id, generation=old.generation)
    SimMember(sim, "n", "t").beat()
    assert [o.offset for o in sim.coordinator.fetch(GROUP).offsets.values()] == [7]
    assert [o.offset for o in sim.restarted().coordinator.fetch(GROUP).offsets.values()] == [7]
    sim.commit({("t", 1): 8}, member_id=old.member_id, generation=old.generation)
    assert len(sim.coordinator.fetch(GROUP).offsets) == 2


def test_the_offsets_of_an_empty_group_stay_in_either_direction(sim):
    sim.commit({("t", 0): 7})
    a = SimMember(sim, "a", "t")
    settle([a])
    assert len(sim.coordinator.fetch(GROUP).offsets) == 1
    a.leave()
    member = ClassicMember(sim, "t")
    member.join()
    sim.advance(10)
    assert isinstance(sim.coordinator.groups[GROUP], ClassicGroup)
    assert len(sim.coordinator.fetch(GROUP).offsets) == 1
    assert isinstance(sim.restarted().coordinator.groups[GROUP], ClassicGroup)


@pytest.mark.parametrize("policy", list(MigrationPolicy))
def test_policies(policy):
    sim = ConsumerSim(consumer={"migration": policy})
    sim.create_topic("t", 6)
    old, new = classic_group(sim), SimMember(sim, "n", "t")
    result = new.beat()
    assert result.error is (E.NONE if policy.may_upgrade else E.GROUP_ID_NOT_FOUND)
    if not policy.may_upgrade:
        assert "online upgrade is disabled" in result.error_message
        return
    sim.advance(2_000)
    old.beat()
    new.leave()
    kind = ClassicGroup if policy.may_downgrade else ConsumerGroup
    assert isinstance(sim.coordinator.groups[GROUP], kind)


def test_a_group_of_another_protocol_type_is_not_upgraded(sim):
    sim.join()
    sim.advance(10)
    result = SimMember(sim, "n", "t").beat()
    assert result.error is E.GROUP_ID_NOT_FOUND
    assert "does not use the consumer embedded protocol" in result.error_message


def test_classic_members_join_a_consumer_group(sim):
    new = SimMember(sim, "n", "t")
    settle([new])
    old = ClassicMember(sim, "t")
    assert old.join().error is E.NONE
    assert old.sync().error is E.NONE
    for _ in range(6):
        sim.advance(2_000)
        new.beat()
        old.beat()
        assert not old.partitions & new.partitions
    assert (len(old.partitions), len(new.partitions)) == (3, 3)
    token = sim.join(protocols=(Protocol("range", b""),), protocol_type="connect")
    assert sim.replies[token].error is E.INCONSISTENT_GROUP_PROTOCOL
    assert sim.heartbeat(old.member_id, 99) is E.ILLEGAL_GENERATION
    assert sim.heartbeat("n", new.epoch) is E.UNKNOWN_MEMBER_ID, "it does not speak the classic protocol"
    assert sim.leave(old.member_id, LeavingMember("nobody")) == [E.NONE, E.UNKNOWN_MEMBER_ID]
    settle([new])
    assert len(new.partitions) == 6


def test_a_classic_member_that_does_not_sync_is_removed(sim):
    new = SimMember(sim, "n", "t")
    settle([new])
    old = ClassicMember(sim, "t")
    old.join()
    for _ in range(14):
        sim.advance(5_000)
        new.beat()
        old.sim.heartbeat(old.member_id, old.generation)
    assert set(sim.group.members) == {"n"}


def test_a_static_member_changes_its_protocol(sim):
    new, other = SimMember(sim, "n", "t", instance="i"), SimMember(sim, "o", "t")
    settle([new, other])
    had = new.partitions
    new.leave(-2)
    old = ClassicMember(sim, "t", instance="i")
    assert old.join().error is E.NONE
    assert old.sync().error is E.NONE
    assert old.partitions == had
    back = SimMember(sim, "b", "t", instance="i")
    assert back.beat().error is E.NONE
    assert back.partitions == had
    assert old.beat() is E.FENCED_INSTANCE_ID


def test_the_last_static_member_takes_the_group_back_to_the_classic_protocol(sim):
    old, new = classic_group(sim), SimMember(sim, "n", "t", instance="i")
    for _ in range(6):
        new.beat()
        sim.advance(2_000)
        old.beat()
    had = new.partitions
    assert len(had) == 3
    static = ClassicMember(sim, "t", instance="i")
    assert static.join().error is E.NONE
    assert isinstance(sim.coordinator.groups[GROUP], ClassicGroup)
    assert static.sync().error is E.NONE
    assert static.partitions == had
    assert old.beat() is E.NONE


def test_members_that_wait_in_a_rebalance_are_sent_to_join_again(sim):
    old = classic_group(sim)
    other = sim.join(protocols=(Protocol("cooperative-sticky", old.metadata()),), protocol_type="consumer")
    assert other not in sim.replies, "it waits for the first one"
    new = SimMember(sim, "n", "t")
    assert new.beat().error is E.NONE
    assert sim.replies[other].error is E.REBALANCE_IN_PROGRESS
    assert len(sim.group.members) == 3


def test_requests_wait_while_the_change_is_written(sim):
    old = classic_group(sim)
    sim.auto = False
    new = SimMember(sim, "n", "t")
    upgrade = sim.send(**new.fields())
    join = sim.join(
        old.member_id, protocols=(Protocol("cooperative-sticky", old.metadata()),), protocol_type="consumer"
    )
    sync = sim.sync(old.member_id, old.generation)
    assert not {upgrade, join, sync} & sim.replies.keys()
    sim.finish_append(sim.coordinator.partition_for(GROUP))
    assert sim.replies[upgrade].error is E.NONE
    sim.finish_appends()
    assert sim.replies[join].error is E.NONE
    assert sim.replies[sync].error in (E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS, E.NONE)
    sim.auto = True
    assert sim.restarted().group.members == sim.group.members


def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group(sim):
    old = classic_group(sim)
    sim.auto = False
    token = sim.send(**SimMember(sim, "n", "t").fields())
    sim.finish_appends(E.KAFKA_STORAGE_ERROR)
    assert sim.replies[token].error is E.NOT_COORDINATOR
    sim.auto = True
    assert isinstance(sim.coordinator.groups[GROUP], ClassicGroup)
    assert old.beat() is E.NONE


def doubly_assigned(sim: ConsumerSim) -> tuple[ClassicMember, ClassicMember]:
    """Returns a stable classic group whose leader gave the same partitions to both members."""
    members = ClassicMember(sim, "t"), ClassicMember(sim, "t")
    for member in members:
        member.member_id = sim.result(
            sim.join(
                protocols=(Protocol("cooperative-sticky", member.metadata()),),
                protocol_type="consumer",
                needs_id=True,
            )
        ).member_id
    for member in members:
        member.join()
    sim.settle()
    joined = [r for r in sim.replies.values() if getattr(r, "generation_id", -1) > 0]
    for member in members:
        member.generation = joined[0].generation_id
    everything = assignment_of(t=list(range(6)))
    given = {m.member_id: everything for m in members}
    leader = joined[0].leader
    ordered = sorted(members, key=lambda m: m.member_id == leader)
    tokens = [sim.sync(m.member_id, m.generation, given if m.member_id == leader else {}) for m in ordered]
    assert [sim.error(token) for token in tokens] == [E.NONE] * 2
    for member in members:
        member.sync()
        assert len(member.partitions) == 6
    return members


@pytest.mark.parametrize("goes", [True, False])
def test_an_upgrade_sorts_out_what_an_assignor_gave_to_two_members(sim, goes):
    first, second = doubly_assigned(sim)
    new = SimMember(sim, "n", "t")
    assert new.beat().error is E.NONE
    old = [first, second]
    if goes:
        assert sim.leave(old.pop().member_id) == [E.NONE]
    for _ in range(10):
        sim.advance(2_000)
        for member in old:
            member.beat()
        new.beat()
        for member in old:
            assert not member.partitions & new.partitions, "others may still read it"
    shares = [m.partitions for m in (*old, new)]
    assert sorted(at for share in shares for at in share) == [
        (sim.topics.by_name("t").id, p) for p in range(6)
    ]
    assert {len(share) for share in shares} == {6 // len(shares)}
    assert (sim.group.state, sim.group.contested) == ("Stable", set())
