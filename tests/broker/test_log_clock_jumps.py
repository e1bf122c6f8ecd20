"""The wall clock goes back and forth: appends, retention, rolling, indexes and lookups by time stay right."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_broker.log.config import LogConfig
from klamm_broker.log.partition_log import PartitionLog
from klamm_kafka.wire.batch import Record, decode_records, encode_batch, iter_headers

NOW = 1_800_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR


def records_of(log):
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, up_to=log.log_end_offset)
        data = os.pread(piece.fd, piece.size, piece.position)
        for position, header in iter_headers(data):
            for record in decode_records(data, position):
                timestamp = header.max_timestamp if header.timestamp_type == 1 else record.timestamp
                found.append((record.offset, timestamp))
            offset = header.last_offset + 1
    return found


def check_lookups(log):
    """Checks Kafka's answer to every lookup: the first record, by offset, that is at least as late."""
    records = records_of(log)
    times = sorted({timestamp for _, timestamp in records})
    for wanted in [0, *times, *(t + 1 for t in times)]:
        first = next(((t, o) for o, t in records if t >= wanted), None)
        found = log.offset_for_timestamp(wanted)
        assert (found[:2] if found else None) == first, wanted
    if records:
        latest = max(t for _, t in records)
        assert log.max_timestamp_offset()[:2] == (latest, next(o for o, t in records if t == latest))


STEPS = st.lists(
    st.tuples(
        st.sampled_from([-30 * DAY, -DAY, -HOUR, -1000, -1, 0, 1, 1000, HOUR, DAY, 30 * DAY]),
        st.sampled_from(["append", "append", "append", "roll", "retention", "restart", "crash"]),
    ),
    max_size=40,
)


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_any_jumps(tmp_path_factory, kind, steps):
    config = LogConfig.from_topic(
        {
            "message.timestamp.type": kind,
            "segment.ms": str(DAY),
            "retention.ms": str(7 * DAY),
            "index.interval.bytes": "100",
        }
    )
    path = tmp_path_factory.mktemp("log")
    now = NOW
    log = PartitionLog.open(path, "t", 0, config, clean=True, now_ms=now)
    written = 0
    try:
        for jump, what in steps:
            now += jump
            match what:
                case "append":
                    info = log.append(encode_batch([Record(timestamp=now, value=b"x" * 50)] * 2), now_ms=now)
                    assert info.first_offset == written, "offsets know no clock"
                    written += 2
                case "roll":
                    log.roll(now)
                case "retention":
                    before = dict(records_of(log))
                    log.delete_old_segments(now)
                    log.remove_deleted(now)
                    gone = before.keys() - dict(records_of(log)).keys()
                    assert all(before[offset] < now - 7 * DAY for offset in gone), "younger records went"
                case "restart":
                    log.close()
                    log = PartitionLog.open(
                        path, "t", 0, config, clean=True, log_start_offset=log.log_start_offset, now_ms=now
                    )
                case "crash":
                    point, start = log.recovery_point, log.log_start_offset
                    log.release()
                    log = PartitionLog.open(
                        path,
                        "t",
                        0,
                        config,
                        clean=False,
                        recovery_point=point,
                        log_start_offset=start,
                        now_ms=now,
                    )
            assert log.log_end_offset == log.high_watermark == written
        check_lookups(log)
    finally:
        log.release()


def test_records_from_a_clock_that_was_ahead_do_not_keep_all_others_for_ever(tmp_path):
    """One record from a year ahead holds its own segment back, as in Kafka, and no segment before it."""
    config = LogConfig.from_topic(
        {"retention.ms": str(DAY), "message.timestamp.after.max.ms": str(1000 * DAY)}
    )
    log = PartitionLog.open(tmp_path, "t", 0, config, clean=True, now_ms=NOW)
    for timestamp in (NOW, NOW + 365 * DAY, NOW):
        log.append(encode_batch([Record(timestamp=timestamp, value=b"v")]), now_ms=NOW)
        log.roll(NOW)
    assert log.delete_old_segments(NOW + 2 * DAY) == 1
    assert log.delete_old_segments(NOW + 367 * DAY) == 2
    log.release()


def test_a_clock_that_went_back_rolls_no_segment_and_flushes_when_it_is_time(tmp_path):
    config = LogConfig.from_topic({"segment.ms": "1000", "flush.ms": "500"})
    log = PartitionLog.open(tmp_path, "t", 0, config, clean=True, now_ms=NOW)
    for step in range(5):
        log.append(encode_batch([Record(timestamp=NOW - step * HOUR, value=b"v")]), now_ms=NOW - step * HOUR)
    assert log.segment_base_offsets == [0]
    then = NOW - 5 * HOUR
    assert not log.wants_flush(then), "not due yet by the clock that went back"
    log.append(encode_batch([Record(timestamp=then, value=b"v")]), now_ms=then)
    assert log.wants_flush(then + 501), "a flush must not wait for the old time to come again"
    log.release()
