"""PartitionLog accepts, refuses, writes and remembers, case by case."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from klamm_broker.log import errors, stored_log
from klamm_broker.log.config import LogConfig
from klamm_broker.log.leader_epoch import LeaderEpochCache
from klamm_broker.log.partition_log import PartitionLog
from klamm_kafka.wire.batch import (
    Record,
    decode_records,
    encode_batch,
    encode_end_txn_marker,
    iter_headers,
    read_header,
)
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.crc import crc32c
from klamm_kafka.wire.errors import ErrorCode

NOW = 1_800_000_000_000


@pytest.fixture
def make(tmp_path):
    opened: list[PartitionLog] = []

    def make_log(*, clean: bool = True, recovery_point: int = 0, **config) -> PartitionLog:
        log = PartitionLog.open(
            tmp_path, "t", 0, LogConfig(**config), clean=clean, recovery_point=recovery_point, now_ms=NOW
        )
        opened.append(log)
        return log

    yield make_log
    for log in opened:
        log.release()


def record(**values) -> Record:
    return Record(**{"timestamp": NOW, "value": b"v", **values})


def plain(count: int = 1, **values) -> bytearray:
    return encode_batch([record(**values)] * count)


def idempotent(sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, **rest) -> bytearray:
    return encode_batch(
        [record()] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **rest
    )


def marker(*, committed: bool, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    return encode_end_txn_marker(
        committed=committed,
        producer_id=7,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=NOW,
    )


def set_field(batch: bytearray, layout: str, position: int, value: int) -> bytearray:
    """Change a header field and make the checksum right again."""
    struct.pack_into(layout, batch, position, value)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def stored(log: PartitionLog) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(log.directory.glob("*.log")))


# Refusals: one line each


def cut(batch: bytearray, size: int) -> bytearray:
    return batch[:size]


REFUSED = {
    "magic 1": (lambda: set_field(plain(), ">b", 16, 1), {}, errors.UnsupportedMessageFormat),
    "magic 0": (lambda: set_field(plain(), ">b", 16, 0), {}, errors.UnsupportedMessageFormat),
    "magic 3": (lambda: set_field(plain(), ">b", 16, 3), {}, errors.CorruptMessage),
    "nothing": (bytearray, {}, errors.InvalidRecordBatch),
    "half a header": (lambda: cut(plain(), 30), {}, errors.CorruptMessage),
    "half a batch": (lambda: cut(plain(), 65), {}, errors.CorruptMessage),
    "a batch and a half": (lambda: plain() + cut(plain(), 65), {}, errors.CorruptMessage),
    "negative length": (lambda: set_field(plain(), ">i", 8, -5), {}, errors.CorruptMessage),
    "length below a header": (lambda: set_field(plain(), ">i", 8, 48), {}, errors.CorruptMessage),
    "flipped bit": (lambda: bytearray(b ^ (i == 66) for i, b in enumerate(plain())), {}, errors.CorruptMessage),
    "count against offsets": (lambda: set_field(plain(2), ">i", 57, 3), {}, errors.InvalidRecordBatch),
    "no records": (lambda: set_field(plain(), ">i", 57, 0), {}, errors.InvalidRecordBatch),
    "base offset": (lambda: set_field(plain(), ">q", 0, 5), {}, errors.InvalidRecordBatch),
    "control batch": (lambda: marker(committed=True), {}, errors.InvalidRecordBatch),
    "append time from a client": (lambda: set_field(plain(), ">h", 21, 8), {}, errors.InvalidRecordBatch),
    "unknown codec": (lambda: set_field(plain(), ">h", 21, 5), {}, errors.InvalidRecordBatch),
    "transaction without producer": (lambda: set_field(plain(), ">h", 21, 16), {}, errors.InvalidRecordBatch),
    "producer without sequence": (lambda: idempotent(-1), {}, errors.InvalidRecordBatch),
    "too large": (lambda: plain(value=b"x" * 200), {"max_message_bytes": 200}, errors.RecordTooLarge),
    "larger than a segment": (lambda: plain(value=b"x" * 200), {"segment_bytes": 200}, errors.RecordBatchTooLarge),
    "future": (lambda: plain(timestamp=NOW + 3_600_001), {}, errors.InvalidTimestamp),
    "past": (
        lambda: encode_batch([record(), record(timestamp=NOW - 11)]),
        {"message_timestamp_before_max_ms": 10},
        errors.InvalidTimestamp,
    ),
    "no key on a compacted topic": (
        lambda: encode_batch([record(key=b"k"), record()], compression=Compression.GZIP),
        {"cleanup_policy": ("compact",)},
        errors.InvalidRecordBatch,
    ),
    "garbage on a compacted topic": (
        lambda: set_field(bytearray(plain()), ">b", 61, -2),
        {"cleanup_policy": ("compact",)},
        errors.InvalidRecordBatch,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(make, case):
    batch, config, error = REFUSED[case]
    log = make(**config)
    log.append(plain(key=b"k"), now_ms=NOW)
    before = stored(log)
    with pytest.raises(error, match="t-0") as caught:
        log.append(batch(), now_ms=NOW)
    assert isinstance(caught.value.code, ErrorCode)
    assert caught.value.code is not ErrorCode.UNKNOWN_SERVER_ERROR
    assert (stored(log), log.log_end_offset) == (before, 1)
    assert log.append(plain(key=b"k"), now_ms=NOW).first_offset == 1


def test_the_records_to_blame_are_named(make):
    keyless = encode_batch([record(key=b"k"), record(), record(key=b"l"), record()])
    with pytest.raises(errors.InvalidRecordBatch) as caught:
        make(cleanup_policy=("compact",)).append(keyless, now_ms=NOW)
    assert [index for index, _ in caught.value.records] == [1, 3]


def test_records_with_timestamps_out_of_bounds_are_named(make):
    late = encode_batch([record(), record(timestamp=NOW + 3_600_001), record(timestamp=NOW - 11)])
    early = encode_batch([record(), record(), record(timestamp=NOW - 11)])
    log = make(message_timestamp_before_max_ms=10)
    for batch, expected in ((late, [1]), (early, [2])):
        with pytest.raises(errors.InvalidTimestamp) as caught:
            log.append(batch, now_ms=NOW)
        assert [index for index, _ in caught.value.records] == expected
    assert caught.value.records[0][1] == f"timestamp {NOW - 11} is before {NOW - 10}"


@pytest.mark.parametrize("batch", [plain(timestamp=-1), plain(timestamp=NOW + 3_600_000), plain(timestamp=0)])
def test_timestamps_at_the_edge_are_accepted(make, batch):
    assert make(message_timestamp_before_max_ms=2**63 - 1).append(batch, now_ms=NOW).first_offset == 0


# What is written


def test_offsets_and_epoch_are_patched_into_the_callers_buffer(make):
    log = make()
    log.leader_epoch = 5
    buffer = plain(2) + plain(3)
    info = log.append(memoryview(buffer), now_ms=NOW)
    assert info == (0, 4, -1, 0, False)
    assert [(h.base_offset, h.leader_epoch) for _, h in iter_headers(buffer)] == [(0, 5), (2, 5)]
    assert stored(log) == buffer


def test_log_append_time(make):
    log = make(message_timestamp_type="LogAppendTime")
    info = log.append(plain(2, timestamp=5), now_ms=NOW + 1)
    assert info.log_append_time_ms == NOW + 1
    header = read_header(stored(log))
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW + 1)
    log.append(plain(timestamp=NOW + 10**12), now_ms=NOW + 2)
    log.release()
    assert make(clean=False, message_timestamp_type="LogAppendTime").log_end_offset == 3, (
        "checksums are right"
    )


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("sent", list(Compression))
def test_the_topics_codec(make, codec, sent):
    log = make(compression_type=codec)
    records = [
        record(key=b"k", value=b"v%d" % i * 9, headers=[("h", None)], timestamp=NOW + i) for i in range(5)
    ]
    batch = encode_batch(
        records, compression=sent, producer_id=3, producer_epoch=1, base_sequence=0, is_transactional=True
    )
    log.append(batch, now_ms=NOW)
    header = read_header(stored(log))
    assert header.compression.name.lower() == codec.replace("uncompressed", "none")
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 0)
    assert header.is_transactional
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in decode_records(stored(log))] == [
        (r.key, r.value, r.timestamp, list(r.headers)) for r in records
    ]
    log.append(marker_for(3, 1), now_ms=NOW, origin="coordinator")
    log.release()
    assert make(clean=False).log_end_offset == 6


def marker_for(producer: int, epoch: int) -> bytearray:
    return encode_end_txn_marker(
        committed=True, producer_id=producer, producer_epoch=epoch, coordinator_epoch=0, timestamp=NOW
    )


def claim(data: bytearray, count: int) -> bytearray:
    """Returns the batch with another number of records in its header, and a checksum that is right."""
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_may_not_claim_more_records_than_fit(make, compression):
    log = make()
    batch = claim(encode_batch([record()], compression=compression), 2**31 - 1)
    with pytest.raises(errors.InvalidRecordBatch, match="2147483647 records do not fit"):
        log.append(batch, now_ms=NOW)
    assert log.log_end_offset == 0


def test_the_smallest_records_fit_exactly(make):
    log = make()
    empty = [Record(timestamp=NOW, value=None)] * 50
    log.append(encode_batch(empty), now_ms=NOW)
    with pytest.raises(errors.InvalidRecordBatch, match="51 records do not fit into 350 bytes"):
        log.append(claim(encode_batch(empty), 51), now_ms=NOW)


@pytest.mark.parametrize("compression", list(Compression))
def test_many_equal_records_are_not_too_many(make, compression):
    log = make()
    log.append(
        encode_batch([Record(timestamp=NOW, value=None)] * 20_000, compression=compression), now_ms=NOW
    )
    assert log.log_end_offset == 20_000


# Failing disks


class Disk:
    """Stands in for os.pwrite: lets through `allowed` bytes, then fails or falls short."""

    def __init__(self, allowed: int, *, short: bool) -> None:
        self.allowed, self.short = allowed, short
        self.real = os.pwrite

    def __call__(self, fd: int, data, offset: int) -> int:
        written = self.real(fd, memoryview(data)[: self.allowed], offset) if self.allowed else 0
        if self.short:
            return written
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("allowed", [0, 1, 60, 68])
@pytest.mark.parametrize("short", [True, False])
def test_a_failed_or_short_write_leaves_nothing(make, monkeypatch, allowed, short):
    log = make()
    log.append(idempotent(0), now_ms=NOW)
    before = stored(log)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", Disk(allowed, short=short))
        with pytest.raises(errors.StorageError, match="append failed"):
            log.append(idempotent(1), now_ms=NOW)
    assert stored(log) == before
    assert not log.append(idempotent(1), now_ms=NOW).duplicate, "the failed one has not been noted"
    log.release()
    assert make(clean=False).log_end_offset == 2


def test_a_tail_that_cannot_be_cut_off_blocks_appends_until_it_can(make, monkeypatch):
    log = make()
    log.append(plain(), now_ms=NOW)
    before = stored(log)
    real = os.ftruncate

    def refuse(fd: int, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", Disk(40, short=True))
        patched.setattr(os, "ftruncate", refuse)
        with pytest.raises(errors.StorageError, match="cutting the rest off failed as well"):
            log.append(plain(value=b"long" * 50), now_ms=NOW)
        patched.setattr(os, "pwrite", os.pwrite)
        with pytest.raises(errors.StorageError):
            log.append(plain(), now_ms=NOW)
        assert len(stored(log)) == len(before) + 40
        patched.setattr(os, "ftruncate", real)
    log.append(plain(), now_ms=NOW)
    assert len(stored(log)) == 2 * len(before)


def test_a_roll_that_failed_half_way_is_repeated(make, monkeypatch):
    log = make(segment_bytes=150)
    for _ in range(2):
        log.append(plain(), now_ms=NOW)
    real = os.ftruncate

    def refuse(fd: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", refuse)  # of the new segment's indexes
        with pytest.raises(errors.StorageError):
            log.append(plain(), now_ms=NOW)
        assert log.segment_base_offsets == [0]
        patched.setattr(os, "ftruncate", real)
    assert log.append(plain(), now_ms=NOW).first_offset == 2
    assert log.segment_base_offsets == [0, 2]


def test_an_epoch_that_could_not_be_written_is_tried_again(make, monkeypatch):
    log = make()
    log.leader_epoch = 1

    def refuse(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(LeaderEpochCache, "write", refuse)
        with pytest.raises(errors.StorageError):
            log.append(plain(), now_ms=NOW)
    assert (log.log_end_offset, log.epochs.entries) == (0, [])
    log.append(plain(), now_ms=NOW)
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"


def test_after_a_failed_fsync_nothing_is_taken_for_durable(make, monkeypatch, caplog):
    """On Linux the next fsync succeeds though the pages are gone."""
    log = make()
    log.append(plain(), now_ms=NOW)

    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(errors.StorageError, match="flush failed"):
            log.flush()
    assert "check the disk" in caplog.text
    for call in (log.flush, lambda: log.append(plain(), now_ms=NOW), log.close):
        with pytest.raises(errors.StorageError, match="an earlier flush failed"):
            call()
    assert (log.recovery_point, log.log_end_offset) == (0, 1)
    assert not log.wants_flush(NOW + 10**15)
    assert log.read(0, 1000, up_to=1) is not None, "what is in the cache can still be read"
    log.release()
    again = make(clean=False)
    again.append(plain(), now_ms=NOW)
    again.flush()
    assert again.recovery_point == 2


def test_a_flush_that_could_not_begin_may_be_tried_again(make, monkeypatch):
    log = make()
    log.append(plain(), now_ms=NOW)

    def refuse(*_) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(stored_log, "files_to_flush", refuse)
        with pytest.raises(errors.StorageError, match="flush failed"):
            log.flush()
    log.flush()
    assert log.recovery_point == 1


def test_a_closed_log_takes_nothing(make):
    log = make()
    log.close()
    with pytest.raises(errors.StorageError, match="closed"):
        log.append(plain(), now_ms=NOW)


# Idempotence (the sequences themselves: test_log_model and test_log_producer_state)


def test_several_batches_of_one_producer_in_one_append(make):
    log = make()
    log.append(idempotent(0) + idempotent(1, 2), now_ms=NOW)
    with pytest.raises(errors.OutOfOrderSequence):
        log.append(idempotent(3) + idempotent(5), now_ms=NOW)
    assert log.log_end_offset == 3
    assert log.append(idempotent(3), now_ms=NOW).first_offset == 3


def test_several_batches_are_repeated_as_a_whole_or_refused(make):
    log = make()
    both = bytes(idempotent(0, 2) + idempotent(2, 3))
    log.append(plain(), now_ms=NOW)
    log.append(bytearray(both), now_ms=NOW)
    assert log.append(bytearray(both), now_ms=NOW) == (1, 5, -1, 0, True)
    for rest in (idempotent(5), plain()):
        with pytest.raises(errors.InvalidRecordBatch, match="1 of 2 batches"):
            log.append(idempotent(2, 3) + rest, now_ms=NOW)
    with pytest.raises(errors.InvalidRecordBatch):
        log.append(idempotent(5) + idempotent(5), now_ms=NOW)
    assert log.log_end_offset == 6
    assert log.append(idempotent(5), now_ms=NOW).first_offset == 6


def test_a_duplicate_is_known_after_a_restart(make):
    log = make()
    log.append(idempotent(0, 3), now_ms=NOW)
    log.close()
    log = make()
    info = log.append(idempotent(0, 3), now_ms=NOW)
    assert info == (0, 2, -1, 0, True)


# Transactions


def test_the_last_stable_offset_waits_for_open_transactions(make):
    log = make()
    log.append(plain(), now_ms=NOW)
    log.append(idempotent(0, 2, is_transactional=True), now_ms=NOW)
    log.append(idempotent(0, producer=8, is_transactional=True), now_ms=NOW)
    assert (log.last_stable_offset, log.high_watermark) == (1, 4)
    log.append(marker(committed=False), now_ms=NOW, origin="coordinator")
    assert log.last_stable_offset == 3
    log.append(marker_for(8, 0), now_ms=NOW, origin="coordinator")
    assert log.last_stable_offset == log.high_watermark == 6
    assert log.aborted_transactions(0, 6) == [(7, 1, 4, 3)]
    assert log.aborted_transactions(5, 6) == log.aborted_transactions(0, 1) == []


def test_markers_of_replaced_producers_and_coordinators_are_fenced(make):
    log = make()
    log.append(idempotent(0, is_transactional=True, epoch=1), now_ms=NOW)
    with pytest.raises(errors.InvalidProducerEpoch):
        log.append(marker(committed=True, epoch=0), now_ms=NOW, origin="coordinator")
    log.append(marker(committed=True, epoch=1, coordinator_epoch=5), now_ms=NOW, origin="coordinator")
    with pytest.raises(errors.TransactionCoordinatorFenced):
        log.append(marker(committed=True, epoch=1, coordinator_epoch=4), now_ms=NOW, origin="coordinator")


# High watermark and log start


def test_a_log_with_other_replicas_waits_for_its_high_watermark(make):
    log = make()
    log.sole_replica = False
    log.append(plain(3), now_ms=NOW)
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (0, 0, 3)
    log.advance_high_watermark(2)
    log.advance_high_watermark(1)
    assert log.high_watermark == 2
    log.advance_high_watermark(99)
    assert log.high_watermark == 3


def test_the_log_start_offset_stays_below_the_high_watermark(make):
    log = make()
    log.append(plain(), now_ms=NOW)
    with pytest.raises(errors.OffsetOutOfRange, match="high watermark 1"):
        log.advance_log_start_offset(2)


# Rolling


def test_rolling_by_time_follows_the_records_timestamps(make):
    log = make(segment_ms=100)
    for timestamp in (NOW, NOW + 100, NOW + 101):
        log.append(plain(timestamp=timestamp), now_ms=NOW)
    assert log.segment_base_offsets == [0, 2]


def test_rolling_when_the_index_is_full(make):
    log = make(segment_index_bytes=40, index_interval_bytes=0)
    for _ in range(20):
        log.append(plain(), now_ms=NOW)
    assert log.segment_base_offsets == [0, 6, 12, 18]
    for path in log.directory.glob("*index"):
        assert path.stat().st_size <= 40


def test_jitter_rolls_earlier_and_differs_between_partitions(make, tmp_path):
    starts = set()
    for partition in range(8):
        config = LogConfig(segment_ms=1000, segment_jitter_ms=900)
        log = PartitionLog.open(tmp_path / f"x-{partition}", "x", partition, config, clean=True, now_ms=NOW)
        age = 0
        while len(log.segment_base_offsets) == 1:
            log.append(plain(timestamp=NOW + age), now_ms=NOW)
            age += 50
        starts.add(age)
        assert age <= 1150
        log.release()
    assert len(starts) > 3


def test_flush_messages_and_flush_ms(make):
    log = make(flush_messages=2)
    log.append(plain(), now_ms=NOW)
    assert log.recovery_point == 0
    assert log.high_watermark == 1, "one that is lost is one fewer than flush.messages"
    log.append(plain(), now_ms=NOW)
    assert (log.high_watermark, log.log_end_offset, log.wants_flush(NOW)) == (1, 2, True)
    job = log.begin_commit(NOW)
    log.append(plain(), now_ms=NOW)
    job.run()
    log.end_flush(job)
    assert (log.recovery_point, log.high_watermark) == (2, 3)
    log.flush(NOW)
    log.config = LogConfig(flush_ms=100)
    log.append(plain(), now_ms=NOW + 99)
    assert not log.wants_flush(NOW + 99)
    assert log.wants_flush(NOW + 200)


def test_a_finished_segment_asks_for_a_flush_that_may_run_in_a_thread(make):
    log = make()
    log.append(plain(), now_ms=NOW)
    assert not log.wants_flush(NOW)
    log.roll(NOW)
    assert log.wants_flush(NOW)
    job = log.begin_flush(NOW)
    log.append(plain(2), now_ms=NOW)
    job.run()
    log.end_flush(job)
    assert (log.recovery_point, log.log_end_offset) == (1, 3)
    job = log.begin_flush(NOW)
    log.truncate_to(1, now_ms=NOW)
    log.append(plain(9), now_ms=NOW)
    job.run()
    log.end_flush(job)
    assert log.recovery_point == 1, "what was truncated meanwhile says nothing of what came after"


# Reading


def test_a_slice_outlives_its_segment(make):
    log = make(retention_bytes=0, file_delete_delay_ms=0)
    log.append(plain(value=b"precious"), now_ms=NOW)
    log.roll(NOW)
    piece = log.read(0, 1000, up_to=1)
    assert log.delete_old_segments(NOW) == 1
    log.remove_deleted(NOW)
    assert not list(log.directory.glob("*.deleted"))
    assert b"precious" in os.pread(piece.fd, piece.size, piece.position)


def test_timestamps_of_an_empty_log(make):
    log = make()
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() is None
    log.append(plain(timestamp=-1), now_ms=NOW)
    assert log.max_timestamp_offset() is None


def test_max_timestamp_is_the_first_of_the_largest(make):
    log = make(segment_bytes=150)
    for timestamp in (5, 9, 9, 3):
        log.append(plain(timestamp=timestamp), now_ms=NOW)
    assert log.max_timestamp_offset() == (9, 1, 0)
    assert log.offset_for_timestamp(6) == (9, 1, 0)
    log.close()
    log = make(segment_bytes=150)
    assert log.max_timestamp_offset() == (9, 1, 0)


def test_the_largest_timestamp_after_a_start_comes_from_one_entry_of_the_index(make, monkeypatch):
    """Batches behind it may be a million: their timestamps need not rise."""
    for segment_bytes in (10**6, 20_000):  # an active segment, and finished ones
        log = make(segment_bytes=segment_bytes, index_interval_bytes=100)
        for timestamp in (NOW, *range(NOW - 500, NOW)):
            log.append(plain(timestamp=timestamp), now_ms=NOW)
        log.close()
    log = make(segment_bytes=20_000, index_interval_bytes=100)
    read, real = [], os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: read.append(size) or real(fd, size, at))
    timestamps = [segment.largest_timestamp for segment in log.segments]
    assert len(timestamps) > 2
    assert (timestamps[0], timestamps[-1]) == (NOW, NOW - 1)
    assert read == [12] * len(timestamps)


def test_producers_expire_unless_their_transaction_is_open(make):
    log = make(producer_id_expiration_ms=100)
    log.append(idempotent(0, producer=1), now_ms=NOW)
    log.append(idempotent(0, producer=2, is_transactional=True), now_ms=NOW)
    assert log.expire_producers(NOW + 99) == 0
    assert log.expire_producers(NOW + 100) == 1
    assert set(log.producers.entries) == {2}
    assert log.append(idempotent(41, producer=1), now_ms=NOW).last_offset == 2, (
        "as in Kafka: nothing to compare with"
    )


def test_every_timestamp_is_found_through_a_dense_index(make):
    log = make(index_interval_bytes=0, segment_bytes=1000)
    for n in range(60):
        log.append(plain(timestamp=NOW + 3 * n), now_ms=NOW)
    for n in range(60):
        for timestamp in (NOW + 3 * n - 2, NOW + 3 * n):
            assert log.offset_for_timestamp(timestamp) == (NOW + 3 * n, n, 0)
    assert log.offset_for_timestamp(NOW + 178) is None


def test_a_read_after_truncation_does_not_go_where_the_last_one_ended(make):
    log = make()
    for _ in range(4):
        log.append(plain(value=b"long" * 50), now_ms=NOW)
    piece = log.read(0, 10_000, up_to=3)
    assert piece.size > 600
    log.truncate_to(1, now_ms=NOW)
    for _ in range(9):
        log.append(plain(), now_ms=NOW)
    for offset in (3, *range(10)):
        piece = log.read(offset, 1, up_to=10)
        assert read_header(os.pread(piece.fd, piece.size, piece.position)).base_offset == offset
