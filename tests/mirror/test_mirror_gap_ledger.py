"""The gap ledger's entries, committed positions, and the decisions about gaps: pure."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_mirror import topic_ids
from klamm_mirror.copy.gap_policy import GapSettings, decide, gap_of, new_name, passed, went_past
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.source_offsets import Position, check_offset
from klamm_mirror.copy.topic_makers import ASK_S, SURE_S, TopicMakers
from klamm_mirror.gaps.entries import Gap, GapTable, Known, State, decode
from klamm_mirror.gaps.resolve import Unsuitable, choose
from klamm_mirror.stops import ACTIONS, Action, Kind, Stop, within
from klamm_mirror.topics.fields import MalformedRecord
from klamm_plugins.errors import ConnectError

OLD, NEW = b"o" * 16, b"n" * 16
ids = st.binary(min_size=16, max_size=16)
offsets = st.integers(0, 2**62)

some_gaps = st.builds(
    Gap, topic=st.text(min_size=1), topic_id=st.none() | ids, partition=st.integers(0, 9999), start=offsets,
    end=st.none() | offsets, kind=st.sampled_from(Kind), when_ms=offsets, why=st.text(), state=st.sampled_from(State),
    action=st.none() | st.sampled_from(Action), new_id=st.none() | ids, asked_ms=st.none() | offsets,
    done_ms=st.none() | offsets, copy_end=st.none() | offsets,
)  # fmt: skip
some_topics = st.builds(
    Known,
    topic=st.text(min_size=1),
    topic_id=ids,
    partitions=st.integers(1, 999),
    remote=st.none() | st.text(),
    made=st.none() | ids,
)


@given(some_gaps | some_topics)
def test_entries_come_back_as_they_were(entry):
    assert decode(*entry.encode()) == entry


@given(st.none() | st.binary(), st.none() | st.binary())
def test_what_is_no_entry_is_told(key, value):
    with pytest.raises(MalformedRecord, match="no entry of a gap ledger"):
        decode(key, value)


@given(
    st.none() | st.integers(-1, 2**62), ids, st.integers(-1, 2**31 - 1), st.none() | st.text(min_size=1),
    st.none() | ids, st.integers(-1, 2**62),
)  # fmt: skip
def test_positions_come_back_and_mirrormaker_finds_its_offset(
    offset, topic_id, epoch, remote, copy_id, copy_end
):
    position = Position(
        offset=offset, topic_id=topic_id, epoch=epoch, remote=remote, copy_id=copy_id, copy_end=copy_end
    )
    assert Position.decode(position.encode()) == position
    assert position.encode().get("offset") == offset


def test_positions_without_an_id_are_mirrormakers_and_wrong_ones_are_told():
    assert Position.decode({"offset": 41}) == Position(offset=41)
    for wrong, said in [
        ({"offset": "41"}, "'offset' must be a number"),
        ({"offset": 41, "topic_id": "abc"}, "'abc' is no topic id"),
        ({"offset": 41, "leader_epoch": "x"}, "'leader_epoch' must be a number"),
        ({"offset": 41, "remote": 3}, "'remote' must be the name"),
        ({"offset": 41, "copy_end": "x"}, "'copy_end' must be a number"),
    ]:
        with pytest.raises(ConnectError, match=said):
            Position.decode(wrong)
    with pytest.raises(ConnectError, match="must be a number from -1 on"):
        check_offset({"topic_id": topic_ids.to_text(OLD)})


def test_ids_are_written_as_kafka_does():
    raw = bytes.fromhex("27a16cf29424472b21c9d274f4ad3d6f")
    assert topic_ids.to_text(raw) == "J6Fs8pQkRyshydJ09K09bw"
    assert topic_ids.from_text("J6Fs8pQkRyshydJ09K09bw") == raw
    assert new_name("A.orders", raw) == "A.orders.recreated-J6Fs8pQk"


def settings(**more) -> GapSettings:
    return GapSettings(topic="mm2-gaps.A.internal", props={}, parsed={}, **more)


def stop(kind: Kind, *, end: int | None = 20, new_id: bytes | None = None, passing: bool = False) -> Stop:
    return Stop(kind=kind, start=10, end=end, why="because", since_ms=1, new_id=new_id, passing=passing)


def partition(**more) -> MirrorPartition:
    return MirrorPartition(remote="A.t", named="A.t", topic="t", partition=0, topic_id=OLD, **more)


def gap(found: Stop) -> Gap:
    return gap_of(partition(done=10), found)


@pytest.mark.parametrize("kind", [k for k in Kind if k is not Kind.DELETED])
def test_a_gap_waits_for_somebody_unless_a_policy_decides(kind):
    found = stop(kind, new_id=NEW if kind is Kind.RECREATED else None)
    decision = decide(settings(), found, gap(found), None)
    assert (decision.action, decision.gap.state) == (None, State.OPEN)
    decision = decide(settings(gaps="record", recreated="append"), found, gap(found), None)
    expected = {Kind.RECREATED: Action.APPEND, Kind.UNREADABLE: None}.get(kind, Action.SKIP)
    assert decision.action is expected
    assert decision.gap.state is (State.OPEN if expected is None else State.RECORDED)


def test_no_policy_leaves_out_records_that_the_target_may_take_later():
    found = stop(Kind.REFUSED, passing=True)
    assert decide(settings(gaps="record"), found, gap(found), None).action is None


def test_the_end_of_a_topic_that_was_copied_whole_needs_nobody():
    for end, action in ((10, Action.SKIP), (11, None), (None, None)):
        found = stop(Kind.DELETED, end=end)
        assert decide(settings(), found, gap(found), None).action is action


@pytest.mark.parametrize("kind", Kind)
def test_decisions_of_the_ledger_are_carried_out_once_and_again_after_a_kill(kind):
    found = stop(kind, new_id=NEW if kind is Kind.RECREATED else None)
    opened = gap(found)
    for action in ACTIONS[kind]:
        asked = opened.asked(action, 77)
        assert decide(settings(), found, opened, asked).action is action
        assert decide(settings(), found, opened, asked, {77}).action is None, "it did not help"
        done = replace(asked, state=State.RESOLVED)
        again = decide(settings(), found, opened, done).action
        assert again is (None if action is Action.RETRY else action)
        other = replace(asked, new_id=b"x" * 16)
        assert decide(settings(), found, opened, other).action is None, "it was about another topic"


def test_a_gap_is_left_behind_by_progress_or_by_a_newer_topic():
    waiting = gap(stop(Kind.REFUSED))
    assert not went_past(waiting, partition(done=10, records=5))
    assert not went_past(waiting, partition(done=12)), "nothing was copied yet: it may be found again"
    assert went_past(waiting, partition(done=12, records=5))
    newer = partition(done=0)
    newer.topic_id = NEW
    assert went_past(waiting, newer)


def test_a_gap_that_was_left_behind_was_copied_only_where_the_partition_went_through_it():
    waiting = replace(gap(stop(Kind.PURGED)), start=100, end=500, state=State.RESOLVED)
    through, over, within_it = (partition(done=1000, begun=begun) for begun in (100, 700, 300))
    assert (passed(waiting, through).action, passed(waiting, through).left_out) == (Action.RETRY, 0)
    assert (passed(waiting, over).action, passed(waiting, over).left_out) == (Action.SKIP, 400)
    assert passed(waiting, within_it).left_out == 200
    assert passed(replace(waiting, end=None), over).end == 700
    newer = partition(done=0, begun=0)
    newer.topic_id = NEW
    assert passed(waiting, newer).left_out == 400, "the new topic has none of its records"
    assert passed(replace(waiting, action=Action.APPEND), newer).action is Action.APPEND


def test_the_table_keeps_the_latest_and_knows_topics_that_left():
    table, known = GapTable(), Known(topic="t", topic_id=OLD, partitions=2)
    table.apply(known)
    assert table.gone({"other"}, lambda _: True) == {"t": 2}
    assert table.gone({"t"}, lambda _: True) == {}
    assert table.gone((), lambda topic: topic != "t") == {}
    first = gap(stop(Kind.DELETED, end=10))
    table.apply(first)
    assert table.waiting() == [first]
    for number in (0, 1):
        table.apply(replace(first, partition=number, state=State.RECORDED))
    assert table.gone((), lambda _: True) == {}
    assert table.waiting() == []
    assert table.remotes() == {}
    table.apply(replace(known, remote="A.t.recreated-x"))
    assert table.remotes() == {"t": "A.t.recreated-x"}


def test_the_latest_new_beginning_tells_where_a_topic_was_appended():
    gap = Gap(topic="t", topic_id=OLD, partition=0, start=5, end=5, kind=Kind.RECREATED, when_ms=1, why="w")
    table = GapTable()
    assert table.appended_at("t", 0) == 0
    appended = replace(gap, action=Action.APPEND, copy_end=5)
    table.apply(appended)
    assert table.appended_at("t", 0) == 0, "not begun yet"
    table.apply(replace(appended, state=State.RESOLVED, done_ms=2))
    assert (table.appended_at("t", 0), table.appended_at("t", 1)) == (5, 0)
    table.apply(replace(appended, topic_id=NEW, start=9, copy_end=14, done_ms=3))
    assert table.appended_at("t", 0) == 14
    table.apply(replace(gap, start=20, action=Action.NEW_TOPIC, done_ms=4))
    assert table.appended_at("t", 0) == 0, "the copy is another topic"


def test_the_ledger_learns_new_topics_and_partitions_and_no_other_id():
    table, known = GapTable(), Known(topic="t", topic_id=OLD, partitions=2, remote="x")
    assert table.news({"t": 2, "u": 1}, {"t": OLD}) == [replace(known, remote=None)]
    table.apply(known)
    assert table.news({"t": 2}, {"t": OLD}) == []
    assert table.news({"t": 3}, {"t": OLD}) == [replace(known, partitions=3)]
    assert table.news({"t": 3}, {"t": NEW}) == []


def test_the_ledger_keeps_the_id_of_a_copy_that_was_made_also_while_its_source_is_another_topic():
    table, made = GapTable(), {"t": b"m" * 16}
    [first] = table.news({"t": 1}, {"t": OLD}, made=made)
    table.apply(first)
    assert (first.topic_id, first.made) == (OLD, made["t"])
    assert table.news({"t": 1}, {"t": OLD}) == []
    [again] = table.news({"t": 2}, {"t": NEW}, made={"t": b"n" * 16})
    assert (again.topic_id, again.partitions, again.made) == (OLD, 1, b"n" * 16)


def test_a_topic_was_made_by_somebody_when_no_ledger_has_it_after_some_seconds():
    asked: list[bytes] = []

    async def look(topic_id: bytes) -> bool:
        asked.append(topic_id)
        return topic_id == NEW and len(asked) > 2

    async def ask() -> list[bool | None]:
        makers = TopicMakers(look)
        return [
            await makers.made_by_mirror(topic_id, at)
            for topic_id, at in ((OLD, 0), (NEW, 0), (NEW, ASK_S), (NEW, 99), (OLD, SURE_S), (OLD, 99))
        ]

    assert asyncio.run(ask()) == [None, None, True, True, False, False]
    assert asked == [OLD, NEW, NEW, OLD]


def test_what_to_do_must_fit_the_gap():
    refused, purged = gap(stop(Kind.REFUSED)), gap(stop(Kind.PURGED))
    assert choose([purged], None) == [(purged, Action.SKIP)]
    with pytest.raises(Unsuitable, match=r"t-0 \(refused\) needs a decision: give --retry or --skip"):
        choose([refused], None)
    with pytest.raises(Unsuitable, match=r"t-0 \(purged\) does not go on by --append: give --skip"):
        choose([purged], Action.APPEND)
    endless = gap(replace(stop(Kind.REFUSED), end=None))
    with pytest.raises(Unsuitable, match="no records to leave out: mend the cause, then give --retry"):
        choose([endless], Action.SKIP)
    assert choose([endless], Action.RETRY) == [(endless, Action.RETRY)]


def test_a_status_keeps_to_its_size():
    rows = {f"topic-{i}": {"why": "x" * 100} for i in range(1000)}
    shown = within(rows, 1000)
    assert list(shown) == [f"topic-{i}" for i in range(8)]
    assert within(rows, 10_000_000) == rows
