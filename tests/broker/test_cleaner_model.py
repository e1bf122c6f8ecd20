"""Compaction against a naive model: any history of batches, transactions, rolls, cleanings and restarts.

The model knows records and their fates one by one; the log knows bytes. After every cleaning both must hold the same
records, and a reader of committed records, a recovery from nothing, and the producers' sequence numbers must agree.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.cleaning import Cleaning, batches

from klamm_broker.log.config import LogConfig
from klamm_broker.log.partition_log import PartitionLog
from klamm_kafka.wire.batch import Record, encode_batch, encode_end_txn_marker, read_end_txn_marker
from klamm_kafka.wire.compression import Compression

NOW = 1_800_000_000_000
RETENTION_MS = 1000
OPEN = LogConfig(
    segment_bytes=1500, index_interval_bytes=100, retention_ms=-1, delete_retention_ms=RETENTION_MS,
    min_cleanable_dirty_ratio=0.0,
)  # fmt: skip
COMPACT = replace(OPEN, cleanup_policy=("compact",))

keys = st.one_of(st.none(), st.sampled_from([b"a", b"b", b"c", b"d" * 40, b"e" * 40]))
rows = st.lists(st.tuples(keys, st.one_of(st.none(), st.binary(max_size=60))), min_size=1, max_size=5)

written = st.tuples(
    rows,
    st.sampled_from([-1, 1, 2, 3, 4]),
    st.sampled_from(list(Compression)),
    st.booleans(),  # headers
    st.booleans(),  # LogAppendTime
)


@dataclass(slots=True)
class Txn:
    producer: int
    committed: bool | None = None


@dataclass(slots=True)
class Batch:
    """One batch as it is now. `marker`: it is the control batch of `txn`."""

    base: int
    last: int
    records: list[Record]
    producer: int = -1
    txn: Txn | None = None
    marker: bool = False
    horizon: int | None = None


@dataclass(slots=True)
class Model:
    batches: list[Batch] = field(default_factory=list)
    last_data: dict[int, int] = field(default_factory=dict)

    def clean(self, first_dirty: int, end: int, clean_offset: int, limit: int, now: int) -> None:
        """`limit`: the end of the last segment that is copied; records from `clean_offset` on are not judged."""
        last: dict[bytes, int] = {}
        for batch in self.batches:
            if not batch.marker and not aborted(batch):
                for r in batch.records:
                    if r.key is not None and first_dirty <= r.offset < clean_offset:
                        last[r.key] = r.offset
        txns = Counter(id(b.txn) for b in self.batches if b.txn is not None and not b.marker)
        kept = []
        for batch in self.batches:
            if batch.base >= limit:
                kept.append(batch)
                continue
            useless = batch.marker and (not batch.records or not txns[id(batch.txn)])
            due = batch.horizon is not None and batch.horizon <= now
            if batch.marker:
                batch.records = [] if useless and due else batch.records
            elif aborted(batch):
                batch.records = []
            else:
                batch.records = [
                    r for r in batch.records
                    if r.offset >= clean_offset
                    or (r.key is not None and r.offset >= last.get(r.key, -1) and not (due and r.value is None))
                ]  # fmt: skip
            tombstones = not batch.marker and any(r.value is None for r in batch.records)
            if batch.records and batch.horizon is None and (useless or tombstones):
                batch.horizon = now + RETENTION_MS
            if not batch.records:
                batch.horizon = None
            if batch.records or batch.last + 1 == end or self.holds_producer(batch):
                kept.append(batch)
        self.batches = kept

    def holds_producer(self, batch: Batch) -> bool:
        if batch.producer < 0:
            return False
        last = self.last_data.get(batch.producer)
        return batch.marker if last is None else batch.last == last


def aborted(batch: Batch) -> bool:
    return batch.txn is not None and batch.txn.committed is False


class CleanerMachine(RuleBasedStateMachine):
    @initialize(memory=st.sampled_from([96, 1 << 20]), buffer_bytes=st.sampled_from([130, 400, 1 << 16]))
    def start(self, memory: int, buffer_bytes: int) -> None:
        self.tmp = tempfile.TemporaryDirectory()
        self.directory = Path(self.tmp.name) / "t-0"
        self.now = NOW
        self.model = Model()
        self.txns: dict[int, Txn] = {}
        self.sequences: dict[int, int] = {}
        self.cleaning = Cleaning(self.open(clean=True), memory=memory, buffer_bytes=buffer_bytes)

    def open(self, *, clean: bool) -> PartitionLog:
        return PartitionLog.open(self.directory, "t", 0, OPEN, clean=clean, now_ms=self.now)

    @property
    def log(self) -> PartitionLog:
        return self.cleaning.log

    @rule(batches=st.lists(written, min_size=1, max_size=6))
    def append(self, batches) -> None:
        """Several at once: a log is worth cleaning once there is something in it."""
        for batch in batches:
            self.append_one(*batch)

    def append_one(self, rows, producer, codec, headers, append_time) -> None:
        """Producers 1 and 2 write transactions, 3 and 4 idempotently."""
        self.now += 1
        self.log.config = replace(
            OPEN, message_timestamp_type="LogAppendTime" if append_time else "CreateTime"
        )
        extra = [("h", b"\xff"), ("n", None)] if headers else []
        records = [Record(0, self.now - 5 * (i % 3), k, v, extra) for i, (k, v) in enumerate(rows)]
        sequence = self.sequences.get(producer, 0)
        data = encode_batch(
            records,
            compression=codec,
            producer_id=producer,
            producer_epoch=0 if producer > 0 else -1,
            base_sequence=sequence if producer > 0 else -1,
            is_transactional=producer in (1, 2),
        )
        info = self.log.append(data, now_ms=self.now, transaction_version=1)
        stored = [
            r._replace(offset=info.first_offset + i, timestamp=self.now if append_time else r.timestamp)
            for i, r in enumerate(records)
        ]
        txn = self.txns.setdefault(producer, Txn(producer)) if producer in (1, 2) else None
        if producer > 0:
            self.sequences[producer] = sequence + len(rows)
            self.model.last_data[producer] = info.last_offset
        self.model.batches.append(Batch(info.first_offset, info.last_offset, stored, producer, txn))

    @rule(producer=st.sampled_from([1, 2]), committed=st.booleans())
    def end_transaction(self, producer: int, committed: bool) -> None:
        self.now += 1
        self.log.config = OPEN
        marker = encode_end_txn_marker(
            committed=committed,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=self.now,
        )
        info = self.log.append(marker, now_ms=self.now, origin="coordinator")
        txn = self.txns.pop(producer, None) or Txn(producer)
        txn.committed = committed
        record = Record(info.first_offset, self.now, b"marker", b"")
        self.model.batches.append(
            Batch(info.first_offset, info.first_offset, [record], producer, txn, marker=True)
        )

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule(later=st.sampled_from([0, 10, RETENTION_MS, 3 * RETENTION_MS]))
    def clean(self, later: int) -> None:
        self.now += later
        self.log.config = COMPACT
        found = self.cleaning.round(self.now)
        if found is None:
            return
        candidate, cleaning = found
        bases = [s.base_offset for s in self.log.segments]
        done = cleaning.run()
        self.cleaning.clean_offset = done.clean_offset
        assert candidate.first_dirty < done.clean_offset <= candidate.end
        limit = next(base for base in bases if base >= done.clean_offset)
        self.model.clean(candidate.first_dirty, candidate.end, done.clean_offset, limit, self.now)
        assert not list(self.directory.glob("*.cleaned")) + list(self.directory.glob("*.swap"))

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """Rebuilds everything from the log alone, from its first byte, as after a crash."""
        before = sequences(self.log)
        if clean:
            self.log.close()
        else:
            for segment in self.log.segments:
                segment.release()
            for path in self.directory.glob("*.snapshot"):
                path.unlink()
        log = self.open(clean=clean)
        assert log.log_end_offset == self.log.log_end_offset
        assert sequences(log) == before
        self.cleaning.log = log

    @rule()
    def remove_deleted(self) -> None:
        self.log.remove_deleted(self.now + 10 * OPEN.file_delete_delay_ms)

    @invariant()
    def same_records(self) -> None:
        expected = [(b.base, b.last, [] if b.marker else b.records, b.horizon) for b in self.model.batches]
        found = [
            (
                header.base_offset,
                header.last_offset,
                [] if header.is_control else [r._replace(headers=tuple(r.headers)) for r in records],
                header.base_timestamp if header.has_delete_horizon else None,
            )
            for header, records in batches(self.log)
        ]
        plain = [
            (base, last, [r._replace(headers=tuple(r.headers)) for r in records], horizon)
            for base, last, records, horizon in expected
        ]
        assert found == plain

    @invariant()
    def committed_reading(self) -> None:
        """Checks what a consumer makes of the aborted transactions that it is told of."""
        stable = self.log.last_stable_offset
        pending = sorted(self.log.aborted_transactions(0, stable), key=lambda t: t.first_offset)
        active: set[int] = set()
        found = []
        for header, records in batches(self.log):
            if header.base_offset >= stable:
                break
            while pending and pending[0].first_offset <= header.last_offset:
                active.add(pending.pop(0).producer_id)
            if header.is_control:
                if records and (marker := read_end_txn_marker(records[0])) and not marker.committed:
                    active.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in active):
                found += [r.offset for r in records]
        assert found == [
            r.offset
            for b in self.model.batches
            if b.base < stable and not b.marker and (b.txn is None or b.txn.committed)
            for r in b.records
        ]

    @invariant()
    def times_are_found(self) -> None:
        """ListOffsets by timestamp, right after a cleaning too."""
        rows = [r for header, records in batches(self.log) for r in records]
        for header, records in batches(self.log):
            if records and not header.is_control:
                assert header.max_timestamp == max(r.timestamp for r in records)
        for timestamp in {r.timestamp for r in rows[:: max(len(rows) // 4, 1)]}:
            found = self.log.offset_for_timestamp(timestamp)
            assert found is not None
            assert found[1] == next(r.offset for r in rows if r.timestamp >= timestamp)

    def teardown(self) -> None:
        if hasattr(self, "tmp"):
            self.log.release()
            self.tmp.cleanup()


def sequences(log: PartitionLog) -> dict[int, tuple[int, int, int | None]]:
    return {
        p: (entry.epoch, entry.last_sequence, entry.current_txn_first_offset)
        for p, entry in log.producers.entries.items()
    }


TestCleaner = CleanerMachine.TestCase
TestCleaner.settings = settings(max_examples=35, stateful_step_count=30, deadline=None)


class LongCleanerMachine(CleanerMachine):
    """The same for longer."""


TestCleanerForLong = pytest.mark.usefixtures("soak")(pytest.mark.timeout(900)(LongCleanerMachine.TestCase))
TestCleanerForLong.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
