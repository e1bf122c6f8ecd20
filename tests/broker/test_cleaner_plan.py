"""The cleaner's decisions one by one: what is dirty, which log is next, which segments go together; its limits."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cleaning import Cleaning, batches

from klamm_broker.log.cleaner.job import (
    Cleaned,
    Done,
    Failed,
    Job,
    job_line,
    pieces,
    read_job,
    read_line,
    read_report,
    report_line,
)
from klamm_broker.log.cleaner.offset_map import SLOT_BYTES, OffsetMap
from klamm_broker.log.cleaner.plan import (
    SEGMENTS_IN_GROUP_MAX,
    DirtySegment,
    LogFacts,
    SourceSegment,
    candidate,
    dirtiest,
    first_dirty,
    group,
)
from klamm_broker.log.cleaner.throttle import Throttle
from klamm_broker.log.config import LogConfig
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.retention import SegmentFacts, deletable
from klamm_broker.server.clean_points import CleanPoints
from klamm_broker.server.cleaner_stats import size_text
from klamm_kafka.wire.batch import Record, encode_batch, encode_end_txn_marker

NOW = 1_800_000_000_000
DAY = 86_400_000
COMPACT = LogConfig(cleanup_policy=("compact",))


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1.00 kB"), (9_994, "9.99 kB"), (9_999, "10.0 kB"),
        (123_456, "123 kB"), (999_600, "1.00 MB"), (45_600_000, "45.6 MB"), (7_890_000_000_000_000, "7890 TB"),
    ],
)  # fmt: skip
def test_sizes_in_the_log_say_something(size, text):
    assert size_text(size) == text


def facts(
    *, stable: int = 100, start: int = 0, checkpoint: int | None = None, **config: int | float
) -> LogFacts:
    """Returns five segments of 10 offsets and 100 bytes, an hour apart; the last is the active one."""
    hour = 3_600_000
    segments = [DirtySegment(10 * n, 100, NOW - (4 - n) * hour, NOW - (5 - n) * hour) for n in range(5)]
    return LogFacts(
        name="t-0",
        segments=segments,
        log_start_offset=start,
        log_end_offset=50,
        last_stable_offset=stable,
        clean_offset=checkpoint,
        config=replace(COMPACT, **config),
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (0, 40, 0, 400)),
        ({"checkpoint": 20}, (20, 40, 200, 200)),
        ({"checkpoint": 25}, (25, 40, 300, 200)),  # in the middle of a segment: clean and dirty
        ({"checkpoint": 40}, (40, 40, 400, 0)),
        ({"stable": 35}, (0, 30, 0, 300)),
        ({"stable": 30}, (0, 30, 0, 300)),
        ({"stable": 9, "checkpoint": 20}, (20, 20, 200, 0)),
        ({"start": 20, "checkpoint": 10}, (20, 40, 200, 200)),
        ({"checkpoint": 51}, (0, 40, 0, 400)),
        ({"min_compaction_lag_ms": 3 * 3_600_000 + 1}, (0, 10, 0, 100)),
        ({"min_compaction_lag_ms": 3_600_000}, (0, 40, 0, 400)),  # as old as that: not younger
    ],
)
def test_what_is_clean_and_what_is_dirty(given, expected) -> None:
    found = candidate(facts(**given), NOW)
    assert found is not None
    assert (found.first_dirty, found.end, found.clean_bytes, found.dirty_bytes) == expected


def test_a_checkpoint_outside_the_log_is_named() -> None:
    assert (
        first_dirty(facts(start=20, checkpoint=10))[1]
        == "the cleaner's checkpoint 10 is before the log start offset"
    )
    assert "beyond the log end offset 50" in (first_dirty(facts(checkpoint=51))[1] or "")
    assert first_dirty(facts(checkpoint=50)) == (50, None)


def test_when_a_log_is_due_and_which_is_first() -> None:
    half = candidate(facts(checkpoint=20), NOW)
    all_of_it = candidate(facts(), NOW)
    assert half is not None
    assert all_of_it is not None
    assert not half.due, "the ratio must be exceeded"
    assert dirtiest([half]) is None
    assert dirtiest([half, all_of_it]) is all_of_it
    late = candidate(facts(checkpoint=20, max_compaction_lag_ms=2_000_000), NOW)
    assert late is not None
    assert late.delay_ms == 3 * 3_600_000 - 2_000_000
    assert late.due
    nothing = candidate(facts(checkpoint=40, max_compaction_lag_ms=1), NOW)
    assert nothing is not None
    assert not nothing.due
    assert candidate(facts()._replace(segments=[DirtySegment(0, 100)]), NOW) is None


def test_a_topic_with_a_largest_lag_rolls_in_time() -> None:
    assert replace(COMPACT, max_compaction_lag_ms=5000).roll_ms == 5000
    assert LogConfig(max_compaction_lag_ms=5000).roll_ms == LogConfig().segment_ms


def test_small_segments_are_merged() -> None:
    def bases(sizes: list[int], *, limit: int = 100, index: int = 8, step: int = 10) -> list[list[int]]:
        segments = [SourceSegment(n * step, size, index, 12) for n, size in enumerate(sizes)]
        groups = group(segments, max_bytes=limit, max_index_bytes=40, end=len(sizes) * step)
        return [[s.base_offset for s in members] for members in groups]

    assert bases([50, 50, 1, 100, 0, 0]) == [[0, 10], [20], [30, 40, 50]]
    assert bases([1] * 6) == [[0, 10, 20], [30, 40, 50]], "12 bytes of time index each"
    assert bases([1, 1, 1], step=1 << 31) == [[0], [1 << 31], [1 << 32]]
    assert bases([1, 0, 1], step=1 << 31) == [[0, 1 << 31], [1 << 32]], "an empty one has no offsets"
    many = [SourceSegment(n, 1, 0, 0) for n in range(SEGMENTS_IN_GROUP_MAX + 1)]
    assert [len(g) for g in group(many, max_bytes=1 << 30, max_index_bytes=1, end=1000)] == [
        SEGMENTS_IN_GROUP_MAX,
        1,
    ]


@given(st.lists(st.tuples(st.binary(max_size=50), st.integers(0, 1 << 60))))
def test_the_map_has_the_last_offset(puts) -> None:
    offsets, expected = OffsetMap(1 << 20, 0.9), {}
    for key, offset in puts:
        offsets.put(key, offset)
        expected[key] = offset
    assert all(offsets.get(key) == offset for key, offset in expected.items())
    assert offsets.get(b"not there") == expected.get(b"not there", -1)


@pytest.mark.parametrize("slots", [0, 3, 4, 25, 100])
@pytest.mark.parametrize("load_factor", [0.01, 0.9, 1.0])
def test_a_map_is_filled_to_its_limit_and_found_in(slots: int, load_factor: float) -> None:
    offsets = OffsetMap(slots * SLOT_BYTES, load_factor)
    keys = 0
    while not offsets.full:
        offsets.put(b"%d" % keys, keys)
        offsets.put(b"%d" % keys, keys + 1000)
        keys += 1
    assert len(offsets) == keys >= 1, "every pass gets on"
    assert keys / max(slots, 3) <= max(load_factor, 0.34)
    assert 0.3 < offsets.utilization < 1 or load_factor < 0.1
    assert [offsets.get(b"%d" % n) for n in range(keys + 3)] == [n + 1000 for n in range(keys)] + [-1] * 3


def test_keys_of_the_dictionary_are_found_in_the_table() -> None:
    offsets = OffsetMap(200_000, 0.9)
    keys = [b"%d" % n * (n % 50 + 1) for n in range(3000)]
    for n, key in enumerate(keys):
        offsets.put(key, n)
        if n in (100, 114, 115, 116, 117, 500, 2999):
            assert [offsets.get(k) for k in keys[: n + 2]] == [*range(n + 1), -1][: len(keys[: n + 2])]
            assert len(offsets) == n + 1


@pytest.mark.usefixtures("processes")
def test_the_memory_of_the_map_is_bounded() -> None:
    """The map names at least the memory that the process takes, and holds most of Kafka's number of keys."""
    program = (
        "import resource\n"
        "from klamm_broker.log.cleaner.offset_map import OffsetMap\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "m = OffsetMap(3 << 20, 0.9)\n"
        "n = 1 << 40\n"
        "while not m.full:\n"
        "    n += 1\n"
        "    m.put(b'%020d' % n, n)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, len(m))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    taken_kib, keys = map(int, result.stdout.split())
    assert keys > 0.78 * (3 << 20) / 24
    assert taken_kib <= (3 << 10) + 256, "what the interpreter takes by the way included"


def test_the_throttle_keeps_the_rate() -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    throttle = Throttle(1000, clock=lambda: clock[0], sleep=sleep)
    for _ in range(100):
        throttle.used(100)
    assert 9.5 <= clock[0] <= 10
    clock[0] += 100
    throttle.used(100)
    assert clock[0] < 111, "a pause is not made up for"


def test_what_broker_and_process_tell_each_other() -> None:
    job = Job(
        directory="/x", segments=[(0, 10), (5, 20)], first_dirty=1, end=9, now_ms=NOW, delete_retention_ms=1,
        segment_bytes=2, segment_index_bytes=3, index_interval_bytes=4, memory=5, load_factor=0.5, buffer_bytes=6,
        bytes_per_s=1.7976931348623157e308,
    )  # fmt: skip
    kind, content = read_line(job_line(job))
    assert (kind, read_job(content)) == ("job", job)
    cleaned = Cleaned(base_offset=1, replaces=[1, 2], size=3, inode=4)
    done = Done(
        clean_offset=1, bytes_read=2, bytes_written=3, map_bytes_read=4, records_read=5, records_written=6,
        records_without_key=7, buffer_utilization=0.5, cpu_s=1.5,
    )  # fmt: skip
    for report in (cleaned, done, Failed(kind="io", reason="no space")):
        assert read_report(report_line(report)) == report
    lines = [read_line(line) for line in pieces("producers", [(n, None, 0) for n in range(5000)])]
    assert [len(rows) for _, rows in lines] == [4096, 904]


def test_an_aborted_transaction_stays_in_the_index_as_long_as_its_marker_needs_it(tmp_path: Path) -> None:
    config = replace(COMPACT, delete_retention_ms=0, min_cleanable_dirty_ratio=0.0)
    log = PartitionLog.open(tmp_path / "t-0", "t", 0, config, clean=True, now_ms=NOW)
    data = encode_batch(
        [Record(timestamp=NOW, key=b"k", value=b"v")],
        producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True,
    )  # fmt: skip
    log.append(data, now_ms=NOW, transaction_version=1)
    marker = encode_end_txn_marker(
        committed=False, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
    )
    log.append(marker, now_ms=NOW, origin="coordinator")
    cleaning, seen = Cleaning(log), []
    for n in range(4):
        log.append(encode_batch([Record(timestamp=NOW, key=b"x", value=b"%d" % n)]), now_ms=NOW)
        log.roll(NOW)
        log.expire_producers(NOW + DAY * n)
        cleaning.clean(NOW + n)
        rows = [(header.base_offset, len(rows)) for header, rows in batches(log) if header.producer_id == 1]
        seen.append((rows, len(log.aborted_transactions(0, 100))))
    assert seen[0] == ([(0, 0), (1, 1)], 1), (
        "the header of the producer's last batch stays, and so do marker and index"
    )
    assert seen[1] == ([(1, 1)], 1), "the producer is forgotten, its batch is met for the last time"
    assert seen[2] == ([(1, 1)], 0), "the marker gets a horizon"
    assert seen[3] == ([], 0)


@pytest.mark.parametrize(
    ("ages_ms", "jump_ms", "expected"),
    [
        ([10 * DAY, 8 * DAY, 1 * DAY, 0], 0, 2),
        (
            [10 * DAY, -5 * DAY, 9 * DAY, 0],
            0,
            1,
        ),  # a record from the future holds its segment, and those behind it
        ([10 * DAY, 8 * DAY, 1 * DAY, 0], -4 * DAY, 0),  # the clock is set back: nothing is old any more
        ([10 * DAY, 8 * DAY, 1 * DAY, 0], 10 * DAY, 4),  # and forth
        ([400 * DAY, 400 * DAY, 400 * DAY, 400 * DAY], 0, 4),  # records from the past go at once, as in Kafka
        ([7 * DAY, 0, 0, 0], 0, 0),  # as old as retention.ms: not older
    ],
)
def test_retention_by_time_when_clocks_jump(ages_ms, jump_ms, expected) -> None:
    segments = [
        SegmentFacts(size=100, end_offset=10 * (n + 1), timestamp=NOW - age) for n, age in enumerate(ages_ms)
    ]
    count = deletable(
        segments, now_ms=NOW + jump_ms, retention_ms=7 * DAY, retention_bytes=-1, log_start_offset=0,
        high_watermark=40, delete_policy=True,
    )  # fmt: skip
    assert count == expected


def test_compact_and_delete(tmp_path: Path) -> None:
    """Old segments of a compacted log go by their newest record, also after a cleaning has emptied some of them."""
    config = replace(
        COMPACT, cleanup_policy=("compact", "delete"), retention_ms=DAY, min_cleanable_dirty_ratio=0.0
    )
    log = PartitionLog.open(
        tmp_path / "t-0", "t", 0, replace(config, segment_bytes=200), clean=True, now_ms=NOW
    )
    for n in range(30):
        record = Record(timestamp=NOW + n * DAY // 10, key=b"%d" % (n % 3), value=bytes(50))
        log.append(encode_batch([record]), now_ms=NOW + n * DAY // 10)
    log.config = config
    Cleaning(log).clean(NOW + 3 * DAY)
    assert log.delete_old_segments(NOW + 3 * DAY) == 0, "merged into one segment with young records"
    log.cleaning = True
    assert log.delete_old_segments(NOW + 5 * DAY) == 0, "not while the cleaner has them"
    log.cleaning = False
    assert log.delete_old_segments(NOW + 5 * DAY) == 2
    assert log.log_start_offset == 30


def test_clean_points(tmp_path: Path) -> None:
    points = CleanPoints([tmp_path])
    points.set(tmp_path, ("t", 0), 10)
    points.set(tmp_path, ("u", 3), 20)
    points.write_job(tmp_path)()
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n2\nt 0 10\nu 3 20\n"
    again = CleanPoints([tmp_path])
    assert again.get(tmp_path, ("u", 3)) == 20
    assert again.drop([("u", 3), ("v", 0)]) == [tmp_path]
    assert (again.get(tmp_path, ("t", 0)), again.get(tmp_path, ("u", 3))) == (10, None)
    again.keep_only(lambda _: set())
    assert again.get(tmp_path, ("t", 0)) is None
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n7\nt 0 10\n")
    assert CleanPoints([tmp_path]).get(tmp_path, ("t", 0)) is None
