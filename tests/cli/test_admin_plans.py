"""Planning resets, reading what users write, and filters: properties of the pure core."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime, timedelta

import pytest
import yaml as pyyaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from klamm.admin.config_entities import ConfigError, parse_added, parse_credential
from klamm.admin.filters import FilterError, by_rules, by_topic_and_numbers
from klamm.admin.group_report import arrange
from klamm.admin.groups import Committed, Group, Member
from klamm.admin.model import Node, TopicPartition, by_topic
from klamm.admin.reset import (
    How,
    LogState,
    Reset,
    ResetError,
    parse_datetime,
    parse_duration,
    parse_topic,
    plan,
    read_csv,
    write_csv,
)
from klamm.admin.transactions import OpenTransaction, ProducerState, Transaction, hanging
from klamm.cli.output import Format, print_rows, table, yaml
from klamm.kafka_tools.configs import java_double

NAMES = st.text("abz019._-", min_size=1, max_size=40)
PARTITIONS = st.builds(TopicPartition, NAMES, st.integers(0, 20))
OFFSETS = st.integers(0, 2**62)


@st.composite
def logs(draw):
    """Partitions with a start, an end, maybe a committed offset anywhere, and an offset of a time or none."""
    partitions = draw(st.sets(PARTITIONS, max_size=6))
    starts, ends, committed, at_time = {}, {}, {}, {}
    for tp in partitions:
        starts[tp], ends[tp] = sorted((draw(OFFSETS), draw(OFFSETS)))
        if draw(st.booleans()):
            committed[tp] = draw(OFFSETS)
        at_time[tp] = draw(st.sampled_from([-1, starts[tp], ends[tp]]))
    return LogState(starts=starts, ends=ends, committed=committed, at_time=at_time)


@settings(deadline=None)
@given(logs(), st.sampled_from(list(How)), st.integers(-(2**62), 2**62))
def test_a_plan_covers_its_scope_and_never_leaves_the_log(state, how, value):
    partitions = list(state.ends)
    rows = {tp: abs(value) for tp in partitions}
    reset = Reset(how=how, value=value, plan={"g": rows})
    if how is How.SHIFT and len(state.committed) < len(partitions):
        with pytest.raises(ResetError, match="no current committed offset"):
            plan(reset, "g", partitions, state)
        return
    planned = plan(reset, "g", partitions, state)
    assert list(planned.offsets) == sorted(partitions)
    for tp, offset in planned.offsets.items():
        low, high = state.starts[tp], state.ends[tp]
        kept = how is How.CURRENT and tp in state.committed
        assert kept or low <= offset <= high
        match how:
            case How.EARLIEST:
                assert offset == low
            case How.LATEST:
                assert offset == high
            case How.CURRENT:
                assert offset == state.committed.get(tp, high)
            case How.TIME:
                assert offset == (high if state.at_time[tp] < 0 else state.at_time[tp])
            case How.SHIFT:
                assert offset == min(max(state.committed[tp] + value, low), high)
            case How.OFFSET:
                assert offset == min(max(value, low), high)
            case How.FILE:
                assert offset == min(max(rows[tp], low), high)
    assert len(planned.fallbacks) == (
        sum(state.at_time[tp] < 0 for tp in partitions) if how is How.TIME else 0
    )
    if how is How.OFFSET:
        outside = [tp for tp in partitions if not state.starts[tp] <= value <= state.ends[tp]]
        assert len(planned.clipped) == len(outside)


def test_a_group_that_the_file_does_not_have():
    state = LogState(starts={}, ends={}, committed={}, at_time={})
    with pytest.raises(ResetError, match="No reset plan for group other found"):
        plan(Reset(how=How.FILE, plan={"g": {}}), "other", [], state)


GROUP_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=30)


@settings(deadline=None)
@given(st.dictionaries(GROUP_NAMES, st.dictionaries(PARTITIONS, OFFSETS, min_size=1), max_size=4))
def test_a_plan_as_csv_is_read_back(plans):
    assert read_csv(write_csv(plans, with_group=True), []) == plans
    for group, offsets in plans.items():
        assert read_csv(write_csv({group: offsets}, with_group=False), [group]) == {group: offsets}


@pytest.mark.parametrize(
    ("text", "groups", "said"),
    [
        ("t,0\n", ["g"], "line 1: 't,0' is neither"),
        ("t,0,1\nt,x,1\n", ["g"], "line 2: partition 'x' and offset '1' must be whole numbers"),
        ("t,0,-1\n", ["g"], "line 1: partition 0 and offset -1 must not be negative"),
        ("t,0,1\n", ["g", "h"], "line 1: without a group"),
        ("t,0,1\n", [], "line 1: without a group"),
    ],
)
def test_a_bad_line_is_named(text, groups, said):
    with pytest.raises(ResetError, match=said):
        read_csv(text, groups)


@settings(deadline=None)
@given(st.timedeltas(timedelta(-10_000), timedelta(10_000)))
def test_durations(duration):
    seconds = duration // timedelta(seconds=1)
    ms = (duration - timedelta(seconds=seconds)) // timedelta(milliseconds=1)
    days, rest = divmod(seconds, 86_400)
    assert (
        parse_duration(f"P{days}DT{rest // 3600}H{rest % 3600 // 60}M{rest % 60}.{ms:03}S")
        == seconds * 1000 + ms
    )
    assert parse_duration(f"-P{days}D") == -days * 86_400_000


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1H", "PT1.5M", "P1Y", "bad"])
def test_what_is_no_duration(text):
    with pytest.raises(ResetError, match="is not a duration like P7D"):
        parse_duration(text)


@settings(deadline=None)
@given(st.integers(0, 7_258_118_400_000), st.integers(-14, 14))
def test_times_with_and_without_zone(ms, hours):
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{ms % 1000:03}"
    assert parse_datetime(text) == parse_datetime(text + "Z") == ms
    assert parse_datetime(f"{text}{hours:+03}:00") == ms - hours * 3_600_000


@pytest.mark.parametrize("text", ["2026-01-01", "2026-13-01T00:00:00", "yesterday", "2026-01-01T00:00:00X"])
def test_what_is_no_time(text):
    with pytest.raises(ResetError, match="is not a time like"):
        parse_datetime(text)


def test_topics_with_partitions():
    assert parse_topic("t") == ("t", None)
    assert parse_topic("t:0,12") == ("t", (0, 12))
    for bad in ("t:", ":0", "t:0:1", "t:x", "t:0,"):
        with pytest.raises(ResetError, match="Invalid"):
            parse_topic(bad)


# ---- filters


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(0, 12), st.integers(0, 12))
def test_ranges_leave_out_their_upper_end(number, low, high):
    def matches(rule):
        return by_rules(rule)(TopicPartition("topic", number))

    assert matches(f"topic:{low}") == (number == low)
    assert matches(f"t.*:{low}-{high}") == (low <= number < high)
    assert matches(f"x,:{low}-") == (number >= low)
    assert matches(f":-{high}") == (number < high)
    assert matches("topic")
    assert not matches("top")


def test_filters_that_cannot_be_read():
    with pytest.raises(FilterError, match="Invalid rule specification: t:x"):
        by_rules("t:x")
    with pytest.raises(FilterError, match="is an invalid regex"):
        by_topic_and_numbers("t(", None)
    assert by_topic_and_numbers("a, b", "1,2")(TopicPartition("b", 2))
    assert not by_topic_and_numbers("a, b", "1,2")(TopicPartition("b", 3))


# ---- reports


def test_positions_are_in_kafkas_order():
    tps = [TopicPartition("t", p) for p in range(4)]
    members = tuple(
        Member(id=name, instance_id=None, client_id="c", host="/h", assignment=assignment)
        for name, assignment in (("idle", ()), ("one", (tps[3],)), ("two", (tps[2], tps[0])))
    )
    group = Group(
        group="g",
        type="Classic",
        state="Stable",
        assignor="range",
        coordinator=Node(id=1, host="h", port=1),
        members=members,
    )
    offsets = {tps[0]: Committed(offset=5), tps[1]: Committed(offset=7), tps[3]: Committed(offset=1)}
    rows = arrange(group, offsets, {tps[0]: 9, tps[1]: None, tps[2]: 3, tps[3]: 1})
    assert [(r.partition.partition, r.member.id if r.member else None, r.current, r.end, r.lag) for r in rows] == [
        (0, "two", 5, 9, 4), (2, "two", None, 3, None), (3, "one", 1, 1, 0), (1, None, 7, None, None),
    ]  # fmt: skip


def test_a_transaction_hangs_when_its_coordinator_does_not_count_the_partition():
    tp, other = TopicPartition("t", 0), TopicPartition("t", 1)

    def producer(producer_id):
        return ProducerState(
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            last_sequence=0,
            last_timestamp=0,
            txn_start=0,
        )

    def transaction(producer_id, *partitions):
        return Transaction(
            transactional_id="x",
            coordinator=1,
            producer_id=producer_id,
            producer_epoch=0,
            state="Ongoing",
            timeout_ms=1,
            started_ms=0,
            partitions=partitions,
        )

    candidates = [OpenTransaction(partition=tp, producer=producer(i)) for i in (1, 2, 3)]
    found = hanging(candidates, {1: transaction(1, tp), 2: transaction(2, other)})
    assert [c.producer.producer_id for c in found] == [2, 3]


def test_partitions_by_topic():
    assert by_topic({TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("b", 0)}) == {
        "a": [2],
        "b": [0, 1],
    }


# ---- settings


def test_added_settings():
    assert parse_added("a=1, b = [x,y] ,c=") == {"a": "1", "b": "x,y", "c": ""}
    for bad in ("a", "a=1,b", "a=1=2"):
        with pytest.raises(ConfigError, match="must be in the format"):
            parse_added(bad)
    with pytest.raises(ConfigError, match="Invalid character found for config key: a b"):
        parse_added("a b=1")


def test_credentials():
    assert parse_credential("SCRAM-SHA-256", "iterations=8192,password=a,b=c") == (8192, "a,b=c")
    assert parse_credential("SCRAM-SHA-256", "password=x") == (4096, "x")
    with pytest.raises(ConfigError, match="less than the minimum 4096"):
        parse_credential("SCRAM-SHA-256", "iterations=1,password=secret")
    with pytest.raises(ConfigError) as error:
        parse_credential("SCRAM-SHA-256", "secret")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (1024.0, "1024.0"), (0.5, "0.5"), (9999999.0, "9999999.0"), (1e7, "1.0E7"), (12345678.0, "1.2345678E7"),
     (0.001, "0.001"), (0.0001, "1.0E-4"), (1.5e300, "1.5E300"), (float("inf"), "Infinity"), (float("nan"), "NaN")],
)  # fmt: skip
def test_doubles_as_java_prints_them(value, text):
    assert java_double(value) == text


# ---- output

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "a_b", "1", "x y", "yes", "null", ":", "-a"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.text(), VALUES), max_size=3))
@example([{"line": "\x85\u2028\u2029\ufeff\x7f\x9f\ud800\uffff\U0001f600\\u"}, {"": ""}])
def test_yaml_says_what_json_says(rows):
    assert pyyaml.safe_load(yaml(rows)) == rows


def test_tables():
    rows = [{"name": "a", "count": 5, "list": [1, 2]}, {"name": "longer", "count": None, "list": []}]
    assert table(rows, ["name", "count", "list"]) == (
        "NAME    COUNT  LIST\n"
        "a           5  1,2\n"
        "longer      -  -\n"
    )  # fmt: skip
    assert table([], ["log_end_offset"]) == "LOG-END-OFFSET\n"


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.text("ab", max_size=60), st.text("c", max_size=40), st.integers(0, 10**9)), max_size=4
    ),
    st.integers(1, 120),
)
def test_tables_fit_the_terminal_if_they_can(values, room):
    rows = [{"first": a, "second": b, "number": n} for a, b, n in values]
    whole = table(rows, ["first", "second", "number"]).splitlines()
    lines = table(rows, ["first", "second", "number"], room=room).splitlines()
    numbers = max([6, *(len(str(n)) for _, _, n in values)])
    assert lines == whole or max(map(len, lines)) <= room < max(map(len, whole))
    if room >= 12 + 12 + numbers + 4:  # two columns of text as narrow as they get, and two gaps
        assert max(map(len, lines)) <= room
    assert [line.split()[-1] for line in lines] == [line.split()[-1] for line in whole]


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        (Format.TABLE, "A\n1\n"), (Format.WIDE, "A  B\n1  x,y\n"), (Format.CSV, 'a,b\n1,"x,y"\n'),
        (Format.JSONL, '{"a": 1, "b": ["x", "y"]}\n'), (Format.YAML, '- a: 1\n  b:\n    - "x"\n    - "y"\n'),
        (Format.JSON, '[\n  {\n    "a": 1,\n    "b": [\n      "x",\n      "y"\n    ]\n  }\n]\n'),
    ],
)  # fmt: skip
def test_formats(format_, text, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    print_rows([{"a": 1, "b": ["x", "y"]}], ["a"], format_, wide=["b"])
    assert out.getvalue() == text
