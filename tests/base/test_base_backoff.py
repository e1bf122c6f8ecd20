"""Pauses that double."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_base.backoff import Backoff, pause


@pytest.mark.parametrize(
    ("failures", "expected"), [(1, 0.5), (2, 1), (3, 2), (5, 8), (6, 10), (7, 10), (10**9, 10)]
)
def test_a_pause_doubles_up_to_the_longest(failures, expected):
    assert pause(failures, first=0.5, longest=10) == expected


@pytest.mark.parametrize(("chance", "expected"), [(0, 400), (0.5, 360), (1, 320)])
def test_jitter_shortens_a_pause_by_a_part_of_it(chance, expected):
    assert pause(3, first=100, longest=60_000, jitter=0.2, chance=chance) == pytest.approx(expected)


@given(
    failures=st.integers(1, 200), jitter=st.floats(0, 1), chance=st.floats(0, 1), longest=st.floats(0.1, 1e6)
)
def test_a_pause_is_within_its_bounds(failures, jitter, chance, longest):
    found = pause(failures, first=0.1, longest=longest, jitter=jitter, chance=chance)
    full = pause(failures, first=0.1, longest=longest)
    assert full * (1 - jitter) <= found * (1 + 1e-9) + 1e-12
    assert found <= full <= longest


def test_a_backoff_waits_longer_with_each_failure_and_forgets_them_after_a_success():
    backoff = Backoff(first_s=1, longest_s=3)
    assert (backoff.until, backoff.why) == (0, None)
    assert [backoff.failed(10.0, why) for why in "abc"] == [1, 2, 3]
    assert (backoff.until, backoff.why) == (13, "c")
    backoff.succeeded()
    assert (backoff.until, backoff.why) == (0, None)
    assert backoff.failed(20.0, "again") == 1
    assert backoff.until == 21


def test_a_client_asks_again_after_a_tenth_of_a_second_and_then_at_least_every_five():
    backoff = Backoff()
    waits = [backoff.failed(0.0, "away") for _ in range(8)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5])
