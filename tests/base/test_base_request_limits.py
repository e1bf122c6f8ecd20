"""The size of requests to a server that says when it is too much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_base.request_limits import RequestLimits


def limits_of(found):
    return found.in_flight, found.documents


def test_refusals_halve_the_requests_and_then_their_documents():
    limits = RequestLimits(1000, 5)
    seen = []
    for _ in range(5):
        limits.shrink()
        seen.append(limits_of(limits))
    assert seen == [(2, 1000), (1, 1000), (1, 500), (1, 250), (1, 125)]


def test_requests_that_were_under_way_together_are_one_trouble():
    limits = RequestLimits(1000, 8)
    assert limits.met_trouble(sent_at=0.0, now=1.0)
    assert not limits.met_trouble(sent_at=0.5, now=1.1)
    assert limits.troubles == 1
    assert limits.met_trouble(sent_at=1.0, now=1.2)
    assert limits.troubles == 2
    limits.grow(after=1, documents=1)
    assert limits.troubles == 0


def test_what_is_accepted_gives_back_documents_and_then_requests():
    limits = RequestLimits(1000, 4)
    for _ in range(4):
        limits.shrink()
    assert limits_of(limits) == (1, 250)
    seen = []
    for _ in range(8):
        limits.grow(after=1, documents=300)
        seen.append(limits_of(limits))
    assert seen == [(1, 550), (1, 850), (1, 1000), (2, 1000), (3, 1000), (4, 1000), (4, 1000), (4, 1000)]


def test_only_accepted_requests_since_the_last_cut_count():
    limits = RequestLimits(10, 8)
    limits.shrink()
    for _ in range(2):
        limits.grow(after=3, documents=1)
    assert limits.met_trouble(0.0, 1.0)
    limits.shrink()
    for _ in range(2):
        limits.grow(after=3, documents=1)
    assert limits.in_flight == 2
    assert not limits.met_trouble(0.5, 1.1), "stale: of the round before the cut"
    limits.grow(after=3, documents=1)
    assert limits.in_flight == 3


@given(
    st.integers(1, 5000),
    st.integers(1, 16),
    st.lists(st.one_of(st.none(), st.integers(1, 500)), max_size=100),
    st.integers(1, 5),
)
def test_they_stay_within_their_bounds_and_recover(documents, in_flight, steps, after):
    limits = RequestLimits(documents, in_flight)
    for step in steps:
        limits.shrink() if step is None else limits.grow(after=after, documents=step)
        assert 1 <= limits.documents <= documents
        assert 1 <= limits.in_flight <= in_flight
    for _ in range((documents + in_flight) * after):
        limits.grow(after=after, documents=1)
    assert limits_of(limits) == (in_flight, documents)
