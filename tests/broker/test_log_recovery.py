"""Recovery: from every truncation point and from any damaged byte, what is left is a prefix of what was appended."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm_broker.log import producer_snapshot, recovery
from klamm_broker.log.config import LogConfig
from klamm_broker.log.partition_log import PartitionLog
from klamm_kafka.wire.batch import Record, decode_records, encode_batch, encode_end_txn_marker, iter_headers
from klamm_kafka.wire.compression import Compression

NOW = 1_800_000_000_000
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=150, retention_ms=-1)
ONE_SEGMENT = LogConfig(index_interval_bytes=150, retention_ms=-1)


def fill(log: PartitionLog, count: int = 14) -> None:
    """Writes a small log with several producers, codecs, and transactions."""
    for i in range(count):
        producer = i % 3
        if producer == 2:
            batch = encode_batch(
                [Record(timestamp=NOW - 100 + i, value=b"v" * (i * 7))], compression=Compression(i % 5)
            )
        else:
            batch = encode_batch(
                [Record(timestamp=NOW - i, key=b"k", value=b"%d" % i * 5) for _ in range(2)],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=i // 3 * 2,
                is_transactional=producer == 1,
            )
        log.append(batch, now_ms=NOW)
        if i % 6 == 4:
            marker = encode_end_txn_marker(
                committed=i % 4 == 0, producer_id=1, producer_epoch=0, coordinator_epoch=3, timestamp=NOW
            )
            log.append(marker, now_ms=NOW, origin="coordinator")


def open_log(
    directory: Path, config: LogConfig = ONE_SEGMENT, *, clean: bool = False, **rest
) -> PartitionLog:
    return PartitionLog.open(directory, "t", 0, config, clean=clean, now_ms=NOW, **rest)


def contents(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def state(log: PartitionLog) -> tuple:
    """Returns everything that recovery rebuilds."""
    return (
        log.log_end_offset,
        log.last_stable_offset,
        log.producers.entries,
        log.aborted_transactions(0, 10**9),
        [(s.index.last, s.time_index.last, len(s.index)) for s in log._segments],
        log.epochs.entries,
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Returns a killed log: (its directory, the bytes of its one segment, where its batches end)."""
    directory = tmp_path_factory.mktemp("written") / "t-0"
    log = open_log(directory, clean=True)
    fill(log, 8)
    log.release()
    data = contents(directory)
    ends = [0, *(pos + header.size for pos, header in iter_headers(data))]
    return directory, data, ends


def test_every_truncation_point(written, memory_path):
    _, data, ends = written
    for size in range(len(data) + 1):
        directory = memory_path / "t-0"
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(data[:size])
        log = open_log(directory)
        kept = max(end for end in ends if end <= size)
        assert contents(directory) == data[:kept]
        last = [header.next_offset for _, header in iter_headers(data[:kept])]
        assert log.log_end_offset == (last[-1] if last else 0)
        log.release()
        shutil.rmtree(directory)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damaged_byte_cuts_the_log_before_its_batch(written, memory_path, data):
    _, original, ends = written
    at = data.draw(st.integers(0, len(original) - 1), label="position")
    flip = data.draw(st.integers(1, 255), label="flip")
    damaged = bytearray(original)
    damaged[at] ^= flip
    directory = Path(tempfile.mkdtemp(dir=memory_path))
    (directory / f"{0:020d}.log").write_bytes(damaged)
    log = open_log(directory)
    kept = max(end for end in ends if end <= at)
    assert contents(directory) == original[:kept], (
        "neither a damaged batch is kept nor an intact one before it lost"
    )
    log.append(encode_batch([Record(timestamp=NOW, value=b"new")]), now_ms=NOW)
    log.release()
    shutil.rmtree(directory)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_in_any_segment_deletes_what_is_behind_it(memory_path, data):
    directory = Path(tempfile.mkdtemp(dir=memory_path))
    log = open_log(directory, CONFIG, clean=True)
    fill(log)
    log.release()
    original = contents(directory)
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 2
    ends = [0, *(pos + header.size for pos, header in iter_headers(original))]
    number = data.draw(st.integers(0, len(logs) - 1))
    heads = [position for position, _ in iter_headers(logs[number].read_bytes())]
    in_last_offset = st.integers(heads[-1], heads[-1] + 15)  # bytes that no checksum covers
    at = data.draw(in_last_offset | st.integers(0, logs[number].stat().st_size - 1))
    damaged = bytearray(logs[number].read_bytes())
    damaged[at] ^= data.draw(st.integers(1, 255))
    logs[number].write_bytes(damaged)
    log = open_log(directory, CONFIG)
    before = sum(path.stat().st_size for path in logs[:number])
    kept = max(end for end in ends if end <= before + at)
    assert contents(directory) == original[:kept]
    log.release()
    shutil.rmtree(directory)


def test_recovery_gives_the_state_that_was_there(tmp_path):
    log = open_log(tmp_path, CONFIG, clean=True)
    fill(log)
    for segment in log._segments:
        segment.note_max_timestamp()
    before = state(log)
    log.release()
    for path in [
        *tmp_path.glob("*index"),
        *tmp_path.glob("*.snapshot"),
        tmp_path / "leader-epoch-checkpoint",
    ]:
        path.unlink()
    log = open_log(tmp_path, CONFIG)
    assert state(log) == before
    log.release()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("damage", ["missing", "torn", "zeros", "noise"])
def test_lost_and_damaged_helper_files_are_rebuilt(tmp_path, suffix, damage, clean):
    log = open_log(tmp_path, CONFIG, clean=True)
    fill(log)
    log.close()
    log = open_log(tmp_path, CONFIG, clean=True, recovery_point=log.log_end_offset)
    before = state(log)
    log.release()
    path = max(tmp_path.glob(f"*{suffix}"))
    match damage:
        case "missing":
            path.unlink()
        case "torn":
            path.write_bytes(path.read_bytes()[:-5])
        case "zeros":
            path.write_bytes(path.read_bytes() + bytes(240))
        case "noise":
            path.write_bytes(b"\xfe" * path.stat().st_size)
    log = open_log(tmp_path, CONFIG, clean=clean, recovery_point=before[0])
    after = state(log)
    assert len(log.producers.entries) == len(before[2])
    for entry in log.producers.entries.values():
        assert entry.batches[-1] == before[2][entry.producer_id].batches[-1]
    assert after[:2] + after[3:] == before[:2] + before[3:]
    assert [r.offset for _, r in every_record(log)] == list(range(log.log_end_offset))
    log.release()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "torn"])
def test_indexes_of_finished_segments_are_rebuilt_too(tmp_path, suffix, damage, clean):
    log = open_log(tmp_path, CONFIG, clean=True)
    fill(log)
    log.close()
    before = {p.name: p.read_bytes() for p in tmp_path.glob("*index")}
    path = min(p for p in tmp_path.glob(f"*{suffix}") if p.stat().st_size)
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-5])
    log = open_log(tmp_path, CONFIG, clean=clean, recovery_point=log.log_end_offset)
    assert len(list(every_record(log))) == log.log_end_offset
    log.close()
    assert {p.name: p.read_bytes() for p in tmp_path.glob("*index")} == before


def test_a_time_index_whose_end_was_lost_with_the_power_is_rebuilt(tmp_path):
    """Later starts believe its last entry, without a look at the batches behind it."""
    log = open_log(tmp_path, CONFIG, clean=True)
    fill(log)
    log.close()
    largest = [segment.largest_timestamp for segment in log.segments]
    path = min(p for p in tmp_path.glob("*.timeindex") if p.stat().st_size)
    before = path.read_bytes()
    path.write_bytes(before[:-12])
    log = open_log(tmp_path, CONFIG, recovery_point=log.log_end_offset)
    assert [segment.largest_timestamp for segment in log.segments] == largest
    assert path.read_bytes() == before
    log.release()


def every_record(log: PartitionLog):
    offset = log.log_start_offset
    while piece := log.read(offset, 1, up_to=log.log_end_offset):
        data = os.pread(piece.fd, piece.size, piece.position)
        for position, header in iter_headers(data):
            offset = header.next_offset
            for record in decode_records(data, position):
                yield header, record


def test_recovery_starts_at_the_recovery_point(tmp_path):
    """Recovery does not read flushed records again: the reader's checksum finds damage there, as in Kafka."""
    log = open_log(tmp_path, CONFIG, clean=True)
    fill(log)
    log.flush()
    end = log.log_end_offset
    log.release()
    first = min(tmp_path.glob("*.log"))
    damaged = bytearray(first.read_bytes())
    damaged[70] ^= 1
    first.write_bytes(damaged)
    log = open_log(tmp_path, CONFIG, recovery_point=end)
    assert log.log_end_offset == end
    log.release()


def test_a_batch_from_a_leader_that_never_was_is_damage(tmp_path):
    log = open_log(tmp_path, clean=True)
    fill(log, 3)
    log.release()
    path = tmp_path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    last = list(iter_headers(bytes(data)))[-1][0]
    data[last + 15] = 7  # leader epoch 7
    path.write_bytes(data)
    log = open_log(tmp_path)
    assert contents(tmp_path) == bytes(data[:last])
    log.release()


def test_leftovers_of_interrupted_deletions_and_cleanings(tmp_path):
    log = open_log(tmp_path, CONFIG, clean=True)
    fill(log)
    log.close()
    whole = contents(tmp_path)
    bases = log.segment_base_offsets
    names = {path.name for path in tmp_path.iterdir()}
    (tmp_path / f"{0:020d}.log.deleted").write_bytes(b"old")
    (tmp_path / f"{7:020d}.index").write_bytes(b"")
    (tmp_path / f"{bases[1]:020d}.log.cleaned").write_bytes(b"half cleaned")
    (tmp_path / f"{bases[1]:020d}.log.swap").write_bytes(b"must not replace anything")
    (tmp_path / f"{bases[1] - 1:020d}.snapshot").write_bytes(producer_snapshot.encode([]))
    log = open_log(tmp_path, CONFIG, clean=True)
    assert {path.name for path in tmp_path.iterdir()} == names
    assert contents(tmp_path) == whole
    log.release()


def test_a_finished_cleaning_is_put_in_place(tmp_path):
    """A `.swap` without `.cleaned` beside it replaces every segment that it covers."""
    log = open_log(tmp_path, CONFIG, clean=True)
    fill(log)
    log.close()
    first, second, third = sorted(tmp_path.glob("*.log"))[:3]
    merged = first.read_bytes() + second.read_bytes()
    (tmp_path / (first.name + ".swap")).write_bytes(merged)
    log = open_log(tmp_path, CONFIG, clean=True)
    assert first.read_bytes() == merged
    assert not second.exists()
    assert third.exists()
    assert [r.offset for _, r in every_record(log)] == list(range(log.log_end_offset))
    log.release()


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_epoch_file_is_rebuilt_below_the_recovery_point_too(tmp_path, clean):
    log = open_log(tmp_path, CONFIG, clean=True, leader_epoch=1)
    fill(log)
    log.leader_epoch = 4
    fill(log, 2)
    log.close()
    entries = log.epochs.entries
    assert len(log.segment_base_offsets) > 3
    (tmp_path / "leader-epoch-checkpoint").unlink()
    again = open_log(tmp_path, CONFIG, clean=clean, recovery_point=log.log_end_offset, leader_epoch=4)
    assert again.epochs.entries == entries
    assert (tmp_path / "leader-epoch-checkpoint").exists()
    again.release()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["cut", "version", "offset"])
@pytest.mark.parametrize("snapshots", [True, False])
def test_a_damaged_transaction_index_is_rebuilt(tmp_path, caplog, clean, damage, snapshots):
    log = open_log(tmp_path, CONFIG, clean=True)
    fill(log, 40)
    log.close()
    aborted = log.aborted_transactions(0, 10**9)
    indexes = [path for path in sorted(tmp_path.glob("*.txnindex")) if path.stat().st_size]
    assert aborted
    originals = [path.read_bytes() for path in indexes]
    for path, data in zip(indexes, originals, strict=True):
        path.write_bytes({
            "cut": data[:-1], "version": b"\x00\x01" + data[2:], "offset": data[:18] + bytes(8) + data[26:],
        }[damage])  # fmt: skip
    if not snapshots:
        for path in tmp_path.glob("*.snapshot"):
            path.unlink()
    again = open_log(tmp_path, CONFIG, clean=clean, recovery_point=log.log_end_offset)
    assert again.aborted_transactions(0, 10**9) == aborted
    assert "rebuilding the transaction index" in caplog.text
    assert [path.read_bytes() for path in indexes] == originals
    assert again.log_end_offset == log.log_end_offset
    again.release()


def test_a_damaged_epoch_file_is_rebuilt(tmp_path):
    log = open_log(tmp_path, CONFIG, clean=True)
    fill(log)
    log.close()
    log = open_log(tmp_path, CONFIG, clean=True, leader_epoch=4)
    log.append(encode_batch([Record(timestamp=NOW, value=b"x")]), now_ms=NOW)
    before = log.epochs.entries
    assert [epoch for epoch, _ in before] == [0, 4]
    log.close()
    for broken in [b"", b"0\n2\n0 0\n", b"\xff\xff", b"0\n1\nzero zero\n", b"0\n2\n4 0\n0 5\n"]:
        (tmp_path / "leader-epoch-checkpoint").write_bytes(broken)
        log = open_log(tmp_path, CONFIG, clean=True, leader_epoch=5)
        assert log.epochs.entries == before
        log.close()


# The scan itself: gaps, as the cleaner leaves them


def cleaned(*offsets: int, epoch: int = 0) -> tuple[bytearray, list[int]]:
    """Returns a segment with one-record batches at these offsets, and where each ends."""
    data, ends = bytearray(), []
    for offset in offsets:
        data += encode_batch([Record(timestamp=NOW, value=b"v")], base_offset=offset, leader_epoch=epoch)
        ends.append(len(data))
    return data, ends


def scan(data: bytearray, *, contiguous: bool = False, **rest) -> tuple[recovery.Valid, list[int]]:
    seen: list[int] = []
    valid = recovery.scan(
        memoryview(data),
        base_offset=10,
        contiguous=contiguous,
        on_batch=lambda position, header: seen.append(header.base_offset),
        **rest,
    )
    return valid, seen


def test_gaps_are_fine_where_a_cleaner_has_been():
    data, _ = cleaned(12, 13, 20, 90)
    valid, seen = scan(data)
    assert (valid.size, valid.next_offset, valid.reason) == (len(data), 91, None)
    assert seen == [12, 13, 20, 90]


def test_gaps_are_damage_where_it_has_not():
    data, ends = cleaned(10, 11, 20)
    valid, seen = scan(data, contiguous=True)
    assert (valid.size, valid.next_offset, seen) == (ends[1], 12, [10, 11])
    assert "offset 20 where 12 is expected" in valid.reason


def test_a_gap_that_the_next_batch_contradicts_is_damage():
    data, ends = cleaned(10, 50, 12, 13)
    valid, seen = scan(data)
    assert (valid.size, valid.next_offset, seen) == (ends[0], 11, [10])


@pytest.mark.parametrize(
    ("offsets", "rest"),
    [
        ((10, 10), {}),
        ((10, 9), {}),
        ((9,), {}),
        ((10, 30), {"end_offset": 30}),
        ((10, 2**31 + 10), {}),
        ((10,), {"last_epoch": 1}),
    ],
)
def test_a_batch_that_does_not_fit_is_damage(offsets, rest):
    data, ends = cleaned(*offsets)
    valid, seen = scan(data, **rest)
    assert len(seen) == len(offsets) - 1
    assert valid.size == (ends[-2] if len(ends) > 1 else 0)
    assert valid.reason is not None
