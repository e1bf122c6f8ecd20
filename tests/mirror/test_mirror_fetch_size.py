"""The number of lanes to a broker and the sizes of their fetches: pure."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_mirror.copy.fetch_settings import FetchSettings
from klamm_mirror.copy.fetch_size import (
    FAR_BYTES,
    FETCH_BYTES,
    LANE_BYTES,
    LANES_MAX,
    PARTITION_BYTES,
    SMALLEST,
    UNDER_WAY_BYTES,
    FetchSize,
    lanes_for,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    ("round_trip_ms", "partitions", "lanes"),
    [(0.2, 100, 1), (9, 100, 1), (12, 100, 1), (30, 100, 3), (100, 100, 8), (400, 100, 8), (100, 3, 3), (1, 0, 0), (100, 0, 0)],
)  # fmt: skip
def test_a_long_line_gets_several_lanes(round_trip_ms, partitions, lanes):
    assert lanes_for(round_trip_ms / 1000, partitions) == lanes


def size(*, lanes: int, share: int, far: bool = True, **settings: int) -> FetchSize:
    found = FetchSize(FetchSettings(**settings))
    found.fit(lanes=lanes, share=share, far=far)
    return found


def test_a_near_broker_is_asked_for_what_the_settings_say():
    near = size(lanes=1, share=3, far=False)
    assert (near.max_bytes, near.partition_bytes, near.buffer_bytes) == (
        FETCH_BYTES,
        PARTITION_BYTES,
        8 * MIB,
    )
    mine = size(lanes=1, share=3, far=False, max_bytes=MIB, partition_bytes=1000)
    assert (mine.max_bytes, mine.partition_bytes) == (MIB, 1000)
    large = size(lanes=1, share=1, far=False, max_bytes=50 * MIB)
    assert large.max_bytes == 50 * MIB


def test_four_near_brokers_are_asked_for_as_much_each_as_one():
    assert size(lanes=4, share=3, far=False).max_bytes == FETCH_BYTES
    assert size(lanes=16, share=3, far=False).max_bytes == UNDER_WAY_BYTES // 16


def test_a_partition_alone_on_a_long_line_may_fill_it():
    alone = size(lanes=1, share=1)
    for _ in range(10):
        alone.took(alone.max_bytes, 0.5)
    assert (alone.max_bytes, alone.partition_bytes) == (LANE_BYTES, LANE_BYTES)
    assert size(lanes=8, share=1000).partition_bytes == PARTITION_BYTES


def test_lanes_grow_while_a_line_is_quicker_than_they_need():
    lanes = [size(lanes=4, share=1) for _ in range(4)]
    for _ in range(10):  # 500 MB/s at 100 ms, with all lanes at the same time
        for lane in lanes:
            lane.took(lane.max_bytes, 0.1 + 4 * lane.max_bytes / 500e6)
    assert {lane.max_bytes for lane in lanes} == {32 * MIB}
    slower = size(lanes=4, share=1)
    for _ in range(10):
        slower.took(slower.max_bytes, 0.1 + 4 * slower.max_bytes / 50e6)
    assert slower.max_bytes == 16 * MIB


def test_fetches_shrink_on_a_line_that_is_too_slow_for_them_and_never_below_a_mebibyte():
    slow = size(lanes=2, share=1)
    for _ in range(20):
        slow.took(slow.max_bytes, math.inf)
    assert slow.max_bytes == SMALLEST
    slow.took(100, 30)  # a long poll, with next to nothing in it
    slow.took(slow.max_bytes, 0.1)
    assert slow.max_bytes == 2 * SMALLEST


def test_an_answer_that_fills_less_than_half_says_nothing_about_the_line():
    idle = size(lanes=2, share=1)
    before = idle.max_bytes
    idle.took(before // 2 - 1, 0.01)
    assert idle.max_bytes == before


@given(
    shares=st.lists(st.integers(1, 5000), min_size=1, max_size=64),
    answers=st.lists(st.tuples(st.integers(0, 63), st.floats(0, 10)), max_size=100),
    limit=st.sampled_from([None, 1000, 5 * MIB, 1 << 30]),
    far=st.lists(st.booleans(), min_size=64, max_size=64),
)
def test_all_answers_on_their_way_have_a_bound(shares, answers, limit, far):
    sizes = [
        size(lanes=len(shares), share=share, far=is_far, max_bytes=limit)
        for share, is_far in zip(shares, far, strict=False)
    ]
    for lane, seconds in answers:
        found = sizes[lane % len(sizes)]
        found.took(found.max_bytes, seconds)
    assert sum(s.max_bytes for s in sizes) <= max(FAR_BYTES, len(sizes) * SMALLEST)
    assert all(0 < s.partition_bytes <= max(s.max_bytes, 1) for s in sizes)
    assert all(s.max_bytes <= (limit or LANE_BYTES) for s in sizes)
    assert LANES_MAX * SMALLEST <= UNDER_WAY_BYTES
