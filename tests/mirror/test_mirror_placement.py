"""Partitions are dealt out to tasks by their sizes, and move only for a real gain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker import new_topic
from support.kafka_broker import KafkaBroker
from support.mirroring import Running, assigned, produce, props

from klamm.testing import EmbeddedBroker
from klamm_mirror.source.placement import GAIN, PARTITION_BYTES, Partition, Shares, place

MB = 1_000_000
ALL = [(topic, index) for topic in ("a", "b", "c") for index in range(4)]
sizes_of = st.dictionaries(st.sampled_from(ALL), st.integers(0, 100 * MB))


def loads(shares: Shares, sizes: dict[Partition, int]) -> list[int]:
    return [sum(sizes.get(p, 0) + PARTITION_BYTES for p in share) for share in shares]


def test_partitions_of_equal_size_are_dealt_in_turns():
    assert place([("t", n) for n in range(5)], 2, {}) == [
        [("t", 0), ("t", 2), ("t", 4)],
        [("t", 1), ("t", 3)],
    ]
    assert place([], 3, {}) == []


def test_large_partitions_come_to_different_tasks():
    sizes = {("t", 0): 500 * MB, ("t", 2): 400 * MB}
    shares = place([("t", n) for n in range(4)], 2, sizes)
    assert {next(i for i, share in enumerate(shares) if ("t", n) in share) for n in (0, 2)} == {0, 1}


@given(sizes=sizes_of, tasks=st.integers(1, 15), count=st.integers(1, len(ALL)))
def test_each_partition_has_one_task_and_no_task_is_without(sizes, tasks, count):
    shares = place(ALL[:count], tasks, sizes)
    assert sorted(p for share in shares for p in share) == ALL[:count]
    assert len(shares) == min(tasks, count)
    assert all(shares)
    found = loads(shares, sizes)
    # No better than a move of one partition away from the best: the smallest share was the smaller one once.
    assert max(found) - min(found) <= max(sizes.get(p, 0) + PARTITION_BYTES for p in ALL[:count])


@given(first=sizes_of, then=sizes_of, tasks=st.integers(2, 5), count=st.integers(5, len(ALL)))
def test_partitions_move_only_for_a_real_gain(first, then, tasks, count):
    before = place(ALL[:5], tasks, first)
    after = place(ALL[:count], tasks, then, before)
    fresh = place(ALL[:count], tasks, then)
    assert sorted(p for share in after for p in share) == ALL[:count]
    stayed = all(set(old) <= set(new) for old, new in zip(before, after, strict=True))
    assert stayed or after == fresh
    assert max(loads(after, then)) <= GAIN * max(loads(fresh, then))
    assert place(ALL[:count], tasks, then, after) == after


def test_nothing_moves_while_sizes_grow_alike():
    before = place(ALL, 3, dict.fromkeys(ALL, 10 * MB))
    assert place(ALL, 3, {p: (11 + i % 2) * MB for i, p in enumerate(ALL)}, before) == before


@dataclass
class Source:
    bootstrap: str


@pytest.fixture(
    scope="module", params=["klamm", pytest.param("kafka", marks=pytest.mark.needs("apache_kafka"))]
)
def source(request, processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    work = tmp_path_factory.mktemp("source")
    if request.param == "klamm":
        with EmbeddedBroker(work / "data") as running:
            yield Source(running.bootstrap)
    else:
        with KafkaBroker(work) as kafka:
            yield Source(kafka.address)


def test_the_brokers_tell_the_sizes(source, target):
    topic = new_topic(source, 4)
    for index in (0, 2):
        produce(source.bootstrap, topic, [(None, b"x" * 100_000, None, 1)] * 50, partition=index)
    running = Running(props(source.bootstrap, target.bootstrap, topics=topic, tasks__max="2"), tasks=2)
    with running:
        assert assigned(running) == [f"{topic}-0,{topic}-1", f"{topic}-2,{topic}-3"]
        running.until(lambda: running.records == 100, "copied")
