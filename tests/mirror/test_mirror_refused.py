"""Batches that the target refuses, with and without exactly once: split, or left out with an entry, and nothing twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker import new_topic, wait_until
from support.gaps import decide, delete, gaps, make
from support.kafka_broker import KafkaBroker
from support.mirroring import Row, produce
from support.mirroring_once import Mirror, read_committed

from klamm.testing import EmbeddedBroker
from klamm_kafka.client import Cluster
from klamm_kafka.wire.batch import Record, decode_records, encode_batch, read_header
from klamm_kafka.wire.compression import Compression
from klamm_mirror.copy.splitting import apart, smaller
from klamm_mirror.gaps.entries import State
from klamm_mirror.offsets.segment_topic import SegmentReader
from klamm_mirror.raw import Batch, Counts, convert, runs_of
from klamm_mirror.stops import Action, Kind

TOO_LATE_MS = 10 * 86_400_000


# ---- pure


@st.composite
def batches(draw: st.DrawFn) -> tuple[Batch, list[Record]]:
    offsets = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=30)))
    records = [
        Record(offset=o, timestamp=1000 + draw(st.integers(-5, 5)), key=b"k%d" % o, value=draw(st.binary(max_size=40)))
        for o in offsets
    ]  # fmt: skip
    codec = draw(st.sampled_from([Compression.NONE, Compression.LZ4, Compression.ZSTD]))
    base = offsets[0]
    data = encode_batch(
        records, base_offset=base, compression=codec, keep_offsets=True, last_offset=offsets[-1] + 3
    )
    [batch], _ = convert(data, base, Counts())
    return batch, records


def check_parts(batch: Batch, parts: list[Batch], records: list[Record]) -> None:
    found = []
    for part in parts:
        offsets = [o for first, count in part.runs for o in range(first, first + count)]
        rows = decode_records(part.data)
        assert read_header(part.data).compression == read_header(batch.data).compression
        assert part.count == len(rows) == len(offsets)
        assert (part.first, part.last) == (offsets[0], offsets[-1])
        assert part.max_timestamp == max(r.timestamp for r in rows)
        assert part.runs == tuple(runs_of(offsets))
        found += [(o, r.timestamp, r.key, r.value) for o, r in zip(offsets, rows, strict=True)]
    assert found == [(r.offset, r.timestamp, r.key, r.value) for r in records]
    assert parts[-1].next_offset == batch.next_offset
    assert all(a.next_offset <= b.first for a, b in pairwise(parts))


@given(batches(), st.integers(1, 2000))
def test_smaller_parts_hold_the_same_records(made, refused):
    batch, records = made
    parts = smaller(batch, refused)
    if len(records) == 1 or refused >= 2 * len(batch.data):
        assert parts == []
    else:
        assert len(parts) > 1
        check_parts(batch, parts, records)


@given(batches(), st.sets(st.integers(0, 29)))
def test_bad_records_are_set_apart(made, bad):
    batch, records = made
    bad = {i for i in bad if i < len(records)}
    parts = apart(batch, bad)
    if not bad or len(bad) == len(records):
        assert parts == []
        return
    check_parts(batch, parts, records)
    at = 0
    for part in parts:
        assert len({i in bad for i in range(at, at + part.count)}) == 1
        at += part.count


# ---- with brokers


class World:
    """Two brokers; the target is Klamm or Apache Kafka. Topics have two partitions."""

    def __init__(self, source: EmbeddedBroker, target: str, path: Path) -> None:
        self.source, self.target, self.path = source, target, path

    def topic(self, **config: str) -> str:
        """Makes a topic at both sides; `config` holds for the copy."""
        topic = new_topic(
            self.source, 2, {"max.message.bytes": "8000000", "message.timestamp.after.max.ms": str(2**62)}
        )
        make(self.target, f"A.{topic}", 2, **{k.replace("__", "."): v for k, v in config.items()})
        return topic

    def mirror(self, topic: str, *, once: bool, **more: str) -> Mirror:
        return Mirror(
            self.source.bootstrap, self.target, topic, self.path, once=once,
            sync__topic__configs__enabled="false", **more,
        )  # fmt: skip

    def produce(self, topic: str, sent: list[Row], partition: int = 0, **config: object) -> None:
        produce(
            self.source.bootstrap, topic, sent, partition=partition,
            **{"linger.ms": 300, "batch.size": 1_000_000, "message.max.bytes": 4_000_000, **config},
        )  # fmt: skip

    def values(self, topic: str, partition: int = 0) -> list[bytes]:
        return [value for _, value in read_committed(self.target, f"A.{topic}", partition)]

    def wait(self, topic: str, wanted: list[bytes], partition: int = 0) -> None:
        wait_until(lambda: len(self.values(topic, partition)) >= len(wanted), f"{len(wanted)} records")
        assert self.values(topic, partition) == wanted


KINDS = pytest.mark.parametrize(
    ("world", "once"),
    [
        ("klamm", True),
        ("klamm", False),
        pytest.param("apache", True, marks=pytest.mark.needs("apache_kafka")),
    ],
    indirect=["world"],
)


@pytest.fixture
def world(request: pytest.FixtureRequest, processes: None, tmp_path: Path) -> Iterator[World]:
    (tmp_path / "kafka").mkdir()
    target = (
        EmbeddedBroker(tmp_path / "b") if request.param == "klamm" else KafkaBroker(tmp_path / "kafka", {})
    )
    with EmbeddedBroker(tmp_path / "a") as source, target as there:
        yield World(source, there.bootstrap if request.param == "klamm" else there.address, tmp_path)


def numbered(first: int, count: int, size: int = 20, later_ms: int = 0) -> list[Row]:
    now_ms = time.time_ns() // 1_000_000
    return [(b"k", b"%d:" % i + b"x" * size, [], now_ms + later_ms) for i in range(first, first + count)]


def values(*parts: list[Row]) -> list[bytes]:
    return [value for part in parts for _, value, _, _ in part if value is not None]


@KINDS
def test_large_batches_of_small_records_are_split(world: World, once: bool):
    topic = world.topic(max__message__bytes="3000")
    sent = numbered(0, 3_000, 60)
    world.produce(topic, sent, **{"compression.type": "lz4" if once else "none"})
    mirror = world.mirror(topic, once=once)
    try:
        world.wait(topic, values(sent))
        more = numbered(3_000, 500, 60)
        world.produce(topic, more)
        world.wait(topic, values(sent, more))
        wait_until(lambda: mirror.details().get("batches_split"), "batches that were split")
        assert gaps(world.target, topic) == []
        asyncio.run(check_mapping(world, topic, len(sent) + len(more)))
    finally:
        mirror.worker.end()


async def check_mapping(world: World, topic: str, count: int) -> None:
    there = {int(v.split(b":")[0]): o for o, v in read_committed(world.target, f"A.{topic}")}
    async with Cluster(world.target) as cluster:
        reader = SegmentReader(cluster, "mm2-offset-segments.A.internal")
        assert await reader.catch_up()
    found = {i: reader.store.translate((topic, 0), i) for i in range(count)}
    assert found == {i: there[i] for i in range(count)}


@KINDS
def test_one_record_that_is_too_large_stops_its_partition_alone(world: World, once: bool):
    topic = world.topic(max__message__bytes="3000")
    before, large, after = numbered(0, 50), numbered(50, 1, 5_000), numbered(51, 50)
    world.produce(topic, before + large + after)
    mirror = world.mirror(topic, once=once)
    try:
        world.wait(topic, values(before))
        [gap] = wait_until(lambda: gaps(world.target, topic), "an entry")
        assert (gap.kind, gap.state, gap.start, gap.end) == (Kind.REFUSED, State.OPEN, 50, 51)
        others = numbered(0, 200)
        world.produce(topic, others, partition=1)
        world.wait(topic, values(others), partition=1)
        mirror.kill()  # the next task meets the same record, and the same entry
        more = numbered(200, 200)
        world.produce(topic, more, partition=1)
        wait_until(lambda: mirror.details().get("stopped"), "stopped again")
        wait_until(lambda: len(world.values(topic, 1)) >= 400, "the other partition goes on")
        [done] = decide(world.target, topic, Action.SKIP)
        assert done.state is State.RESOLVED
        wait_until(lambda: len(world.values(topic)) >= 100, "the rest")
        mirror.kill()
        last = numbered(101, 10)
        world.produce(topic, last)
        wait_until(lambda: values(last)[-1] in world.values(topic), "records after the kill")
        if once:
            assert world.values(topic) == values(before, after, last)
            assert world.values(topic, 1) == values(others, more)
        assert set(world.values(topic)) == set(values(before, after, last))
        [gap] = gaps(world.target, topic)
        assert (gap.start, gap.end, gap.action) == (50, 51, Action.SKIP)
    finally:
        mirror.worker.end()


@KINDS
def test_records_that_the_target_finds_invalid_are_left_out_and_no_others(world: World, once: bool):
    topic = world.topic(message__timestamp__after__max__ms="3600000")
    good, late, rest = numbered(0, 30), numbered(30, 3, later_ms=TOO_LATE_MS), numbered(33, 30)
    world.produce(topic, good + late + rest)
    others = numbered(0, 20)
    world.produce(topic, others, partition=1)
    mirror = world.mirror(topic, once=once, mirror__gap__policy="record")
    try:
        world.wait(topic, values(good, rest))
        world.wait(topic, values(others), partition=1)
        [gap] = gaps(world.target, topic)
        assert (gap.kind, gap.start, gap.end) == (Kind.REFUSED, 30, 33)
        assert "imestamp" in gap.why
        mirror.kill()
        more = numbered(63, 20)
        world.produce(topic, more)
        world.wait(topic, values(good, rest, more))
        assert len(gaps(world.target, topic)) == 1
    finally:
        mirror.worker.end()


@pytest.mark.usefixtures("processes")
def test_a_copy_that_is_gone_holds_up_no_other_topic_of_its_transactions(tmp_path: Path):
    with EmbeddedBroker(tmp_path / "a") as source, EmbeddedBroker(tmp_path / "b") as target:
        world = World(source, target.bootstrap, tmp_path)
        gone, other = world.topic(), world.topic()
        mirror = world.mirror(f"{gone},{other}", once=True, refresh__topics__enabled="false")
        try:
            sent = {topic: numbered(0, 20) for topic in (gone, other)}
            for topic, rows in sent.items():
                world.produce(topic, rows)
            for topic, rows in sent.items():
                world.wait(topic, values(rows))
            delete(target.bootstrap, f"A.{gone}")
            more = numbered(20, 20)
            world.produce(gone, more)
            world.produce(other, more)
            world.wait(other, values(sent[other], more))
            make(target.bootstrap, f"A.{gone}", 2)
            wait_until(lambda: gaps(target.bootstrap, gone), "an entry for the lost copy")
            assert {gap.kind for gap in gaps(target.bootstrap, gone)} == {Kind.COPY_LOST}
            decide(target.bootstrap, gone, Action.APPEND)
            world.wait(gone, values(sent[gone], more))
        finally:
            mirror.worker.end()
