"""Planning of batches: every record once, limits kept, losses said."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_spark.datasource.offsets import (
    DataLossError,
    Position,
    Range,
    advance,
    lag,
    limited,
    ranges,
    split,
    tasks,
    up_to,
    waiting,
)

PARTITIONS = [("a", 0), ("a", 1), ("b", 0)]
growth = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 40), max_size=3)


def through_json(position: Position) -> Position:
    return Position.from_json(json.loads(json.dumps(position.to_json())))


@given(st.lists(growth, max_size=8), st.integers(1, 50) | st.none())
def test_every_record_is_read_once_and_in_order(steps: list[dict], most: int | None) -> None:
    """Partitions appear and grow; batches follow until nothing is left."""
    ends: dict[tuple[str, int], int] = {}
    position = Position({})
    read: dict[tuple[str, int], list[int]] = {}

    def batch() -> bool:
        nonlocal position
        after = through_json(advance(position, dict.fromkeys(ends, 0), ends, max_records=most))
        found = ranges(position, after)
        assert most is None or sum(map(len, found)) <= most
        assert found == ranges(through_json(position), after), "a replayed batch reads the same"
        for r in found:
            read.setdefault((r.topic, r.partition), []).extend(range(r.start, r.end))
        moved = after != position
        assert bool(found) or dict(after.next) == {**dict.fromkeys(ends, 0), **position.next}
        position = after
        return moved

    for step in steps:
        for p, n in step.items():
            ends[p] = ends.get(p, 0) + n
        batch()
    while batch():
        pass
    assert read == {p: list(range(end)) for p, end in ends.items() if end}


@given(
    st.dictionaries(
        st.sampled_from(PARTITIONS), st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1
    ),
    st.integers(1, 200),
)
def test_a_limit_is_used_up_or_everything_is_read(sizes: dict, most: int) -> None:
    bounds = {p: (begin, begin + n) for p, (begin, n) in sizes.items()}
    ends = limited(bounds, most)
    total = sum(n for _, n in sizes.values())
    assert sum(ends[p] - bounds[p][0] for p in bounds) == min(most, total)
    assert all(bounds[p][0] <= ends[p] <= bounds[p][1] for p in bounds)


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=4),
    st.integers(1, 20) | st.none(),
    st.integers(1, 120) | st.none(),
)
def test_split_ranges_hold_the_same_records(sizes: list[int], parts: int | None, most: int | None) -> None:
    whole = [Range("t", i, 5, 5 + n) for i, n in enumerate(sizes)]
    found = split(whole, parts, most)
    assert len(found) >= min(parts or 1, sum(sizes))
    assert most is None or max(map(len, found)) <= most
    records = lambda rs: [(r.partition, o) for r in rs for o in range(r.start, r.end)]
    assert records(found) == records(whole)
    assert all(len(r) for r in found)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(1, 300))
def test_small_ranges_share_tasks_whole_and_evenly(sizes: list[int], least: int) -> None:
    whole = [Range("t", i, 5, 5 + n) for i, n in enumerate(sizes)]
    found = tasks(whole, (None, None, least))
    assert sorted((r for task in found for r in task), key=lambda r: r.partition) == whole
    assert len(found) == min(len(whole), -(-sum(sizes) // least))
    loads = [sum(map(len, task)) for task in found]
    assert min(loads) > 0
    assert max(loads) - min(loads) <= max(sizes), "no task has more than one range too much"
    assert tasks(whole, (2, None, least)) == [[r] for r in split(whole, 2)], "minPartitions decides alone"
    assert tasks(whole, (None, 7, least)) == [[r] for r in split(whole, None, 7)], "and so does the other"


def test_a_batch_that_an_older_version_planned_keeps_its_tasks() -> None:
    """The JSON of before: two numbers in `parts`, or none."""
    for parts, expected in (({}, (None, None, None)), ({"parts": [2, None]}, (2, None, None))):
        end = Position.from_json({"partitions": {"t": {"0": 9, "1": 9}}, "lost": 0, **parts})
        assert end.parts == expected
        whole = [Range("t", 0, 0, 9), Range("t", 1, 0, 9)]
        assert [len(task) for task in tasks(whole, end.parts)] == [1, 1]


def test_records_that_are_gone_are_an_error_or_counted() -> None:
    start = Position({("t", 0): 10, ("t", 1): 5})
    earliest, latest = {("t", 0): 30, ("t", 1): 0}, {("t", 0): 40, ("t", 1): 5}
    with pytest.raises(DataLossError, match=r"t-0 stands at 10, the log has 30 to 40.*failOnDataLoss"):
        advance(start, earliest, latest)
    after = advance(start, earliest, latest, fail_on_data_loss=False)
    assert after.lost == 20
    assert ranges(start, after) == [Range("t", 0, 30, 40)]
    again = advance(after, earliest, latest, fail_on_data_loss=False)
    assert again is after, "counted once"


def test_a_topic_made_anew_is_read_from_its_start() -> None:
    start = Position({("t", 0): 100})
    with pytest.raises(DataLossError):
        advance(start, {("t", 0): 0}, {("t", 0): 7})
    after = advance(start, {("t", 0): 0}, {("t", 0): 7}, fail_on_data_loss=False)
    assert ranges(start, after) == [Range("t", 0, 0, 7)]


def test_a_topic_that_is_gone_is_data_loss_but_not_one_that_is_no_longer_asked_for() -> None:
    start = Position({("t", 0): 5, ("u", 0): 5})
    bounds = {("t", 0): 0}, {("t", 0): 5}
    with pytest.raises(DataLossError, match="u-0"):
        advance(start, *bounds)
    assert dict(advance(start, *bounds, unsubscribed=[("u", 0)]).next) == {("t", 0): 5}


def test_a_run_until_now_ends_although_more_comes() -> None:
    target = {("t", 0): 10}
    position = Position({("t", 0): 0})
    for end in (12, 15, 20):
        latest = up_to({("t", 0): end, ("t", 1): 3}, target)
        position = advance(position, dict.fromkeys(latest, 0), latest, max_records=5)
    assert advance(position, {("t", 0): 0}, up_to({("t", 0): 90, ("t", 1): 9}, target)) is position
    assert dict(position.next) == target


def test_how_a_batch_was_cut_is_part_of_where_it_ends() -> None:
    """Another minPartitions must not change the tasks of a batch that is run again."""
    position = Position({("t", 0): 10}, parts=(5, None, 1000))
    assert through_json(position) == position
    assert "parts" not in Position({("t", 0): 10}).to_json()


@given(
    st.dictionaries(
        st.sampled_from(PARTITIONS),
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
    )
)
def test_what_waits_is_what_a_batch_would_read(bounds: dict) -> None:
    earliest = {p: low for p, (low, _, _) in bounds.items()}
    start = Position({p: low + read for p, (low, read, _) in bounds.items()})
    latest = {p: low + read + more for p, (low, read, more) in bounds.items()}
    after = advance(start, earliest, latest)
    assert waiting(start, earliest, latest) == sum(map(len, ranges(start, after)))
    assert waiting(Position({}), earliest, latest) == sum(latest[p] - earliest[p] for p in latest)


def test_lag_is_by_topic() -> None:
    assert lag(Position({("a", 0): 3, ("a", 1): 9}), {("a", 0): 5, ("a", 1): 10, ("b", 0): 4}) == {
        "a": 3,
        "b": 0,
    }


@given(
    st.dictionaries(st.sampled_from(PARTITIONS), st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1)
)
def test_the_first_batch_is_the_same_wherever_a_query_would_begin_by_now(bounds: dict) -> None:
    """Spark asks for the beginning again when the first batch was cut off: "latest" and "earliest" have moved."""
    begins = {p: at for p, (at, _) in bounds.items()}
    ends = {p: at + n for p, (at, n) in bounds.items()}
    start = Position(begins, first=True)
    end = through_json(advance(through_json(start), begins, ends))
    found = ranges(start, end)
    assert found == [Range(*p, begins[p], ends[p]) for p in sorted(bounds) if begins[p] < ends[p]]
    for now in (Position(ends, first=True), Position({p: at + 3 for p, at in begins.items()}, first=True)):
        assert ranges(now, end) == found
    assert advance(end, begins, ends) is end
