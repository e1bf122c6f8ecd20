"""Logs of mirror topics: batches of another cluster's log, crashes, promotion."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_broker.log import errors, mirror_topic
from klamm_broker.log.config import LogConfig
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.mirror_topic import EPOCH, MIRROR, PROMOTED, SOURCE, STATE, why_not
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.segment import Segment
from klamm_broker.server import mirror_topics
from klamm_kafka.wire.batch import (
    HEADER_BYTES,
    Record,
    encode_batch,
    encode_end_txn_marker,
    iter_headers,
    patch,
    read_header,
)

NOW = 1_800_000_000_000


def copied(offset: int, count: int = 1, *, epoch: int = 0, last: int | None = None, **more) -> bytearray:
    """Returns a batch as another log has it; `last` leaves holes behind its records."""
    records = [Record(offset + i, NOW - 5 + i, b"k", b"%d" % (offset + i)) for i in range(count)]
    return encode_batch(
        records, base_offset=offset, leader_epoch=epoch, keep_offsets=True, last_offset=last, **more
    )


def of_producer(offset: int, sequence: int, count: int = 1, *, producer: int = 3, **more) -> bytearray:
    return copied(offset, count, producer_id=producer, producer_epoch=0, base_sequence=sequence, **more)


def stored(log: PartitionLog) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(log.directory.glob("*.log")))


def full(*_: object, **__: object) -> None:
    raise errors.StorageError("append failed: no space left on device")


@pytest.fixture
def start(tmp_path: Path):
    """Starts managers with the mirror topic `t`, as after kill -9 of the one before."""
    running: list[LogManager] = []

    def begin() -> LogManager:
        if running:
            running[-1].release()
        manager = LogManager(tmp_path / "data", now_ms=NOW)
        if "t" not in manager.topics:
            manager.create_topic("t", 1, {STATE: MIRROR}, now_ms=NOW)
        running.append(manager)
        return manager

    yield begin
    running[-1].release()


def log_of(manager: LogManager) -> PartitionLog:
    found = manager.get("t", 0)
    assert found is not None
    return found


def promoted(manager: LogManager) -> PartitionLog:
    [log] = manager.promote("t", {STATE: PROMOTED})
    log.end_promotion(partial(log.append, now_ms=NOW, origin="coordinator"), NOW)
    return log


def test_batches_are_kept_with_holes_and_epochs_over_a_crash(start):
    sent = copied(5, 3, epoch=4) + copied(20, 2, epoch=4, last=30) + copied(31, epoch=9)
    log = log_of(start())
    assert log.append_copied(sent, now_ms=NOW)[:2] == (5, 31)
    assert (log.log_end_offset, log.high_watermark, log.leader_epoch) == (32, 32, 9)
    assert log.end_offset_for_epoch(4) == (4, 31)
    log = log_of(start())
    assert stored(log) == sent
    assert (log.log_end_offset, log.leader_epoch) == (32, 9)
    assert log.end_offset_for_epoch(4) == (4, 31)
    log.append_copied(copied(40, epoch=9), now_ms=NOW)
    assert log_of(start()).log_end_offset == 41


def test_what_is_there_is_acknowledged_again_and_what_differs_is_refused(start):
    log = log_of(start())
    first, second = copied(0, 3), copied(3, 2)
    log.append_copied(first, now_ms=NOW)
    assert log.append_copied(first, now_ms=NOW).duplicate
    assert not log.append_copied(first + second, now_ms=NOW).duplicate
    assert stored(log) == first + second
    for other in (
        copied(0, 2),
        copied(0, 3, epoch=1),
        copied(1, 2),
        copied(4, 3),
        copied(5, 1) + copied(5, 1),
    ):
        with pytest.raises(errors.InvalidRecordBatch):
            log.append_copied(other, now_ms=NOW)
    assert stored(log) == first + second


def test_ordinary_records_and_coordinators_are_refused(start):
    log = log_of(start())
    for origin in ("client", "coordinator"):
        with pytest.raises(errors.PolicyViolation, match="read-only"):
            log.append(encode_batch([Record(timestamp=NOW, value=b"v")]), now_ms=NOW, origin=origin)
    log = promoted(start())
    log.append(encode_batch([Record(timestamp=NOW, value=b"v")]), now_ms=NOW)
    with pytest.raises(errors.PolicyViolation, match="promoted"):
        log.append_copied(copied(1), now_ms=NOW)
    ordinary = start().create_topic("ordinary", 1, now_ms=NOW)
    assert ordinary.configs == {}


def test_a_set_of_batches_may_be_larger_than_a_segment(tmp_path):
    config = LogConfig(klamm_mirror_state=MIRROR, segment_bytes=1 << 20)
    log = PartitionLog.open(tmp_path / "t-0", "t", 0, config, clean=True, now_ms=NOW)
    big = [
        encode_batch([Record(i, NOW, None, b"x" * 400_000)], base_offset=i, keep_offsets=True)
        for i in range(8)
    ]
    log.append_copied(bytearray(b"".join(big)), now_ms=NOW)
    assert log.segment_base_offsets == [0, 2, 4, 6]
    assert stored(log) == b"".join(big)
    with pytest.raises(errors.RecordBatchTooLarge):
        log.append_copied(
            encode_batch([Record(8, NOW, None, b"x" * (2 << 20))], base_offset=8, keep_offsets=True),
            now_ms=NOW,
        )
    log.release()


def test_damaged_batches_change_nothing(start):
    log = log_of(start())
    batch = copied(0, 3)
    batch[-1] ^= 1
    with pytest.raises(errors.CorruptMessage):
        log.append_copied(batch, now_ms=NOW)
    with pytest.raises(errors.CorruptMessage):
        log.append_copied(copied(0)[:-1], now_ms=NOW)
    with pytest.raises(errors.InvalidRecordBatch):
        log.append_copied(bytearray(), now_ms=NOW)
    assert log.log_end_offset == 0


def test_an_empty_copy_begins_anywhere_also_within_a_batch(start):
    log = log_of(start())
    log.begin_copy_at(7_000_000_000, now_ms=NOW)
    assert (log.log_start_offset, log.log_end_offset) == (7_000_000_000, 7_000_000_000)
    batch = copied(6_999_999_990, 20)
    log.append_copied(batch, now_ms=NOW)
    assert (log.log_start_offset, log.log_end_offset) == (7_000_000_000, 7_000_000_010)
    assert stored(log) == batch
    with pytest.raises(errors.OffsetOutOfRange):
        log.begin_copy_at(7_000_000_005, now_ms=NOW)


def test_a_copy_with_records_cannot_begin_beyond_its_end(start):
    log = log_of(start())
    sent = copied(0, 10)
    log.append_copied(sent, now_ms=NOW)
    with pytest.raises(errors.OffsetOutOfRange, match="holds offsets 0 to 10 cannot begin at 5000"):
        log.begin_copy_at(5000, now_ms=NOW)
    assert not log.append_copied(copied(10, 10), now_ms=NOW).duplicate
    assert stored(log) == sent + copied(10, 10)
    assert not log.append_copied(copied(6000), now_ms=NOW).duplicate
    log.advance_log_start_offset(5000)
    assert (log.log_start_offset, log.log_end_offset) == (5000, 6001)


@pytest.mark.parametrize("ending", ["crash", "close", None])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("first", [0, 3_000_000_000])
def test_a_hole_may_be_larger_than_a_segment_can_span(start, first, together, ending):
    offsets = [first, first + 2, first + 5_000_000_000, first + 2**31 + 5_000_000_000]
    sent = [of_producer(offset, number) for number, offset in enumerate(offsets)]
    manager = start()
    log = log_of(manager)
    for batches in [bytearray(b"".join(sent))] if together else sent:
        assert not log.append_copied(batches, now_ms=NOW).duplicate
    if ending is not None:
        if ending == "close":
            manager.close()
        log = log_of(start())
    assert stored(log) == b"".join(sent)
    assert log.segment_base_offsets == ([0] if first else []) + [offsets[0], *offsets[2:]]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, *[offsets[-1] + 1] * 2)
    assert log.producers.entries[3].batches[-1].last_offset == offsets[-1]
    asked = 0
    for offset in offsets:  # as a reader goes on, over the holes
        piece = log.read(asked, HEADER_BYTES, up_to=log.log_end_offset)
        assert read_header(os.pread(piece.fd, HEADER_BYTES, piece.position)).base_offset == offset
        asked = offset + 1
    assert log.append_copied(sent[2], now_ms=NOW).duplicate
    log.advance_log_start_offset(offsets[2])
    log.delete_old_segments(NOW)
    assert log.segment_base_offsets == offsets[2:]


def test_a_hole_that_a_full_disk_has_stopped_at_is_gone_over_later(start, monkeypatch):
    log = log_of(start())
    sent = copied(0), copied(3_000_000_000)
    log.append_copied(sent[0], now_ms=NOW)
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "_write", full)
        with pytest.raises(errors.StorageError):
            log.append_copied(sent[1], now_ms=NOW)
    assert log.read(1, HEADER_BYTES, up_to=log.high_watermark) is None
    assert not log.append_copied(sent[1], now_ms=NOW).duplicate
    assert (log.log_end_offset, stored(log)) == (3_000_000_001, b"".join(sent))


def test_the_leader_epoch_of_a_promoted_log_is_above_all_and_never_falls(start):
    log_of(start()).append_copied(copied(0, epoch=50), now_ms=NOW)
    manager = start()
    assert promoted(manager).leader_epoch == 51
    assert log_of(start()).leader_epoch == 52
    log = log_of(start())
    log.append(encode_batch([Record(timestamp=NOW, value=b"v")]), now_ms=NOW)
    assert log.epochs.latest == 53
    assert log.end_offset_for_epoch(50) == (50, 1)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("emptied", ["records deleted", "retention", "begun beyond"])
def test_the_leader_epoch_of_an_emptied_copy_never_falls(start, emptied, clean):
    manager = start()
    log = log_of(manager)
    log.append_copied(copied(0, 3, epoch=4) + copied(3, 2, epoch=17), now_ms=NOW)
    log.advance_log_start_offset(5)
    if emptied == "retention":
        log.roll(NOW)
        assert log.delete_old_segments(NOW) == 1
    if emptied == "begun beyond":
        log.begin_copy_at(40, now_ms=NOW)
    end = log.log_end_offset
    manager.tick_checkpoints()
    if clean:
        manager.close()
    manager = start()
    log = log_of(manager)
    assert (log.log_start_offset, log.log_end_offset, log.leader_epoch) == (end, end, 17)
    assert log.end_offset_for_epoch(17) == (17, end)
    log.append_copied(copied(end, epoch=18), now_ms=NOW)
    assert log.epochs.entries == [(18, end)]
    assert promoted(manager).leader_epoch == 19


@pytest.mark.parametrize("crash", [False, True])
def test_a_producer_of_ours_is_not_taken_for_one_of_the_other_cluster(start, crash):
    manager = start()
    log = log_of(manager)
    log.append_copied(of_producer(0, 0, 2) + of_producer(2, 2, 2), now_ms=NOW)
    promoted(manager)
    log = log_of(start() if crash else manager)
    ours = encode_batch(
        [Record(timestamp=NOW, value=b"ours")] * 2, producer_id=3, producer_epoch=0, base_sequence=0
    )
    assert not log.append(bytearray(ours), now_ms=NOW, transaction_version=0).duplicate
    assert log.log_end_offset == 6
    again = log_of(start()).append(bytearray(ours), now_ms=NOW, transaction_version=0)
    assert (again.duplicate, again.first_offset) == (True, 4)


@pytest.mark.parametrize("crash", [False, True])
def test_transactions_without_an_end_are_aborted(start, crash):
    manager = start()
    log = log_of(manager)
    transactional = {"is_transactional": True}
    log.append_copied(of_producer(0, 0, 2, producer=8, **transactional), now_ms=NOW)
    ended = encode_end_txn_marker(
        committed=True, producer_id=8, producer_epoch=0, coordinator_epoch=2, timestamp=NOW, base_offset=2
    )
    patch(ended, 0, base_offset=2, leader_epoch=0)
    log.append_copied(ended, now_ms=NOW)
    log.append_copied(of_producer(3, 2, 2, producer=8, **transactional), now_ms=NOW)
    log.append_copied(of_producer(5, 0, 1, producer=9, **transactional), now_ms=NOW)
    assert log.last_stable_offset == 3
    if crash:  # between the write of the registry and the markers
        manager.promote("t", {STATE: PROMOTED})
        log = log_of(start())
    else:
        log = promoted(manager)
    assert log.last_stable_offset == log.log_end_offset == 8
    assert {(t.producer_id, t.first_offset) for t in log.aborted_transactions(0, 8)} == {(8, 3), (9, 5)}
    assert log_of(start()).log_end_offset == 8, "a later start adds no markers"


def test_a_promotion_on_a_full_disk_still_forgets_the_producers_of_every_partition(start, caplog):
    manager = start()
    manager.create_topic("two", 2, {STATE: MIRROR}, now_ms=NOW)
    logs = [manager.get("two", partition) for partition in (0, 1)]
    for log in logs:
        sent = of_producer(0, 0, 2) + of_producer(2, 0, 1, producer=8, is_transactional=True)
        log.append_copied(sent, now_ms=NOW)

    partitions = [SimpleNamespace(log=log) for log in logs]
    storage = SimpleNamespace(logs=manager, now_ms=lambda: NOW, append=full)
    mirror_topics.promote(storage, SimpleNamespace(name="two", partitions=partitions), {STATE: PROMOTED})
    assert caplog.text.count("stay open until the next start") == 2
    ours = encode_batch(
        [Record(timestamp=NOW, value=b"ours")] * 2, producer_id=3, producer_epoch=0, base_sequence=0
    )
    for log in logs:
        assert not log.append(bytearray(ours), now_ms=NOW).duplicate
    start()
    manager = start()
    for partition in (0, 1):
        log = manager.get("two", partition)
        assert log.last_stable_offset == log.log_end_offset == 6


def test_a_topic_is_a_mirror_from_its_creation_on_and_promoted_for_ever():
    mirror = {STATE: MIRROR, SOURCE: "id A"}
    ended = {STATE: PROMOTED, SOURCE: "id A", EPOCH: "5"}
    asked = mirror | {STATE: PROMOTED}
    assert why_not(None, {}) is why_not(None, mirror) is why_not(None, {STATE: MIRROR}) is None
    assert why_not(mirror, asked) is why_not({}, {"retention.ms": "1"}) is None
    assert (
        why_not(mirror, mirror | {"retention.ms": "1"})
        is why_not(ended, ended | {"retention.ms": "1"})
        is None
    )
    for before, after in [
        (None, asked), ({}, mirror), ({}, asked), ({}, {STATE: MIRROR}), (mirror, {}), (ended, {}), (ended, mirror),
        (None, {SOURCE: "id A"}), (None, mirror | {EPOCH: "5"}), (mirror, ended), (mirror, mirror | {SOURCE: "other"}),
        (ended, ended | {EPOCH: "6"}), ({}, {EPOCH: "5"}),
    ]:  # fmt: skip
        assert why_not(before, after), (before, after)


def test_the_promotion_shows_its_epoch(start):
    log_of(start()).append_copied(copied(0, epoch=7), now_ms=NOW)
    manager = start()
    promoted(manager)
    assert manager.topics["t"].configs == {STATE: PROMOTED, EPOCH: "8"}
    assert start().topics["t"].promotion_epoch == 8


class Source:
    """Batches of another log, drawn by hypothesis: with holes, empty ones, producers, growing epochs."""

    def __init__(self, data: st.DataObject) -> None:
        self.end = data.draw(st.integers(0, 50))
        self.epoch = 0

    def batches(self, data: st.DataObject) -> bytearray:
        found = bytearray()
        for _ in range(data.draw(st.integers(1, 3))):
            self.end += data.draw(st.sampled_from([0, 0, 1, 100]))
            self.epoch += data.draw(st.sampled_from([0, 0, 1]))
            count, hole = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([0, 0, 3]))
            last = self.end + count - 1 + hole
            producer = data.draw(st.sampled_from([-1, 3]))
            found += copied(
                self.end, count, epoch=self.epoch, last=last, producer_id=producer,
                producer_epoch=-1 if producer < 0 else 0, base_sequence=-1 if producer < 0 else self.end,
            )  # fmt: skip
            self.end = last + 1
        return found


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_copy_has_the_bytes_of_its_source_over_crashes_and_repetitions(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("log")
    config = LogConfig(klamm_mirror_state=MIRROR, segment_bytes=1 << 20, index_interval_bytes=64)
    source, sent, log = Source(data), bytearray(), None
    for _ in range(data.draw(st.integers(1, 6))):
        if log is None or data.draw(st.booleans()):
            if log is not None:
                log.release()
            log = PartitionLog.open(path, "t", 0, config, clean=log is None, now_ms=NOW)
        batches = source.batches(data)
        sent += batches
        assert not log.append_copied(batches, now_ms=NOW).duplicate
        if data.draw(st.booleans()):
            assert log.append_copied(bytearray(batches), now_ms=NOW).duplicate
        if data.draw(st.booleans()):
            log.roll(NOW)
    assert log is not None
    assert stored(log) == bytes(sent)
    assert log.log_end_offset == source.end
    headers = [header for _, header in iter_headers(sent)]
    assert log.leader_epoch == headers[-1].leader_epoch
    for header in headers:
        piece = log.read(header.base_offset, HEADER_BYTES, up_to=log.log_end_offset)
        assert mirror_topic.written_before(piece, header)
    log.release()
