"""Batches as they are fetched, made ready for the target: any list of them says the same to a reader afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_kafka.wire.batch import (
    Record,
    check_crc,
    decode_records,
    encode_batch,
    encode_end_txn_marker,
    read_header,
    stamp,
)
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.errors import CorruptRecord
from klamm_mirror.offsets.syncs import SyncState
from klamm_mirror.origins import LeftOut, Origin
from klamm_mirror.raw import Counts, Rewrite, convert, last_epoch, producer_ids, whole_batches

blob = st.none() | st.binary(max_size=30)
headers = st.lists(st.tuples(st.text(max_size=5), blob), max_size=2)
records_after = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 10**13), blob, blob, headers), min_size=1, max_size=5
)
"""The offsets before each record that compaction takes away, and the rest of the record."""
holes_before = st.sampled_from([0, 0, 0, 7])
append_times = st.sampled_from([None, None, 77])
codecs = st.sampled_from(Compression)


@dataclass
class Log:
    data: bytearray = field(default_factory=bytearray)
    rows: list[Record] = field(default_factory=list)
    """The records that a reader of the source sees, aborted transactions included."""
    holes: int = 0
    end: int = 0


@st.composite
def logs(draw) -> Log:
    log = Log()
    for _ in range(draw(st.integers(0, 6))):
        base = log.end + draw(holes_before)
        if draw(st.integers(0, 5)) == 0:
            log.data += encode_end_txn_marker(
                committed=draw(st.booleans()), producer_id=1, producer_epoch=0, coordinator_epoch=0,
                timestamp=5, base_offset=base,
            )  # fmt: skip
            log.end = base + 1
            continue
        offset, records = base, []
        compacted = draw(st.integers(0, 3)) == 0
        for hole, *parts in draw(records_after):
            offset += hole if compacted else 0
            records.append(Record(offset, *parts))
            offset += 1
        last = offset - 1 + (draw(st.integers(0, 3)) if compacted else 0)
        append_time = draw(append_times)
        transactional = draw(st.booleans())
        log.data += encode_batch(
            records, base_offset=base, compression=draw(codecs),
            producer_id=9 if transactional else -1, producer_epoch=0, base_sequence=3 if transactional else -1,
            is_transactional=transactional, leader_epoch=4, keep_offsets=True, last_offset=last,
            log_append_time=append_time,
        )  # fmt: skip
        log.rows += [r if append_time is None else r._replace(timestamp=append_time) for r in records]
        log.holes += last - base + 1 != len(records) or append_time is not None
        log.end = last + 1
    return log


def shown(records: list[Record]) -> list[tuple]:
    return [(r.timestamp, r.key, r.value, list(r.headers)) for r in records]


@given(log=logs(), data=st.data())
def test_a_reader_sees_the_same_records_in_the_same_order(log, data):
    asked = data.draw(st.integers(0, log.end))
    cut = data.draw(st.integers(0, 60))
    counts = Counts()
    # a broker sends whole batches, and perhaps a piece of the next
    batches, position = convert(bytes(log.data) + bytes(log.data[:cut]), asked, counts)
    if log.data:
        assert position == max(log.end, asked)
    got, sequence = [], 0
    for batch in batches:
        stamp(batch.data, 42, 1, sequence)
        sequence += batch.count
        header = read_header(batch.data)
        check_crc(batch.data, 0, header)
        assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (42, 1, -1)
        assert (header.base_offset, header.size, header.record_count) == (0, len(batch.data), batch.count)
        assert header.last_offset_delta + 1 == header.record_count, "a broker refuses holes"
        assert not header.attributes & ~7, "nothing but the codec"
        got += decode_records(batch.data)
    assert shown(got) == shown([r for r in log.rows if r.offset >= asked])


@given(log=logs())
def test_no_record_is_decoded_unless_it_must_be(log):
    counts = Counts()
    convert(bytes(log.data), 0, counts)
    assert counts.reencoded == log.holes
    assert (counts.decoded == 0) == (log.holes == 0)


@given(logs(), codecs, st.data())
def test_a_flow_with_a_compression_of_its_own_says_the_same(log, codec, data):
    start = data.draw(st.integers(0, log.end + 2))
    counts = Counts()
    plain, end = convert(log.data, start, Counts())
    batches, position = convert(log.data, start, counts, rewrite=Rewrite(codec))
    assert position == end
    assert [
        (b.first, b.last, b.next_offset, b.count, b.max_timestamp, b.first_timestamp) for b in batches
    ] == [(b.first, b.last, b.next_offset, b.count, b.max_timestamp, b.first_timestamp) for b in plain]
    for batch, raw in zip(batches, plain, strict=True):
        stamp(batch.data, 7, 0, 0)
        header = read_header(batch.data)
        check_crc(batch.data, 0, header)
        assert header.compression is codec
        assert decode_records(batch.data) == decode_records(raw.data)
    assert counts.recompressed + counts.passed <= len(plain)


@given(logs(), st.data())
def test_records_are_changed_and_left_out(log, data):
    start = data.draw(st.integers(0, log.end + 2))
    wanted = data.draw(st.sets(st.sampled_from([row.offset for row in log.rows] or [0])))

    def change(records):
        return [r._replace(value=b"new") for r in records if r.offset in wanted]

    batches, position = convert(log.data, start, Counts(), rewrite=Rewrite(change=change))
    assert position == convert(log.data, start, Counts())[1]
    kept = [row for row in log.rows if row.offset in wanted and row.offset >= start]
    seen = [record for batch in batches for record in decode_records(batch.data)]
    assert [(r.timestamp, r.key, r.value) for r in seen] == [(r.timestamp, r.key, b"new") for r in kept]
    assert [b.next_offset > b.last >= b.first for b in batches] == [True] * len(batches)
    edges = [(batch.first, batch.last) for batch in batches]
    assert all(first in wanted and last in wanted for first, last in edges)


def test_aborted_transactions_are_hidden_from_committed_reads_only():
    def batch(producer: int, base: int, value: bytes) -> bytearray:
        return encode_batch(
            [Record(timestamp=1, value=value)], base_offset=base, producer_id=producer, producer_epoch=0,
            base_sequence=0, is_transactional=producer >= 0,
        )  # fmt: skip

    def marker(producer: int, base: int, *, committed: bool) -> bytearray:
        return encode_end_txn_marker(
            committed=committed, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=1,
            base_offset=base,
        )  # fmt: skip

    log = bytes(
        batch(1, 0, b"aborted") + batch(2, 1, b"committed") + batch(-1, 2, b"plain")
        + marker(1, 3, committed=False) + marker(2, 4, committed=True) + batch(1, 5, b"later")
    )  # fmt: skip
    counts = Counts()
    seen, position = convert(log, 0, counts, [(1, 0)])
    assert [decode_records(b.data)[0].value for b in seen] == [b"committed", b"plain", b"later"]
    assert (position, counts.aborted) == (6, 1)
    seen, _ = convert(log, 0, Counts())
    assert len(seen) == 4


def test_batches_are_left_out_by_their_producers():
    def batch(producer: int, base: int) -> bytearray:
        return encode_batch(
            [Record(value=b"%d" % producer)], base_offset=base, producer_id=producer, producer_epoch=0, base_sequence=0
        )  # fmt: skip

    there, other = Origin("id", "X"), Origin("id2", "Y")
    verdicts = {2: LeftOut.OF_TARGET, 3: there, 4: LeftOut.BY_ANOTHER_FLOW, 5: other}
    log = b"".join(bytes(batch(p, i)) for i, p in enumerate([-1, 1, 2, 3, 2, 4, 5, 2]))
    assert producer_ids(log + bytes(batch(6, 8)[:70])) == {1, 2, 3, 4, 5, 6}
    assert producer_ids(log + bytes(batch(6, 8)[:50])) == {1, 2, 3, 4, 5}
    counts = Counts()
    found, position = convert(log, 0, counts, None, lambda header: verdicts.get(header.producer_id))
    assert [(b.first, b.origin) for b in found] == [(0, None), (1, None), (3, there), (6, other)]
    assert position == 8
    assert counts.left_out == {LeftOut.OF_TARGET: 3, LeftOut.BY_ANOTHER_FLOW: 1}


def test_a_broken_checksum_is_found():
    data = encode_batch([Record(value=b"x")])
    data[-1] ^= 1
    with pytest.raises(CorruptRecord):
        convert(bytes(data), 0, Counts())


def test_syncs_are_due_as_mirrormaker_writes_them():
    state = SyncState()
    assert [n for n in range(1000) if state.update(n, n, 100)] == list(range(0, 1000, 101))
    assert state.update(1500, 1000, 100), "a gap upstream"
    assert not state.update(1501, 1001, 100)
    assert state.update(1502, 5, 100), "a target that was truncated"


@given(epochs=st.lists(st.integers(-1, 2**31 - 1), max_size=5), cut=st.integers(0, 80))
def test_epochs_and_producers_are_those_of_whole_batches(epochs, cut):
    batches = []
    for number, epoch in enumerate(epochs):
        data = encode_batch([Record(offset=0, timestamp=1, key=None, value=b"x" * 20)])
        stamp(data, number, 0, 0)
        data[12:16] = epoch.to_bytes(4, signed=True)
        batches.append(bytes(data))
    buf = b"".join(batches)
    buf = buf[: max(len(buf) - cut, 0)]
    headers = [header for _, header in whole_batches(buf)]
    assert last_epoch(buf, 99) == (headers[-1].leader_epoch if headers else 99)
    assert producer_ids(buf) == {header.producer_id for header in headers}
