"""A broker starts with any content of `__consumer_offsets`: any mixture of records, damaged ones, ones that contradict."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.consumer_group_sim import ClassicMember, ConsumerSim, SimMember, settle
from support.group_sim import GROUP, Sim, subscription

from klamm_broker.coordinator.effects import KeyValue
from klamm_broker.coordinator.loading import Loader
from klamm_broker.coordinator.model import JoinResult, Protocol
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.group_records import GroupMetadataValue, MemberMetadata


def everything() -> list[KeyValue]:
    """Returns records of every kind: groups of both protocols, migrated there and back, offsets, a regular expression."""
    sim = ConsumerSim(offsets_topic_partitions=1)
    sim.create_topic("t", 4)
    protocols = (Protocol("range", subscription("t")),)
    sim.stable(2, protocols=protocols, protocol_type="consumer", instance=None)
    sim.commit({("t", 0): 1, ("t", 1): 2}, group="other")
    sim.delete_offsets(("t", 0), group="other")
    members = [
        SimMember(sim, "a", "t"),
        SimMember(sim, "b", "t", instance="i"),
        SimMember(sim, "c", regex="t.*"),
    ]
    settle(members)
    ClassicMember(sim, "t").join()
    for member in members:
        member.leave()
    settle([SimMember(sim, "d", "t")])
    return sim.log[0]


RECORDS = everything()


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_no_record_keeps_the_others_from_being_loaded(data):
    """Records are lost, doubled, damaged; what can be read is loaded, and the group works."""
    records = []
    for record in data.draw(st.lists(st.sampled_from(RECORDS), max_size=30)):
        key, value = record
        if data.draw(st.integers(0, 3)) == 0 and value:
            at = data.draw(st.integers(0, len(value) - 1))
            value = value[:at] + bytes([data.draw(st.integers(0, 255))]) + value[at + 1 :]
        if data.draw(st.integers(0, 9)) == 0:
            value = None
        records.append(KeyValue(key, value))
    sim = ConsumerSim(offsets_topic_partitions=1, log={0: records})
    sim.create_topic("t", 4)
    sim.coordinator.start_loading(0)
    sim.coordinator.replay(0, records)
    sim.run(sim.coordinator.finish_loading(0, sim.now))
    assert sim.error(sim.commit({("t", 0): 9}, group="untouched")) is E.NONE
    assert sim.offsets("untouched") == {("t", 0): 9}
    sim.advance(70_000)


@pytest.mark.parametrize("field", ["member_id", "group_instance_id"])
def test_a_stored_group_with_two_members_of_one_name_has_to_join_again(field, caplog):
    sim = Sim(offsets_topic_partitions=1)
    sim.stable(2)
    sim.commit({("t", 0): 5}, group="other")
    stored = next(r for r in reversed(sim.log[0]) if r.key.startswith(b"\0\2"))
    value, _ = GroupMetadataValue.decode(stored.value, 3, 2)
    value.members = [
        MemberMetadata(
            member_id="m" if field == "member_id" else f"m{i}",
            group_instance_id="i" if field == "group_instance_id" else None,
            session_timeout=10_000,
            rebalance_timeout=10_000,
            subscription=b"",
            assignment=b"",
        )
        for i in range(2)
    ]
    sim.log[0].append(KeyValue(stored.key, b"\0\3" + value.encode(3)))
    loaded = sim.restarted(offsets_topic_partitions=1)
    assert loaded.state() == "Empty"
    assert loaded.offsets("other") == {("t", 0): 5}
    assert "group g: two of its" in caplog.text
    loaded.stable(1)


def test_a_partition_that_fails_to_load_stays_unavailable(monkeypatch):
    """Half of a partition's groups would be served from half of their offsets."""
    sim = Sim()
    sim.commit({("t", 0): 5})
    partition = sim.coordinator.partition_for(GROUP)
    loaded = Sim()

    def fail(*_):
        raise RuntimeError("a defect")

    monkeypatch.setattr(Loader, "groups", fail)
    loaded.coordinator.start_loading(partition)
    loaded.coordinator.replay(partition, sim.log[partition])
    with pytest.raises(RuntimeError, match="a defect"):
        loaded.coordinator.finish_loading(partition, loaded.now)
    assert loaded.coordinator.fetch(GROUP).error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert loaded.coordinator.list_groups()[0] is E.COORDINATOR_LOAD_IN_PROGRESS


def stable(sim: Sim, protocols: tuple[Protocol, ...], member_id: str = "") -> JoinResult:
    """Returns a classic group with one member that is assigned nothing."""
    token = sim.join(member_id, protocols=protocols, protocol_type="consumer")
    sim.settle()
    joined = sim.result(token)
    assert sim.error(sim.sync(joined.member_id, joined.generation_id, {joined.member_id: b""})) is E.NONE
    assert sim.state() == "Stable"
    return joined


@pytest.mark.parametrize("up", [True, False])
def test_a_conversion_that_was_reported_as_failed_and_is_in_the_log_does_not_outlive_what_came_after_it(up):
    """The coordinator went on with the group that it had, and wrote it again."""
    sim = ConsumerSim(offsets_topic_partitions=1)
    sim.create_topic("t", 2)
    sim.commit({("t", 0): 5})
    protocols = (Protocol("range", subscription("t")),)
    if up:
        leader = stable(sim, protocols)
    else:
        new = SimMember(sim, "n", "t")
        settle([new])
        new.leave()
    sim.auto = False
    token = (
        sim.send(**SimMember(sim, "n", "t").fields())
        if up
        else sim.join(protocols=protocols, protocol_type="consumer")
    )
    (append,) = sim.in_flight[0]
    sim.log[0].extend(append.records)
    sim.finish_appends(E.KAFKA_STORAGE_ERROR)
    assert sim.error(token) is not E.NONE
    sim.auto = True
    if up:
        stable(sim, protocols, leader.member_id)
    else:
        settle([SimMember(sim, "m", "t")])
    loaded = sim.restarted(offsets_topic_partitions=1)
    assert type(loaded.coordinator.groups[GROUP]) is type(sim.coordinator.groups[GROUP])
    assert set(loaded.coordinator.groups[GROUP].members) == set(sim.coordinator.groups[GROUP].members)
    assert loaded.offsets() == {("t", 0): 5}
