"""A cleaned log's byte fields and indexes, where a model of records would not notice a difference."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.cleaning import Cleaning, batches

from klamm_broker.log import files
from klamm_broker.log.config import LogConfig
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.steps import finish
from klamm_broker.log.txn_index import AbortedTxn
from klamm_kafka.wire.batch import (
    NO_TIMESTAMP,
    BatchHeader,
    Record,
    encode_batch,
    encode_end_txn_marker,
)
from klamm_kafka.wire.compression import Compression

NOW = 1_800_000_000_000
CONFIG = LogConfig(
    cleanup_policy=("compact",), segment_bytes=1 << 20, index_interval_bytes=10, retention_ms=-1,
    min_cleanable_dirty_ratio=0.0, delete_retention_ms=1000,
)  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return PartitionLog.open(tmp_path / "t-0", "t", 0, CONFIG, clean=True, now_ms=NOW)


def write(
    log: PartitionLog,
    *rows: tuple[bytes, bytes | None, int],
    producer: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    codec: Compression = Compression.NONE,
) -> int:
    """Appends a batch of (key, value, timestamp); returns its first offset."""
    data = encode_batch(
        [Record(timestamp=NOW + at, key=key, value=value) for key, value, at in rows],
        producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence,
        is_transactional=transactional, compression=codec,
    )  # fmt: skip
    return log.append(data, now_ms=NOW, transaction_version=1).first_offset


def end(log: PartitionLog, producer: int, *, committed: bool, at: int = 0) -> None:
    marker = encode_end_txn_marker(
        committed=committed, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=NOW + at
    )
    log.append(marker, now_ms=NOW, origin="coordinator")


def headers(log: PartitionLog) -> dict[int, BatchHeader]:
    return {header.base_offset: header for header, _ in batches(log)}


@pytest.mark.parametrize("codec", list(Compression))
def test_the_largest_timestamp_is_that_of_the_records_left(log: PartitionLog, codec: Compression) -> None:
    write(log, (b"a", b"1", 900), (b"b", b"1", 300), (b"c", b"1", 500), codec=codec)
    write(log, (b"x", b"1", 400), codec=codec)
    write(log, (b"a", b"2", 100), codec=codec)
    log.roll(NOW)
    Cleaning(log).clean(NOW)
    assert [h.max_timestamp - NOW for h in headers(log).values()] == [500, 400, 100]
    assert log.segments[0].largest_timestamp == NOW + 500
    log.close()
    again = PartitionLog.open(log.directory, "t", 0, CONFIG, clean=True, now_ms=NOW)
    first = again.segments[0]
    assert first.largest_timestamp == NOW + 500, "from the time index"
    assert first.time_index.last == (NOW + 500, 2)
    assert again.offset_for_timestamp(NOW + 501) is None
    assert again.offset_for_timestamp(NOW + 450) == (NOW + 500, 2, 0)
    assert again.max_timestamp_offset() == (NOW + 500, 2, 0)


def test_append_time_stays(log: PartitionLog) -> None:
    log.config = replace(CONFIG, message_timestamp_type="LogAppendTime")
    write(log, (b"a", b"1", 1), (b"b", b"1", 2), producer=5, sequence=0)
    log.append(encode_batch([Record(timestamp=1, key=b"b", value=b"2")]), now_ms=NOW + 50)
    log.append(encode_batch([Record(timestamp=1, key=b"a", value=b"2")]), now_ms=NOW + 60)
    log.roll(NOW + 60)
    Cleaning(log).clean(NOW + 60)
    found = headers(log)
    assert [(h.timestamp_type, h.max_timestamp - NOW) for h in found.values()] == [(1, 0), (1, 50), (1, 60)]
    assert found[0].record_count == 0, "the producer's last batch"
    assert found[0].base_timestamp == NO_TIMESTAMP


def test_an_emptied_batch_is_what_kafka_leaves(log: PartitionLog) -> None:
    write(log, (b"a", b"1", 0), (b"b", None, 700), producer=5, sequence=0, codec=Compression.GZIP)
    write(log, (b"a", b"2", 100), (b"b", b"2", 200))
    log.roll(NOW)
    before = headers(log)[0]
    Cleaning(log).clean(NOW)
    after = headers(log)[0]
    assert after == before._replace(
        length=49, attributes=0, base_timestamp=NO_TIMESTAMP, record_count=0, crc=after.crc
    )
    log.close()
    again = PartitionLog.open(log.directory, "t", 0, CONFIG, clean=True, now_ms=NOW)
    assert again.segments[0].time_index.last == (NOW + 700, 1), "the header's, as in Kafka"


def test_aborted_transactions_of_merged_segments_are_indexed(log: PartitionLog) -> None:
    """Each has a batch that stays for its producer's sake, so its marker and its entry in the index stay."""
    for producer in (1, 2, 3):
        write(log, (b"k%d" % producer, b"x", 0), producer=producer, sequence=0, transactional=True)
        end(log, producer, committed=producer == 2)
        log.roll(NOW)
    write(log, (b"other", b"x", 0))
    log.roll(NOW)
    expected = [AbortedTxn(1, 0, 1, 2), AbortedTxn(3, 4, 5, 6)]
    assert log.aborted_transactions(0, 6) == expected
    Cleaning(log).clean(NOW)
    assert log.segment_base_offsets == [0, 7]
    assert log.aborted_transactions(0, 6) == expected
    again = PartitionLog.open(log.directory, "t", 0, CONFIG, clean=True, now_ms=NOW)
    assert again.aborted_transactions(0, 6) == expected
    assert again.aborted_transactions(2, 4) == []


def test_a_transaction_that_begins_where_a_batch_ends_is_known_in_time(log: PartitionLog) -> None:
    """Its first batch has one record: first offset and last offset are one."""
    write(log, (b"k", b"good", 0))
    write(log, (b"k", b"bad", 0), producer=1, sequence=0, transactional=True)
    end(log, 1, committed=False)
    log.roll(NOW)
    Cleaning(log).clean(NOW)
    assert [r.value for h, rows in batches(log) if not h.is_control for r in rows] == [b"good"]


def test_markers_go_in_their_time(log: PartitionLog) -> None:
    """A marker whose transaction has left nothing gets a horizon first, and is gone behind it."""
    write(log, (b"k", b"1", 0), producer=1, sequence=0, transactional=True)
    end(log, 1, committed=True)
    write(log, (b"n", b"1", 0), producer=1, sequence=1, transactional=True)
    end(log, 1, committed=True)
    write(log, (b"k", b"2", 0))
    log.roll(NOW)
    cleaning = Cleaning(log)
    seen = []
    for now in (NOW, NOW, NOW + 999, NOW + 1000):
        cleaning.clean_offset = None
        cleaning.clean(now, rounds=1)
        seen.append({h.base_offset: h.has_delete_horizon for h in headers(log).values() if h.is_control})
    assert seen == [{1: False, 3: False}, {1: True, 3: False}, {1: True, 3: False}, {3: False}]


def test_the_last_batch_of_a_round_stays(log: PartitionLog) -> None:
    """The log thus shows the offset that cleaning has reached."""
    write(log, (b"k", b"1", 0))
    write(log, (b"t", b"x", 0), producer=1, sequence=0, transactional=True)
    end(log, 1, committed=False)
    log.roll(NOW)
    log.producers.entries.clear()  # they have expired
    cleaning = Cleaning(log)
    for now in (NOW, NOW, NOW + 1000):
        cleaning.clean_offset = None
        cleaning.clean(now, rounds=1)
    assert {base: h.record_count for base, h in headers(log).items()} == {0: 1, 2: 0}


def test_a_producer_with_markers_only_keeps_one_of_its_epoch(log: PartitionLog) -> None:
    """Its last marker is all that a log tells of a producer whose transactions have left nothing else."""
    for _ in range(2):
        end(log, 1, committed=False)
    write(log, (b"k", b"1", 0))
    log.roll(NOW)
    cleaning = Cleaning(log)
    for now in (NOW, NOW + 1000):
        cleaning.clean_offset = None
        cleaning.clean(now, rounds=1)
    assert {base: h.record_count for base, h in headers(log).items()} == {0: 0, 1: 0, 2: 1}


def test_the_file_keeps_the_age_of_its_last_segment(log: PartitionLog) -> None:
    """Retention by time asks for it where no record has a timestamp."""
    write(log, (b"a", b"1", 0))
    log.roll(NOW)
    path = log.segments[0].path(files.LOG)
    os.utime(path, (1_000_000, 1_000_000))
    Cleaning(log).clean(NOW)
    assert path.stat().st_mtime == 1_000_000


def test_no_file_is_held_that_a_later_round_replaces(log: PartitionLog) -> None:
    """A deleted file that someone has open keeps its place on the disk."""
    held = []
    for value in (b"1", b"2", b"3", b"4"):
        write(log, (b"a", value, 0))
        log.roll(NOW)
        Cleaning(log).clean(NOW)
        held.append(len(files.SEGMENT_FILES))
    assert held[1:] == held[1:2] * 3


def test_a_timestamp_is_found_in_a_segment_that_is_cleaned_while_it_is_looked_for(log: PartitionLog) -> None:
    """The search pauses among the many batches of the first segment; the second goes into a new one with it."""
    write(log, (b"deleted", b"v", 900))
    for number in range(300):
        write(log, (b"%d" % number, b"v", 0))
    log.roll(NOW)
    wanted = write(log, (b"wanted", b"v", 900))
    log.roll(NOW)
    write(log, (b"later", b"v", 0))
    log.log_start_offset = 1
    steps = log.finding_timestamp(NOW + 900)
    assert next(steps) is None
    held = len(files.SEGMENT_FILES)
    Cleaning(log).clean(NOW)
    assert len(log.segments) == 2
    assert finish(steps) == (NOW + 900, wanted, 0)
    assert len(files.SEGMENT_FILES) <= held, "no deleted file is held"
