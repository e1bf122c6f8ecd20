"""The exact mapping of offsets: every record's offset, and that of the next record for a hole, whatever happened."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.drawing import choices

from klamm_mirror.offsets.partition_blocks import LATEST_MAX, OVERHEAD, PartitionBlocks
from klamm_mirror.offsets.segment_store import SegmentStore
from klamm_mirror.offsets.segment_topic import SegmentRecord
from klamm_mirror.offsets.segments import SEGMENTS_MAX, Block, Segment, SegmentLog
from klamm_mirror.topics.fields import MalformedRecord, UnsupportedVersion

PARTITION = ("t", 0)


@dataclass
class Copying:
    """A partition that is copied, by a mirror that crashes: its log at the source, all copies, the segments' topic."""

    source: list[int]
    downstream: int
    copies: list[tuple[int, int]] = field(default_factory=list)
    topic: list[SegmentRecord] = field(default_factory=list)
    log: SegmentLog = field(default_factory=SegmentLog)
    began: int = 0
    committed: int = 0
    done: int = 0
    segments_max: int = SEGMENTS_MAX

    def start(self) -> None:
        self.log = SegmentLog(self.segments_max)
        self.log.begin(self.committed)
        self.done = self.committed

    def copy(self, count: int, skip: int) -> None:
        """Copies a batch. `skip` offsets of the target are used by something else first."""
        at = bisect_left(self.source, self.done)
        batch = self.source[at : at + count]
        if not batch:
            return
        self.downstream += skip
        for upstream in batch:
            self.log.add(Segment(upstream, self.downstream, 1))
            self.copies.append((upstream, self.downstream))
            self.downstream += 1
        self.done = batch[-1] + 1

    def flush(self) -> None:
        self.topic += [SegmentRecord(PARTITION, b.downstream, b) for b in self.log.take()]

    def store(self, *, compacted: bool) -> SegmentStore:
        """Reads the topic through its bytes."""
        records = self.topic
        if compacted:
            latest = {record.downstream: i for i, record in enumerate(self.topic)}
            records = [self.topic[i] for i in sorted(latest.values())]
        store = SegmentStore()
        for record in records:
            key, value = record.encode()
            found = SegmentRecord.decode(key, value)
            assert found == record
            assert found.block is not None
            store.apply(found.partition, found.block)
        return store


def test_a_copy_that_begins_anew_leaves_nothing_of_the_other_log():
    copying = Copying(list(range(100)), 0)
    copying.start()
    copying.copy(60, 0)
    copying.flush()
    copying.log.begin_anew(0, 60)
    copying.flush()
    store = copying.store(compacted=False)
    assert [store.translate(PARTITION, at) for at in (0, 30)] == [60, None]
    assert [store.translate_back(PARTITION, at) for at in (0, 30, 60, 61)] == [0, 0, 0, None]
    copying.done = 0
    copying.copy(5, 0)
    copying.flush()
    for compacted in (False, True):
        store = copying.store(compacted=compacted)
        assert [store.translate(PARTITION, at) for at in (0, 4, 5)] == [60, 64, 65]
        assert [store.translate_back(PARTITION, at) for at in (0, 59, 60, 65)] == [0, 0, 0, 5]
        assert 60 not in store.trim(PARTITION, 63), "its records are there"


sizes = st.integers(1, 12)
skips = st.sampled_from([0, 0, 1, 3])
downstreams = st.sampled_from([0, 0, 17])
limits = st.sampled_from([1, 2, SEGMENTS_MAX])  # few make many blocks, which are packed
events = st.sampled_from(["copy", "copy", "copy", "copy", "flush", "commit", "crash"])


@st.composite
def copyings(draw) -> Copying:
    source, offset = [], draw(st.integers(0, 30))
    for step in choices(draw, [1, 1, 1, 1, 2, 6], draw(st.integers(1, 150))):
        offset += step
        source.append(offset)
    copying = Copying(source, draw(downstreams))
    copying.segments_max = draw(limits)
    copying.began = copying.committed = draw(st.sampled_from([0, source[0]]))
    copying.start()
    for _ in range(draw(st.integers(1, 40))):
        match draw(events):
            case "copy":
                copying.copy(draw(sizes), draw(skips))
            case "flush":
                copying.flush()
            case "commit":  # the mapping of what is committed is always written before
                copying.flush()
                copying.committed = copying.done
            case "crash":
                copying.start()
    while copying.done <= source[-1]:
        copying.copy(12, 0)
    copying.flush()
    return copying


@given(copyings(), st.booleans())
def test_every_offset_is_translated_to_the_very_record_or_the_next(copying, compacted):
    store, last = copying.store(compacted=compacted), dict(copying.copies)
    for upstream in range(copying.began, copying.source[-1] + 1):
        record = copying.source[bisect_left(copying.source, upstream)]
        assert store.translate(PARTITION, upstream) == last[record], upstream
    assert store.translate(PARTITION, copying.source[-1] + 1) == copying.downstream
    assert store.translate(PARTITION, copying.source[-1] + 2) is None
    assert store.ends() == {PARTITION: (copying.source[-1] + 1, copying.downstream)}


@given(copyings(), st.booleans())
def test_readers_of_the_copy_go_back_to_the_very_record_or_the_next(copying, compacted):
    store, last = copying.store(compacted=compacted), dict(copying.copies)
    kept = {down: up for up, down in last.items()}
    downs = sorted(kept)
    for downstream in range(downs[0], copying.downstream):
        record = kept[downs[bisect_left(downs, downstream)]]
        assert store.translate_back(PARTITION, downstream) == record, downstream
    assert store.translate_back(PARTITION, copying.downstream) == copying.source[-1] + 1


@given(copyings(), st.integers(0, 200))
def test_records_that_are_gone_from_the_target_are_dropped_and_their_readers_begin_at_the_next(
    copying, start
):
    store, last = copying.store(compacted=True), dict(copying.copies)
    start = min(start, copying.downstream - 1)
    gone = store.trim(PARTITION, start)
    for downstream in gone:
        copying.topic = [r for r in copying.topic if r.downstream != downstream]
    again = copying.store(compacted=True)
    again.trim(PARTITION, start)  # blocks that were replaced may be there again
    for upstream in range(copying.began, copying.source[-1] + 1):
        record = copying.source[bisect_left(copying.source, upstream)]
        for each in (store, again):
            found = each.translate(PARTITION, upstream)
            if last[record] >= start:
                assert found == last[record]
            elif found is not None:  # the record is gone: no later one that is left may be skipped
                left = [down for up, down in last.items() if up >= upstream and down >= start]
                assert start <= found <= min(left, default=copying.downstream)


def store_of(*blocks: tuple[int, list[tuple[int, int, int]]]) -> SegmentStore:
    store = SegmentStore()
    for covered, segments in blocks:
        store.apply(PARTITION, Block.of(covered, [Segment(*s) for s in segments]))
    return store


def test_an_offset_that_no_writer_covered_is_not_translated():
    # From 100 to 199 another mirror was at work.
    store = store_of((0, [(0, 0, 100)]), (200, [(200, 230, 10)]))
    found = [store.translate(PARTITION, u) for u in (99, 100, 101, 199, 200)]
    assert found == [99, None, None, None, 230]
    assert [store.translate_back(PARTITION, d) for d in (99, 100, 229, 230)] == [99, None, None, 200]
    began_later = store_of((500, [(500, 700, 10)]))
    assert [began_later.translate(PARTITION, u) for u in (0, 499, 500)] == [None, None, 700]


def test_a_target_that_was_shortened_or_made_anew_keeps_nothing_of_what_it_lost():
    store = store_of((0, [(0, 0, 100)]), (100, [(100, 60, 10)]))
    assert [store.translate(PARTITION, u) for u in (59, 60, 99, 100)] == [59, None, None, 60]
    store = store_of((0, [(0, 0, 100)]), (0, [(100, 0, 10)]))
    assert [store.translate(PARTITION, u) for u in (0, 99, 105)] == [0, 0, 5]


def test_a_source_topic_that_was_made_anew_replaces_the_old_one():
    store = store_of((0, [(0, 0, 1000)]), (0, [(0, 1000, 10)]))
    assert [store.translate(PARTITION, u) for u in (0, 10, 500)] == [1000, 1010, None]


def transactions(count: int, seed: int | None = None) -> list[Segment]:
    """Runs as transactions leave them: of 100 records each, or of some number of records."""
    random, found, last = Random(seed), [], Segment(0, 0, 0)
    for _ in range(count):
        records = 100 if seed is None else random.randint(1, 200)
        last = Segment(last.upstream_end, last.downstream_end + 1, records)
        found.append(last)
    return found


def blocks_of(segments: list[Segment]) -> list[Block]:
    log = SegmentLog()
    log.begin(0)
    for segment in segments:
        log.add(segment)
    return log.take()


def test_blocks_are_bounded():
    blocks = blocks_of([Segment(i, 2 * i, 1) for i in range(SEGMENTS_MAX * 3)])
    assert [len(b.segments) for b in blocks] == [SEGMENTS_MAX] * 3
    assert max(len(b.packed) for b in blocks) < 4 * SEGMENTS_MAX


@pytest.mark.parametrize(("seed", "bytes_max"), [(None, 0.5), (1, 2.0)])
def test_every_offset_behind_a_hundred_thousand_transactions_is_exact(seed, bytes_max):
    segments = transactions(100_000, seed)
    blocks = PartitionBlocks()
    for block in blocks_of(segments):
        blocks.apply(block)
    assert blocks.size < bytes_max * len(segments) + LATEST_MAX * (OVERHEAD + 5 * SEGMENTS_MAX)
    for segment in segments[:: 997 if seed is None else 499]:
        for i in (0, segment.records - 1):
            assert blocks.translate(segment.upstream + i) == segment.downstream + i
            assert blocks.translate_back(segment.downstream + i) == segment.upstream + i


def test_a_store_that_is_full_drops_the_oldest_of_the_largest_partition_and_writes_tombstones():
    store, small = SegmentStore(bytes_max=100_000), ("small", 0)
    store.apply(small, Block.of(0, [Segment(0, 0, 10)]))
    segments = transactions(200_000, seed=1)
    blocks = blocks_of(segments)
    for block in blocks:
        store.apply(PARTITION, block)
    assert store.shed
    assert store.translate(small, 5) == 5
    known = [b for b in blocks if store.translate(PARTITION, b.upstream) is not None]
    dropped = len(blocks) - len(known)
    assert known == blocks[dropped:]
    assert len(known) > 100
    assert store.begin(PARTITION) == known[0].covered
    assert store.trim(PARTITION, 0) == [b.downstream for b in blocks[:dropped]]
    assert store.trim(PARTITION, 0) == []
    store.drop(PARTITION, known[0].downstream)
    assert [store.translate(PARTITION, b.upstream) for b in known[:2]] == [None, known[1].downstream]


def test_partitions_that_are_alike_lose_alike():
    store = SegmentStore(bytes_max=200_000)
    for i in range(20):
        for block in blocks_of(transactions(100 * SEGMENTS_MAX, seed=i)):
            store.apply(("t", i), block)
    held = [store.end(("t", i)) for i in range(20)], [store.begin(("t", i)) for i in range(20)]
    assert all(0 < begin < end[0] - 1000 for end, begin in zip(*held, strict=True))


def test_a_store_with_one_block_for_each_partition_keeps_them():
    store = SegmentStore(bytes_max=1000)
    for i in range(10):
        for block in blocks_of(transactions(2 * SEGMENTS_MAX)):
            store.apply(("t", i), block)
    assert [store.end(("t", i)) for i in range(10)] == [(25_600, 25_856)] * 10
    assert store.translate(("t", 0), 0) is None


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (b"\0\1" + b"\0" * 16 + b"\1", UnsupportedVersion, "version 1"),
        (b"\0\0" + b"\0" * 15, MalformedRecord, "upstreamOffset at byte 10 needs 8 bytes, 7 follow"),
        (b"\0\0" + b"\0" * 16, MalformedRecord, "cut off"),
        (b"\0\0" + b"\0" * 16 + b"\x80", MalformedRecord, "cut off"),
        (b"\0\0" + b"\0" * 16 + b"\1\0\0\0", MalformedRecord, "without records"),
    ],
)
def test_other_bytes_are_refused(value, error, said):
    key, _ = SegmentRecord(PARTITION, 0, None).encode()
    with pytest.raises(error, match=said):
        SegmentRecord.decode(key, value)


def test_blocks_that_later_copies_replaced_get_tombstones_once():
    store = store_of((0, [(0, 0, 100)]), (100, [(100, 100, 50)]), (0, [(0, 150, 30)]), (0, [(0, 150, 60)]))
    assert store.trim(PARTITION, 0) == [0, 100]
    assert store.trim(PARTITION, 0) == []
    assert store.translate(PARTITION, 20) == 170
