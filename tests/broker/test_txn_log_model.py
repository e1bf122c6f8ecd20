"""Reading committed records against a naive model: random transactions in one partition, rolled, reopened, cut off.

What a client of `read_committed` gets, batch by batch and with the aborted transactions of each fetch, must be exactly the
records of committed transactions and those outside of any, below the first record of an open one.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_broker.log.config import LogConfig
from klamm_broker.log.partition_log import PartitionLog
from klamm_kafka.wire.batch import (
    Record,
    decode_records,
    encode_batch,
    encode_end_txn_marker,
    iter_headers,
    read_end_txn_marker,
)

CONFIG = LogConfig.from_topic(
    {"segment.bytes": "1048576", "index.interval.bytes": "100", "segment.index.bytes": "1000"}
)
PRODUCERS = (1, 2, 3)


class Model:
    """The records that were written, by offset: value, producer (None: outside of transactions) and fate."""

    def __init__(self) -> None:
        self.records: dict[int, list] = {}
        self.open: dict[int, int] = {}

    def write(self, offset: int, value: bytes, producer: int | None) -> None:
        self.records[offset] = [value, producer, True if producer is None else None]
        if producer is not None:
            self.open.setdefault(producer, offset)

    def end(self, producer: int, *, committed: bool) -> None:
        self.open.pop(producer, None)
        for record in self.records.values():
            if record[1] == producer and record[2] is None:
                record[2] = committed

    def stable(self, end: int) -> int:
        return min(self.open.values(), default=end)

    def committed(self, end: int) -> list[bytes]:
        return [
            value for offset, (value, _, fate) in self.records.items() if offset < self.stable(end) and fate
        ]


def read_committed(log: PartitionLog, max_bytes: int) -> list[bytes]:
    """Reads as a client does: it leaves out what the fetch says is aborted, until the marker comes."""
    values, offset = [], log.log_start_offset
    while (piece := log.read(offset, max_bytes, up_to=log.last_stable_offset)) is not None:
        listed = log.aborted_in(offset, piece, log.last_stable_offset)
        aborted = sorted(((t.first_offset, t.producer_id) for t in listed), reverse=True)
        dropped: set[int] = set()
        data = os.pread(piece.fd, piece.size, piece.position)
        for position, header in iter_headers(data):
            while aborted and aborted[-1][0] <= header.last_offset:
                dropped.add(aborted.pop()[1])
            offset = header.next_offset
            batch = decode_records(data, position)
            if header.is_control:
                marker = read_end_txn_marker(batch[0])
                if marker is not None and not marker.committed:
                    dropped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropped):
                values += [r.value for r in batch]
    return values


WRITES = st.tuples(st.just("write"), st.sampled_from((None, *PRODUCERS)), st.integers(1, 4))
ENDS = st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans())
OTHERS = st.tuples(st.sampled_from(("roll", "close", "kill")), st.none(), st.none())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(WRITES, WRITES, ENDS, ENDS, OTHERS), max_size=40), st.sampled_from((1, 200, 100_000))
)
def test_readers_of_committed_records_get_exactly_those(steps, max_bytes):
    model, epochs, sequences = Model(), dict.fromkeys(PRODUCERS, 0), dict.fromkeys(PRODUCERS, 0)
    with tempfile.TemporaryDirectory() as name:
        log = opened(Path(name), clean=True)
        for n, (what, producer, arg) in enumerate(steps):
            if what == "write":
                values = [f"{n}.{i}".encode() for i in range(arg)]
                more = {}
                if producer is not None:
                    more = {
                        "producer_id": producer,
                        "producer_epoch": epochs[producer],
                        "base_sequence": sequences[producer],
                        "is_transactional": True,
                    }
                    sequences[producer] += arg
                info = log.append(
                    encode_batch([Record(timestamp=n, value=v) for v in values], **more), now_ms=n
                )
                for i, value in enumerate(values):
                    model.write(info.first_offset + i, value, producer)
            elif what == "end":
                epochs[producer] += 1
                sequences[producer] = 0
                marker = encode_end_txn_marker(
                    committed=arg, producer_id=producer, producer_epoch=epochs[producer], coordinator_epoch=0, timestamp=n
                )  # fmt: skip
                log.append(marker, now_ms=n, origin="coordinator", transaction_version=2)
                model.end(producer, committed=arg)
            elif what == "roll":
                log.roll(n)
            else:
                (log.close if what == "close" else log.release)()
                log = opened(Path(name), clean=what == "close")
            assert log.last_stable_offset == model.stable(log.log_end_offset)
        assert read_committed(log, max_bytes) == model.committed(log.log_end_offset)
        log.release()


def opened(directory: Path, *, clean: bool) -> PartitionLog:
    return PartitionLog.open(directory, "t", 0, CONFIG, clean=clean, now_ms=0)


def test_a_fetch_carries_the_aborted_transactions_of_its_records_only(tmp_path):
    """Ten thousand aborted ones behind it would be a hundred kilobytes with every fetch."""
    log = opened(tmp_path, clean=True)
    for n in range(300):
        batch = encode_batch(
            [Record(timestamp=n, value=bytes(50))],
            producer_id=n,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        log.append(batch, now_ms=n)
        marker = encode_end_txn_marker(
            committed=False, producer_id=n, producer_epoch=1, coordinator_epoch=0, timestamp=n
        )
        log.append(marker, now_ms=n, origin="coordinator", transaction_version=2)
    for offset in (0, 301, 598):
        piece = log.read(offset, 1000, up_to=log.last_stable_offset)
        carried = log.aborted_in(offset, piece, log.last_stable_offset)
        assert offset // 2 in {t.producer_id for t in carried}
        assert len(carried) <= 10
    assert log.aborted_in(600, None, 600) == []
    log.release()


def test_the_last_stable_offset_is_never_before_the_start_of_the_log(tmp_path):
    log = opened(tmp_path, clean=True)
    for sequence in range(3):
        batch = encode_batch(
            [Record(timestamp=0, value=b"x")],
            producer_id=1,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        log.append(batch, now_ms=0)
    log.advance_log_start_offset(2)
    assert (log.log_start_offset, log.last_stable_offset) == (2, 2)
    log.release()


def test_a_marker_decides_nothing_before_it_is_on_the_disk(tmp_path):
    """With durability=fsync a power cut may take it back, and the transaction may be decided in the other way."""
    log = opened(tmp_path, clean=True)
    log.sole_replica = False

    def write(producer_id: int) -> None:
        batch = encode_batch(
            [Record(timestamp=0, value=b"x")], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )  # fmt: skip
        log.append(batch, now_ms=0)

    def end(producer_id: int) -> None:
        marker = encode_end_txn_marker(
            committed=False, producer_id=producer_id, producer_epoch=1, coordinator_epoch=0, timestamp=0
        )
        log.append(marker, now_ms=0, origin="coordinator", transaction_version=2)

    for producer_id in (1, 2):
        write(producer_id)
    log.flush()
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    end(2)
    end(1)
    assert (log.high_watermark, log.last_stable_offset) == (2, 0), "seen as decided"
    log.truncate_to(3, now_ms=0)
    log.flush()
    assert (log.high_watermark, log.last_stable_offset) == (3, 0), "the second marker is gone"
    end(1)
    log.flush()
    assert (log.high_watermark, log.last_stable_offset) == (4, 4)
    log.release()
