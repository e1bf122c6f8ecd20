"""PartitionLog against a model that is a list: whatever is done to it, it holds the same batches."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import InvalidProducerEpoch, OffsetOutOfRange, OutOfOrderSequence
from klamm_broker.log.partition_log import PartitionLog
from klamm_kafka.wire.batch import Record, check_crc, decode_records, encode_batch, iter_headers

NOW = 1_800_000_000_000
CONFIG = LogConfig(
    segment_bytes=1000,
    index_interval_bytes=200,
    retention_ms=-1,
    producer_id_expiration_ms=2**62,
    file_delete_delay_ms=1000,
)


class LogMachine(RuleBasedStateMachine):
    """The model: batches as (first offset, [(timestamp, value)]), the offset where the log starts and ends."""

    @initialize()
    def start(self):
        self.directory = Path(tempfile.mkdtemp(prefix="klamm-model-"))
        self.batches: list[tuple[int, list[tuple[int, bytes]]]] = []
        self.log_start = 0
        self.end = 0
        self.now = NOW
        self.epoch = 0
        self.sequences: dict[int, int] = {}  # producer id -> next sequence
        self.epochs: dict[int, int] = {}  # producer id -> producer epoch
        self.last_request: dict[int, tuple[int, int, int]] = {}  # -> (sequence, count, first offset)
        self.log = self.open(clean=True)

    def open(self, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
        return PartitionLog.open(
            self.directory, "t", 0, CONFIG, clean=clean, recovery_point=recovery_point,
            log_start_offset=self.log_start, leader_epoch=self.epoch, now_ms=self.now,
        )  # fmt: skip

    def teardown(self):
        if hasattr(self, "log"):
            self.log.release()
            shutil.rmtree(self.directory)

    # What is done to it

    @rule(
        sizes=st.lists(st.lists(st.integers(0, 150), min_size=1, max_size=4), min_size=1, max_size=8),
        shift=st.integers(-50, 50),
        producer=st.sampled_from([-1, -1, 1, 2]),
    )
    def append(self, sizes, shift, producer):
        for batch in sizes:
            self.append_one(batch, shift, producer)

    def append_one(self, sizes, shift, producer):
        self.now += 10
        rows = [(self.now + shift + i, os.urandom(n // 2).hex().encode()) for i, n in enumerate(sizes)]
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        info = self.log.append(self.encode(rows, producer, sequence), now_ms=self.now)
        assert (info.first_offset, info.last_offset) == (self.end, self.end + len(rows) - 1)
        assert not info.duplicate
        if producer >= 0:
            self.sequences[producer] = sequence + len(rows)
            self.last_request[producer] = (sequence, len(rows), self.end)
        self.batches.append((self.end, rows))
        self.end += len(rows)

    def encode(self, rows, producer, sequence, epoch=None):
        current = self.epochs.get(producer, 0) if producer >= 0 else -1
        return encode_batch(
            [Record(timestamp=t, value=v) for t, v in rows],
            producer_id=producer,
            producer_epoch=current if epoch is None else epoch,
            base_sequence=sequence,
        )

    @precondition(lambda self: self.last_request)
    @rule(data=st.data())
    def repeat(self, data):
        producer = data.draw(st.sampled_from(sorted(self.last_request)))
        sequence, count, offset = self.last_request[producer]
        info = self.log.append(
            self.encode([(self.now, b"again")] * count, producer, sequence), now_ms=self.now
        )
        assert (info.duplicate, info.first_offset, info.last_offset) == (True, offset, offset + count - 1)

    @precondition(lambda self: self.last_request)
    @rule(data=st.data(), gap=st.integers(1, 5))
    def out_of_order(self, data, gap):
        producer = data.draw(st.sampled_from(sorted(self.last_request)))
        batch = self.encode([(self.now, b"gap")], producer, self.sequences[producer] + gap)
        with pytest.raises(OutOfOrderSequence):
            self.log.append(batch, now_ms=self.now)

    @precondition(lambda self: self.last_request)
    @rule(data=st.data())
    def new_epoch(self, data):
        """Begins a new instance of a producer at sequence 0; the old one is refused."""
        producer = data.draw(st.sampled_from(sorted(self.last_request)))
        epoch = self.epochs.get(producer, 0)
        rows = [(self.now, b"new epoch")]
        with pytest.raises(OutOfOrderSequence):
            self.log.append(self.encode(rows, producer, 1, epoch + 1), now_ms=self.now)
        self.log.append(self.encode(rows, producer, 0, epoch + 1), now_ms=self.now)
        self.epochs[producer] = epoch + 1
        self.sequences[producer] = 1
        self.last_request[producer] = (0, 1, self.end)
        self.batches.append((self.end, rows))
        self.end += 1
        with pytest.raises(InvalidProducerEpoch):
            self.log.append(self.encode(rows, producer, 7, epoch), now_ms=self.now)

    @rule()
    def flush(self):
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule()
    def roll(self):
        self.log.roll(self.now)

    @rule(data=st.data())
    def truncate(self, data):
        offset = data.draw(st.integers(self.log_start, self.end))
        self.log.truncate_to(offset, now_ms=self.now)
        whole = [b for b in self.batches if b[0] + len(b[1]) <= offset]
        if len(whole) < len(self.batches):
            self.end = min(self.batches[len(whole)][0], offset)
        self.batches = whole
        self.log_start = min(self.log_start, self.end)
        self.sequences = {p: e.last_sequence + 1 for p, e in self.log.producers.entries.items() if e.batches}
        self.epochs = {p: e.epoch for p, e in self.log.producers.entries.items()}
        self.last_request = {}

    @rule(data=st.data())
    def delete_records(self, data):
        self.log_start = data.draw(st.integers(self.log_start, self.end))
        self.log.advance_log_start_offset(self.log_start)

    @rule(limit=st.integers(0, 4000))
    def retention_by_size(self, limit):
        self.log.config = replace(CONFIG, retention_bytes=limit)
        self.log.delete_old_segments(self.now)
        self.log.config = CONFIG
        assert self.log.log_start_offset == self.log_start or self.log.size >= limit
        self.after_deletion()

    @rule(age=st.integers(0, 400))
    def retention_by_time(self, age):
        self.log.config = replace(CONFIG, retention_ms=age)
        self.log.delete_old_segments(self.now)
        self.log.config = CONFIG
        gone = [t for o, rows in self.batches if o < self.log.segment_base_offsets[0] for t, _ in rows]
        kept_from_start = self.log.log_start_offset == self.log_start
        assert kept_from_start or all(t < self.now - age for t in gone), "young records stay"
        self.after_deletion()

    def after_deletion(self):
        self.log_start = self.log.log_start_offset
        first = self.log.segment_base_offsets[0]
        self.batches = [b for b in self.batches if b[0] >= first]

    @rule()
    def reopen_clean(self):
        self.log.close()
        self.log = self.open(clean=True)

    @rule(new_leader=st.booleans())
    def crash(self, new_leader):
        recovery_point = self.log.recovery_point
        self.log.release()
        self.epoch += new_leader
        self.log = self.open(clean=False, recovery_point=recovery_point)

    @rule()
    def remove_deleted_files(self):
        self.now += 2000
        self.log.remove_deleted(self.now)
        assert not list(self.directory.glob("*.deleted"))

    # What must hold

    @rule(data=st.data(), max_bytes=st.integers(1, 1500))
    def read(self, data, max_bytes):
        offset = data.draw(st.integers(self.log_start, self.end))
        up_to = data.draw(st.integers(self.log_start, self.end))
        piece = self.log.read(offset, max_bytes, up_to=up_to)
        expected = [b for b in self.batches if b[0] + len(b[1]) > offset and b[0] + len(b[1]) <= up_to]
        if offset >= up_to or not expected or expected[0][0] > offset:
            assert piece is None
            return
        got = self.decode(piece)
        assert got == expected[: len(got)]
        assert len(got) == 1 or piece.size <= max_bytes
        bases = self.log.segment_base_offsets
        if len(got) < len(expected) and expected[len(got)][0] not in bases:
            following = self.log.read(expected[len(got)][0], 1, up_to=up_to)
            assert piece.size + following.size > max_bytes, "a read brings what fits"
        again = self.log.read(offset, max_bytes, up_to=up_to, min_one_batch=False)
        assert again is None if piece.size > max_bytes else again[:3] == piece[:3]

    @staticmethod
    def decode(piece):
        data = os.pread(piece.fd, piece.size, piece.position)
        found = []
        for position, header in iter_headers(data):
            check_crc(data, position, header)
            found.append(
                (header.base_offset, [(r.timestamp, r.value) for r in decode_records(data, position)])
            )
        return found

    @rule(shift=st.integers(-300, 60))
    def find_timestamp(self, shift):
        timestamp = self.now + shift
        rows = [
            (t, first + i)
            for first, batch in self.batches
            for i, (t, _) in enumerate(batch)
            if first + i >= self.log_start
        ]
        found = self.log.offset_for_timestamp(timestamp)
        expected = next(((t, o) for t, o in rows if t >= timestamp), None)
        assert (found and found[:2]) == expected

    @rule(outside=st.integers(1, 9))
    def read_outside(self, outside):
        for offset in (self.log_start - outside, self.end + outside):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, 100, up_to=self.end)

    @invariant()
    def offsets_agree(self):
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.log_start, self.end)
            assert self.log.high_watermark == self.log.last_stable_offset == self.end
            assert self.log.segment_base_offsets == sorted(set(self.log.segment_base_offsets))
            assert self.log.recovery_point <= self.end

    @precondition(lambda self: self.log_start < self.end)
    @rule()
    def read_everything(self):
        offset, found = self.log_start, []
        while piece := self.log.read(offset, 700, up_to=self.end):
            found += self.decode(piece)
            offset = found[-1][0] + len(found[-1][1])
        assert found == [b for b in self.batches if b[0] + len(b[1]) > self.log_start]


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
