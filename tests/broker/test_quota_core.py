"""Rates, buckets of tokens, precedence and limits of connections, against Kafka's own classes and its order of precedence."""

from __future__ import annotations

import gc
import heapq
import itertools
import random
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import kafka_oracle

from klamm_broker.quota import meters
from klamm_broker.quota.connections import ConnectionLimits, ConnectionQuotas, ListenerLimits
from klamm_broker.quota.limits import Limits, QuotaKey
from klamm_broker.quota.meters import IDLE_MS, Quota
from klamm_broker.quota.rate import INT_MAX, Rate, TokenBucket, Windows
from klamm_broker.server.metering import time_sends

ORACLE = Path(kafka_oracle.__file__).with_name("QuotaOracle.java")
USER, CLIENT, IP = "user", "client-id", "ip"
PRODUCE = QuotaKey.PRODUCE


# ---- measures


@pytest.mark.usefixtures("apache_kafka")
def test_measures_are_kafkas():
    """Loads of every kind, by Kafka's own classes: steady ones, bursts, pauses longer than all windows, amounts that were taken back."""
    rng, lines, ours = random.Random(17), [], []
    for _ in range(60):
        windows = Windows(count=rng.choice((1, 2, 5, 11)), length_ms=rng.choice((100, 1000, 3000)))
        bound, now = rng.choice((0.5, 7.0, 1e6)), 1_700_000_000_000
        lines.append(f"new {windows.count} {windows.length_ms} {bound}")
        rate, bucket = Rate(windows), TokenBucket(windows.seconds, now)
        for _ in range(80):
            now += rng.choice(
                (0, 1, 17, windows.length_ms - 1, windows.length_ms, rng.randrange(40 * windows.length_ms))
            )
            amount = rng.choice((0.0, 0.0, 1.0, bound, -1.0, 30 * bound * rng.random()))
            lines.append(f"{now} {amount}")
            if amount:
                rate.record(amount, now)
                bucket.take(amount, bound, now)
            ours.append((rate.value(now), rate._sum.covered_ms(now), bucket.tokens(bound, now)))
    done = kafka_oracle.require().run(str(ORACLE), stdin="\n".join(lines))
    theirs = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    assert len(theirs) == len(ours), done.stderr
    for line, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-6), f"{line}: ours {a}, Kafka's {b}"


def test_who_is_over_the_bound_waits_until_the_rate_is_down_to_it():
    rate = Rate(Windows())
    rate.record(12_000, 0)
    assert rate.throttle_ms(1000, 0) == 2000, "12,000 in ten windows that are counted, at 1,000 a second"
    assert rate.throttle_ms(1000, 1999) == 1001
    assert rate.throttle_ms(1000, 2000) == 2000, (
        "the second window begins: eight of the ten are counted as empty, as in Kafka"
    )
    assert rate.throttle_ms(1000, 12_000) == 0
    assert Rate(Windows()).throttle_ms(1.0, 5) == 0


def test_a_delay_fits_an_answer():
    rate = Rate(Windows())
    rate.record(1e15, 0)
    assert rate.throttle_ms(1e-9, 0) == INT_MAX


def by_half_minutes(taken: list[tuple[int, float]]) -> tuple[float, float]:
    """Returns the least and the most of any 30 s of what clients took, which are sorted by time."""
    sums, total, first = [], 0.0, 0
    for now, amount in taken:
        while taken[first][0] <= now - 30_000:
            total -= taken[first][1]
            first += 1
        total += amount
        if now >= 30_000 + taken[0][0]:
            sums.append((total - amount, total))  # just before this one, and with it
    return min(least for least, _ in sums), max(most for _, most in sums)


def eager(turn, connections: int, pause_ms: int) -> list[tuple[int, float]]:
    """Lets clients take what they can for 80 s. `turn` tells what one got at a time, and its delay."""
    taken, ready = [], [(0, n) for n in range(connections)]
    while ready[0][0] < 80_000:
        now, n = ready[0]
        got, delay_ms = turn(now)
        taken.append((now, got))
        heapq.heapreplace(ready, (now + delay_ms + pause_ms + 1, n))
    return taken


BOUNDS = st.sampled_from((10.0, 1e3, 2e6))


@given(st.floats(0.06, 3.0), st.integers(0, 50), st.integers(1, 4), BOUNDS)
def test_who_sends_all_that_he_can_gets_his_quota_in_any_half_minute(chunk, pause_ms, connections, bound):
    quota = Quota(PRODUCE, Windows(), burst_s=1)
    quota.take({((USER, "ann"),): {PRODUCE: bound}})
    size = chunk * bound

    def turn(now: int) -> tuple[float, int]:
        return size, quota.draw("ann", "app", size, now, strict=False)[1]

    least, most = by_half_minutes(eager(turn, connections, pause_ms))
    assert least >= 0.95 * 30 * bound - connections * size
    assert most <= 1.05 * 30 * bound + connections * size


def readers(pauses, batch: float, bound: float, *, until_ms: int = 80_000) -> list[tuple[int, int, float]]:
    """Lets readers that share a quota ask again as they are told, each after its pause. Answers are of whole batches, and of one at least.

    Returns when each got how much.
    """
    quota = Quota(QuotaKey.FETCH, Windows(), burst_s=1)
    quota.take({((USER, "ann"),): {QuotaKey.FETCH: bound}})
    taken, waited, ready = [], set(), [(0, n) for n in range(len(pauses))]
    while ready[0][0] < until_ms:
        now, n = ready[0]
        answer = max(quota.most_at_once("ann", "app", now) // batch, 1) * batch
        delay_ms = quota.draw_in_turn("ann", "app", answer, now, asker=n)
        assert not (delay_ms and n in waited), "who waited as told gets records"
        waited = waited | {n} if delay_ms else waited - {n}
        taken.append((now, n, 0 if delay_ms else answer))
        heapq.heapreplace(ready, (now + delay_ms + pauses[n] + 1, n))
    return taken


@given(st.floats(0.001, 3.0), st.lists(st.integers(0, 50), min_size=1, max_size=4), BOUNDS)
def test_who_fetches_all_that_he_can_gets_his_quota_in_any_half_minute(batch, pauses, bound):
    size = batch * bound
    least, most = by_half_minutes([(now, got) for now, _, got in readers(pauses, size, bound)])
    more = len(pauses) * max(size, bound / 4)
    assert least >= 0.95 * 30 * bound - more
    assert most <= 1.05 * 30 * bound + more


@pytest.mark.parametrize(
    "pauses", [(0,), (0, 5), (3, 3), (0, 40), (0, 10, 20, 30, 40), (0, 0, 0, 0, 200), tuple(range(30))]
)
def test_consumers_that_share_a_quota_get_as_much(pauses):
    """One who is there first after a delay must not always win."""
    got = [0.0] * len(pauses)
    for _, n, amount in readers(pauses, 16_000, 1e6, until_ms=60_000):
        got[n] += amount
    assert 0.95 <= sum(got) / 60e6 <= 1.04
    assert min(got) >= 0.8 * sum(got) / len(pauses), got


def test_what_was_ordered_and_not_fetched_goes_back():
    quota = Quota(QuotaKey.FETCH, Windows(), burst_s=1)
    quota.take({((USER, "ann"),): {QuotaKey.FETCH: 1000.0}})
    assert quota.draw_in_turn("ann", "", 1500, 0, asker=1) == 0
    assert quota.draw_in_turn("ann", "", 1, 0, asker=2) == 750, "the debt and a quarter of a second's worth"
    assert quota.draw_in_turn("ann", "", 1, 0, asker=3) == 1000
    assert quota.draw_in_turn("ann", "", 1, 500, asker=3) == 500, "too early: the same order"
    assert quota.draw_in_turn("ann", "", 250, 1000, asker=3) == 0
    assert quota.draw("ann", "", 0, 2749, strict=False) == (True, 0)
    before = quota.most_at_once("ann", "", 1001)
    quota.draw_in_turn("ann", "", 0, 1000 + meters.ORDER_MS, asker=4)
    assert before == 250
    assert quota.most_at_once("ann", "", 1000 + meters.ORDER_MS) == 1000, "nobody came for the order of 2"


def test_orders_have_an_end():
    quota = Quota(QuotaKey.FETCH, Windows(), burst_s=1)
    quota.take({((USER, "ann"),): {QuotaKey.FETCH: 1000.0}})
    delays = [quota.draw_in_turn("ann", "", 1100, 0, asker=n) for n in range(100)]
    assert delays[:3] == [0, 350, 600]
    assert delays[meters.ORDERS_MAX] == delays[-1] == 100 + 250 * meters.ORDERS_MAX


@given(st.floats(0.1, 0.99), st.integers(1, 1000))
def test_who_keeps_below_the_quota_in_each_second_never_waits(share, every_ms):
    quota = Quota(PRODUCE, Windows(), burst_s=1)
    quota.take({((USER, "ann"),): {PRODUCE: 1e6}})
    for now in range(0, 20_000, every_ms):
        assert quota.draw("ann", "", share * 1e3 * every_ms, now, strict=False) == (True, 0)


def test_a_bucket_of_ten_seconds_delays_a_burst_after_a_rest_as_kafka():
    for amount in (9_000, 10_000, 10_500, 12_000, 50_000):
        rate, quota = Rate(Windows()), Quota(PRODUCE, Windows(), burst_s=10)
        quota.take({((USER, "ann"),): {PRODUCE: 1000}})
        rate.record(amount, 5)
        assert quota.draw("ann", "", amount, 5, strict=False) == (True, rate.throttle_ms(1000, 5))


# ---- precedence

PLACES = (
    ((USER, "ann"), (CLIENT, "app")), ((USER, "ann"), (CLIENT, None)), ((USER, "ann"),), ((USER, None), (CLIENT, "app")),
    ((USER, None), (CLIENT, None)), ((USER, None),), ((CLIENT, "app"),), ((CLIENT, None),),
)  # fmt: skip
"""Kafka's order: the first one that has a value decides."""
SHARED = (
    ("ann", "app"), ("ann", "app"), ("ann", ""), ("ann", "app"), ("ann", "app"), ("ann", ""), ("", "app"), ("", "app"),
)  # fmt: skip


def test_the_most_specific_entity_decides():
    for present in itertools.product((False, True), repeat=len(PLACES)):
        quotas = {
            tuple(sorted(place)): {PRODUCE: 1.0 + n}
            for n, (place, there) in enumerate(zip(PLACES, present, strict=True))
            if there
        }
        limits = Limits(PRODUCE, quotas)
        first = next((n for n, there in enumerate(present) if there), None)
        expected = None if first is None else (SHARED[first], 1.0 + first)
        assert limits.find("ann", "app") == expected
        assert bool(limits) == any(present)


def test_a_client_without_an_id_has_its_users_quota_only():
    quotas = {((CLIENT, None),): {PRODUCE: 1.0}, ((CLIENT, None), (USER, None)): {PRODUCE: 2.0}}
    assert Limits(PRODUCE, quotas).find("ann", "") is None
    quotas[(USER, None),] = {PRODUCE: 3.0}
    assert Limits(PRODUCE, quotas).find("ann", "") == (("ann", ""), 3.0)


def test_other_keys_and_addresses_do_not_count():
    quotas = {((USER, "ann"),): {QuotaKey.FETCH: 1.0}, ((IP, None),): {QuotaKey.CONNECTION: 1.0}}
    assert not Limits(PRODUCE, quotas)
    assert Limits(QuotaKey.FETCH, quotas).find("ann", "x") == (("ann", ""), 1.0)


def test_client_ids_without_end_take_no_memory_without_end():
    limits = Limits(PRODUCE, {((CLIENT, None),): {PRODUCE: 1.0}})
    for n in range(3 * Limits.FOUND_MAX):
        limits.find("ann", str(n))
    assert len(limits._found) <= Limits.FOUND_MAX


def test_long_client_ids_are_not_remembered():
    limits = Limits(PRODUCE, {((CLIENT, None),): {PRODUCE: 1.0}})
    limits.find("ann", "x" * 30_000)
    assert not limits._found


# ---- meters


def test_client_ids_without_end_have_meters_with_an_end(monkeypatch):
    monkeypatch.setattr(meters, "METERS_MAX", 5)
    monkeypatch.setattr(meters, "FIGURES_MAX", 3)
    quota = Quota(PRODUCE, Windows())
    quota.take({((CLIENT, None),): {PRODUCE: 1000.0}})
    quota.record("ann", "app", 100_000, 0)
    for n in range(20):
        quota.record("ann", f"x{n}", 1, 0)
        assert quota.record("ann", "app", 0, 0) > 0, "who is there is not forgotten"
    assert len(quota._meters) == 5
    assert [tags for tags, _, _ in quota.figures()] == [("", "app"), ("", "x19"), ("", "x18")]


def test_long_client_ids_are_cut():
    quota = Quota(PRODUCE, Windows())
    quota.take({((CLIENT, None),): {PRODUCE: 1000.0}})
    for end in "ab":
        quota.record("ann", "x" * 30_000 + end, 1, 0)
    assert [tags for tags, _, _ in quota.figures()] == [("", "x" * 249 + "…")]


def test_a_change_holds_for_what_was_used_before_it():
    quota = Quota(PRODUCE, Windows())
    quota.take({((USER, None),): {PRODUCE: 1000.0}})
    assert quota.record("ann", "a", 10_000, 0) == 0
    quota.take({((USER, None),): {PRODUCE: 500.0}})
    assert quota.record("ann", "b", 1, 0) > 9000, "both clients of the user share it"
    assert quota.record("bob", "b", 1, 0) == 0
    quota = Quota(PRODUCE, Windows(), burst_s=1)
    for value, delay_ms in ((1000.0, 9000), (500.0, 18_000), (3000.0, 3000)):
        quota.take({((USER, None),): {PRODUCE: value}})
        used = 10_000 if value == 1000 else 0
        assert quota.draw("ann", "b", used, 0, strict=False) == (True, delay_ms), (
            "the same debt at another pace"
        )
    quota.take({})
    assert quota.record("ann", "a", 1e9, 0) == 0
    assert not list(quota.figures())


def test_meters_that_nobody_uses_are_forgotten():
    quota = Quota(PRODUCE, Windows())
    quota.take({((CLIENT, None),): {PRODUCE: 1000.0}})
    quota.record("ann", "old", 1, 0)
    quota.record("ann", "new", 1, IDLE_MS)
    quota.forget_idle(IDLE_MS)
    assert [tags for tags, _, _ in quota.figures()] == [("", "new")]


def test_mutations_are_refused_to_new_clients_and_slow_old_ones_down():
    """KIP-599: strict ones get any number at once and then nothing until the debt is paid; the others wait."""
    for strict in (True, False):
        quota = Quota(QuotaKey.MUTATION, Windows(), burst_s=Windows().seconds)
        quota.take({((USER, "ann"),): {QuotaKey.MUTATION: 2.0}})
        assert quota.draw("ann", "", 30, 0, strict=strict) == (True, 0 if strict else 4000)
        assert quota.draw("ann", "", 1, 1000, strict=strict) == ((False, 3000) if strict else (True, 3500))
        assert quota.draw("bob", "", 1000, 0, strict=strict) == (True, 0)


# ---- connections


def quotas_of(**limits):
    return ConnectionQuotas(ConnectionLimits(**limits), Windows())


def test_connections_of_one_address_are_bounded_and_of_some_otherwise():
    doors = quotas_of(per_ip=1, per_ip_overrides={"10.0.0.2": 2, "10.0.0.3": 0})
    assert doors.admit("A", "10.0.0.1", 0) is None
    assert "maximum of 1 connections" in doors.admit("A", "10.0.0.1", 0).why
    assert [doors.admit("A", "10.0.0.2", 0) is None for _ in range(3)] == [True, True, False]
    assert doors.admit("A", "10.0.0.3", 0) is not None
    doors.leave("A", "10.0.0.1")
    assert doors.admit("A", "10.0.0.1", 0) is None
    assert doors.total == 3


def test_a_full_broker_has_room_for_the_listener_of_brokers_only():
    doors = quotas_of(connections=2, protected="IN", listeners={"OUT": ListenerLimits(connections=1)})
    doors.admit("OUT", "::1", 0)
    assert [doors.has_room(name) for name in ("OUT", "IN", "OTHER")] == [False, True, True]
    doors.admit("IN", "::1", 0)
    assert [doors.has_room(name) for name in ("OUT", "IN", "OTHER")] == [False, True, False]
    doors.admit("IN", "::1", 0)
    assert doors.excess == 1


def test_connections_that_come_too_fast_wait():
    doors = quotas_of(per_second=10, listeners={"SLOW": ListenerLimits(per_second=1)})
    delays = [doors.arrive("FAST", 0) for _ in range(101)]
    assert delays[:100] == [0] * 100
    assert delays[100] == 100
    doors = quotas_of(per_second=10, listeners={"SLOW": ListenerLimits(per_second=1)})
    assert [doors.arrive("SLOW", 0) for _ in range(12)][-1] == 1000, "a window at the longest"


def test_an_address_that_comes_too_fast_is_turned_away_and_the_others_do_not_pay():
    doors = quotas_of(per_second=100)
    doors.ip_rates, doors.ip_default = {"10.0.0.1": 1.0}, 50.0
    taken = 0
    for _ in range(500):
        doors.arrive("A", 0)
        taken += doors.admit("A", "10.0.0.1", 0) is None
    assert taken == 10
    assert doors.arrive("A", 0) == 0, "of those who were turned away nothing is counted"
    refused = doors.admit("A", "10.0.0.1", 0)
    assert 0 < refused.after_ms <= 1000
    assert sum(doors.admit("A", "10.0.0.2", 0) is None for _ in range(600)) == 500


# ---- accounts


def test_a_measured_connection_is_gone_when_nobody_has_it():
    class Measured:
        broker = loop = None

        def __init__(self):
            self.send = len

    conn = Measured()
    time_sends(conn, "ann", "app")
    seen = weakref.ref(conn)
    gc.disable()
    try:
        del conn
        assert seen() is None
    finally:
        gc.enable()
