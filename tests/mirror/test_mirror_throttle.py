"""Limits in bytes per second: the buckets by a clock of the test, and between two brokers by what has arrived."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker import new_name, new_topic
from support.mirroring import Running, produce, props, read

from klamm.mirror.flow_status import _partition
from klamm_base.errors import ConfigError
from klamm_mirror.copy.lag_tables import STATUS_COLUMNS, STATUS_PREFIX, lag_rows, lag_tables
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.throttle import FLOW, TOPICS, Bucket, Limits, Throttle
from klamm_mirror.source.connector import MirrorSourceConnector


def limits(flow: int = 0, *topics: str) -> Limits:
    config = props("a:1", "b:1") | {FLOW: str(flow), TOPICS: ",".join(topics)}
    return Limits.of(MirrorSourceConnector.config().parse(config))


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 5000)), max_size=60))
def test_a_bucket_never_gives_more_than_its_rate(steps):
    bucket, now, taken, last = Bucket(1000), 0.0, 0, 0
    for wait, wanted in steps:
        now += wait
        if bucket.available(now):
            bucket.take(wanted, now)
            taken, last = taken + wanted, wanted
    assert taken - last <= 1000 * (now + 1), "the last fetch may owe, what was before it is paid"


def test_what_a_bucket_owes_is_paid_before_anything_else():
    bucket = Bucket(1000)
    assert bucket.available(0) == 1000
    bucket.take(3000, 0)
    assert (bucket.available(1), bucket.wait_s(1)) == (0, pytest.approx(1.1))
    assert bucket.available(2.05) == 0
    assert bucket.available(2.1) == 100
    assert bucket.available(100) == 1000, "a rest brings a second's worth, no more"


def test_a_limited_topic_does_not_hold_others_back():
    throttle = Throttle.of(
        limits(0, "logs.*:1000").share([("logs.a", 0), ("t", 0)], [("logs.a", 0), ("t", 0)])
    )
    throttle.take("logs.a", 2000, 0)
    assert throttle.held_by("logs.a", 0) == TOPICS
    assert throttle.held_by("t", 0) is None
    assert throttle.wait_s(["logs.a"], 0) == pytest.approx(1.1)
    assert throttle.held_by("logs.a", 1.2) is None


def test_the_flows_limit_holds_all_topics():
    throttle = Throttle.of(limits(100_000).share([("a", 0), ("b", 0)], [("a", 0), ("b", 0)]))
    assert throttle.flow_bytes(0, 1 << 20) == 100_000
    throttle.take("a", 150_000, 0)
    assert throttle.held_by("b", 0) == FLOW
    assert throttle.held_by("b", 0.7) is None


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), unique=True, min_size=1),
    st.integers(1, 5),
)
def test_the_shares_of_all_tasks_are_the_limit(partitions, tasks):
    flow = limits(1_000_000, "a:300", "[ab]:700")
    rates: dict[str, float] = {}
    for index in range(tasks):
        own = partitions[index::tasks]
        for item in filter(None, flow.share(partitions, own).split(",")):
            name, _, rate = item.partition("=")
            rates[name] = rates.get(name, 0) + float(rate)
    wanted = {"*": 1_000_000, "a": 300, "b": 700}
    topics = {topic for topic, _ in partitions}
    assert rates == pytest.approx({n: r for n, r in wanted.items() if n == "*" or n in topics}, rel=1e-3)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (FLOW, "-1", "at least 0"),
        (TOPICS, "logs", "Must be PATTERN:BYTES"),
        (TOPICS, "logs:0", "one byte per second"),
        (TOPICS, "(:5", "no regular expression"),
    ],
)
def test_a_limit_that_cannot_be_read_is_refused(key, value, said):
    with pytest.raises(ConfigError, match=said):
        MirrorSourceConnector.config().parse(props("a:1", "b:1") | {key: value})


@pytest.mark.parametrize("tasks", [1, 2])
def test_bytes_take_their_time_and_other_topics_do_not_wait(source, target, tasks):
    slow, quick = new_topic(source, 2, name=new_name("slow")), new_topic(source, 2)
    rate, count = 200_000, 600
    rows = [(None, os.urandom(1000), [], 1_700_000_000_000) for _ in range(count)]
    for topic in (slow, quick):
        for partition in (0, 1):
            produce(source.bootstrap, topic, rows[partition::2], partition=partition, **{"batch.size": 8000})
    config = props(source.bootstrap, target.bootstrap, topics=f"{slow},{quick}")
    began = time.monotonic()
    with Running(config | {TOPICS: f"slow.*:{rate}"}, tasks=tasks) as mirror:
        for partition in (0, 1):
            assert read(target.bootstrap, f"A.{quick}", count // 2, partition=partition) == rows[partition::2]
        assert mirror.records < 2 * count, "the limited topic is still on its way"
        mirror.until(lambda: mirror.details().get("throttled") == [slow], "the status says so")
        mirror.until(lambda: mirror.records == 2 * count, "all of it")
        # A second's worth comes at once, and each task may owe a fetch.
        assert time.monotonic() - began > (count * 1000 - rate - tasks * 2 * 16_384) / rate
        assert read(target.bootstrap, f"A.{slow}", count // 2) == rows[::2]


def test_a_partition_at_its_limit_is_throttled_in_the_status():
    each = MirrorPartition(topic="t", partition=0, remote="A.t", producer=(1, 0), held_by=TOPICS)
    each.begin(0)
    each.high_watermark = 5
    tables = lag_tables([each], lag_rows([each], {}, 1), flow=("A", "B"), now_ms=1)
    (status,) = [t for t in tables if t.prefix == STATUS_PREFIX]
    row = dict(zip(("topic", "partition", *STATUS_COLUMNS), status.rows[0], strict=True), at_ms=1)
    shown = _partition(row, 1)
    assert (shown["state"], shown["why"]) == ("THROTTLED", f"held back by {TOPICS}")
