"""The small parts of the coordinators: timers, partitioning, subscriptions, records, transitions, producer ids."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.group_sim import Sim, subscription

from klamm_broker.coordinator import group_state, records
from klamm_broker.coordinator.group_state import Event, GroupState
from klamm_broker.coordinator.model import CommittedOffset, Protocol, TopicPartition
from klamm_broker.coordinator.partitioning import java_hash, partition_for
from klamm_broker.coordinator.producer_ids import BLOCK_SIZE, GAP, ProducerIds
from klamm_broker.coordinator.subscription import MalformedSubscription, subscribed_topics
from klamm_broker.coordinator.timers import Timers
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.errors import ProtocolError

# Timers

keys = st.tuples(st.sampled_from("abcdefgh"))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), keys, st.integers(0, 50)),
        st.tuples(st.just("cancel"), keys),
        st.tuples(st.just("pass"), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(steps)
def test_timers_behave_like_a_dictionary_of_deadlines(steps):
    timers, model, now = Timers(), {}, 0
    for step in steps:
        match step:
            case ("set", key, after):
                timers.set(key, now + after)
                model[key] = now + after
            case ("cancel", key):
                timers.cancel(key)
                model.pop(key, None)
            case ("pass", ms):
                now += ms
                due = set()
                while (key := timers.pop_due(now)) is not None:
                    assert key not in due
                    due.add(key)
                assert due == {k for k, at in model.items() if at <= now}
                model = {k: at for k, at in model.items() if at > now}
        assert len(timers) == len(model)
        if model:
            assert timers.next_ms() <= min(model.values())
        else:
            assert timers.next_ms() is None


def test_cancelled_timers_take_no_memory_for_long():
    timers = Timers()
    for i in range(100_000):
        timers.set((str(i),), 10**9)
        timers.cancel((str(i),))
    assert len(timers._heap) < 3_000


def test_a_deadline_that_moves_on_is_one_entry():
    timers = Timers()
    for i in range(10_000):
        timers.set(("a",), i)
    assert len(timers._heap) == 1


# Partitioning: hash codes as Java computes them


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("connect-cluster", 1_440_343_063),
        ("größe", 98_762_257),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 1_772_899),
    ],
)
def test_java_hash(text, value):
    assert java_hash(text) == value


def test_partition_for():
    assert partition_for("polygenelubricants", 50) == 0, "the magnitude of the smallest integer overflows"
    assert partition_for("a", 50) == 47
    assert partition_for("connect-cluster", 50) == 13


# Subscriptions


def test_subscribed_topics():
    assert subscribed_topics(subscription("a", "b")) == ["a", "b"]
    newer = b"\x00\x03" + subscription("a")[2:] + b"what version 3 adds"
    assert subscribed_topics(newer) == ["a"]


@given(st.binary(max_size=40))
def test_any_bytes_are_a_subscription_or_malformed(data):
    with contextlib.suppress(MalformedSubscription):
        assert isinstance(subscribed_topics(data), list)


# Records

text = st.text(st.characters(codec="utf-8"), max_size=20)
int64 = st.integers(-(2**63), 2**63 - 1)


@given(
    text,
    text,
    st.integers(0, 2**31 - 1),
    int64,
    st.integers(-1, 2**31 - 1),
    text,
    int64,
    st.integers(-1, 2**62),
)
def test_offset_records_round_trip(group, topic, partition, offset, epoch, metadata, commit, expire):
    at = TopicPartition(topic, partition)
    committed = CommittedOffset(
        offset=offset,
        leader_epoch=epoch if expire == -1 else -1,
        metadata=metadata,
        commit_timestamp_ms=commit,
        expire_timestamp_ms=expire,
        topic_id=b"t" * 16 if expire == -1 else bytes(16),
    )
    assert records.decode(*records.committed_offset(group, at, committed)) == records.OffsetRecord(
        group, at, committed
    )
    assert records.decode(*records.offset_tombstone(group, at)) == records.OffsetRecord(group, at, None)


def test_record_bytes():
    """Written by Apache Kafka 4.3.1 for the same commits."""
    at = TopicPartition("topic-a46a184727", 0)
    topic_id = bytes.fromhex("82974a97e98e47b6a805cc38d3249472")
    plain = CommittedOffset(offset=3, leader_epoch=3, commit_timestamp_ms=0x1A1FD51D6C2, topic_id=topic_id)
    key, value = records.committed_offset("rett9", at, plain)
    assert key == b"\x00\x01\x00\x05rett9\x00\x10topic-a46a184727\x00\x00\x00\x00"
    assert value == bytes.fromhex("0004 0000000000000003 00000003 01 000001a1fd51d6c2 01 00 10") + topic_id
    expiring = CommittedOffset(
        offset=3, commit_timestamp_ms=0x1A1FD51D6B6, expire_timestamp_ms=0x1A20347B7B6, topic_id=topic_id
    )
    _, value = records.committed_offset("rett4", at, expiring)
    assert value == bytes.fromhex("0001 0000000000000003 0000 000001a1fd51d6b6 000001a20347b7b6")
    assert records.group_tombstone("grp") == (b"\x00\x02\x00\x03grp", None)


def test_group_record_bytes():
    sim = Sim()
    sim.stable(1, session_ms=10_000, rebalance_ms=60_000, instance="i")
    (record,) = [r for log in sim.log.values() for r in log]
    assert record.key == b"\x00\x02\x00\x01g"
    since = sim.now.wall_ms.to_bytes(8, "big")
    assert record.value == (
        b"\x00\x03" b"\x00\x05other" b"\x00\x00\x00\x01" b"\x00\x05range" b"\x00\x05i-id0" + since +
        b"\x00\x00\x00\x01" b"\x00\x05i-id0" b"\x00\x01i" b"\x00\x06client" b"\x00\x0a/127.0.0.1"
        + (60_000).to_bytes(4, "big") + (10_000).to_bytes(4, "big") + b"\x00\x00\x00\x01m" b"\x00\x00\x00\x05i-id0"
    )  # fmt: skip


def test_older_records_are_read():
    key = b"\x00\x00\x00\x01g\x00\x01t\x00\x00\x00\x00"
    value = b"\x00\x00" + (5).to_bytes(8, "big") + b"\x00\x00" + (9).to_bytes(8, "big")
    assert records.decode(key, value).value == CommittedOffset(offset=5, commit_timestamp_ms=9)


def test_records_of_other_group_types_are_left_alone(caplog):
    sim = Sim()
    sim.log[0] = [(b"\x00\x63\x00\x01g", b"\x00\x00")]  # of a kind that nobody knows yet
    assert not sim.restarted().coordinator.groups
    assert "1 records of group types" in caplog.text


def test_a_damaged_record_costs_itself_only(caplog):
    sim = Sim()
    sim.commit({("t", 0): 1})
    (log,) = sim.log.values()
    log += [(b"\x00", b"x"), (b"\x00\x01\x00", b"x"), (b"\x00\x02\x00\x01h", b"\x00\x09")]
    assert sim.restarted().offsets() == {("t", 0): 1}
    assert caplog.text.count("cannot be read") == 3


@given(st.binary(max_size=30), st.none() | st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_protocol_error(key, value):
    with contextlib.suppress(ProtocolError):
        records.decode(key, value)


# Loading


def test_a_loaded_group_goes_on_where_it_was():
    sim = Sim()
    a, b = sim.stable(
        2, session_ms=10_000, protocol_type="consumer", protocols=(Protocol("r", subscription("t")),)
    )
    sim.advance(9_000)
    loaded = sim.restarted()
    loaded.advance(9_000)
    assert loaded.heartbeat(a.member_id, 1) is E.NONE, "loading starts a new session"
    assert loaded.result(loaded.sync(b.member_id, 1)).assignment == b.member_id.encode()
    assert loaded.coordinator.groups["g"].subscribed_topics == {"t"}
    loaded.advance(1_000)
    assert loaded.heartbeat(b.member_id, 1) is E.UNKNOWN_MEMBER_ID, "a SyncGroup is no heartbeat"
    assert loaded.heartbeat(a.member_id, 1) is E.REBALANCE_IN_PROGRESS


def test_an_emptied_group_is_loaded_empty():
    sim = Sim()
    (a,) = sim.stable(1)
    sim.leave(a.member_id)
    loaded = sim.restarted()
    assert loaded.state() == "Empty"
    token = loaded.join()
    loaded.settle()
    assert loaded.result(token).generation_id == 3


# Transitions


def test_every_state_can_be_reached_and_only_dead_is_final():
    reached, frontier = {GroupState.EMPTY}, {GroupState.EMPTY}
    while frontier:
        frontier = {to for (frm, _), to in group_state.TRANSITIONS.items() if frm in frontier} - reached
        reached |= frontier
    assert reached == set(GroupState)
    assert {frm for frm, _ in group_state.TRANSITIONS} == set(GroupState) - {GroupState.DEAD}
    assert {event for _, event in group_state.TRANSITIONS} == set(Event)


def test_what_is_not_in_the_table_cannot_happen():
    with pytest.raises(AssertionError, match="Stable cannot see JOIN_PHASE_COMPLETED"):
        group_state.after(GroupState.STABLE, Event.JOIN_PHASE_COMPLETED)


# Producer ids


class Store:
    def __init__(self):
        self.first_free, self.writes, self.broken = 0, 0, False

    def __call__(self, first_free):
        if self.broken:
            raise OSError("no space left on device")
        self.first_free = first_free
        self.writes += 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 2_500), min_size=1, max_size=6))
def test_no_producer_id_is_given_twice_across_restarts(lives):
    store, seen = Store(), set()
    for asked in lives:
        ids = ProducerIds(store.first_free, store)
        for _ in range(asked):
            result = ids.allocate()
            assert (result.error, result.producer_epoch) == (E.NONE, 0)
            assert result.producer_id not in seen
            seen.add(result.producer_id)
    assert store.writes <= sum(-(-asked // BLOCK_SIZE) for asked in lives)


def test_no_producer_id_without_a_durable_block():
    store = Store()
    ids = ProducerIds(0, store)
    store.broken = True
    assert ids.allocate().error is E.COORDINATOR_LOAD_IN_PROGRESS
    store.broken = False
    assert ids.allocate().producer_id == 0


@pytest.mark.parametrize(
    ("taken", "first_free"), [(-1, 1000), (999, 1000), (1000, 1000 + GAP), (5_000_000, 5_000_000 + GAP)]
)
def test_ids_that_a_log_knows_are_not_handed_out(taken, first_free):
    """One beyond what is stored shows that what is stored is not all: others may be in use, by producers long quiet."""
    store = Store()
    ids = ProducerIds(1000, store)
    ids.reserve(taken)
    ids.reserve(7)
    first = ids.allocate().producer_id
    assert first == first_free
    assert store.first_free > first
