"""Batches built from lists of values are those that the record codec reads, whatever the lengths and keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_agent.delivery.batches import Batch, Claim, Origin, Receipt
from klamm_agent.delivery.encode import encode_batch, encode_records
from klamm_kafka.client.partitioner import murmur2
from klamm_kafka.wire.batch import Record, check_crc, decode_records, read_header, stamp
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.record_codec import write_records

ORIGIN = Origin("/x.log", (1, 2), 0, 100)
VALUES = st.lists(
    st.binary(max_size=200) | st.binary(min_size=1, max_size=3).map(lambda b: b * 9_000), max_size=90
)
SEGMENTS = st.lists(st.tuples(st.none() | st.binary(max_size=80), VALUES), min_size=1, max_size=5).filter(
    lambda segments: any(values for _, values in segments)
)


def records_of(segments, timestamp=7):
    return [Record(timestamp=timestamp, key=key, value=value) for key, values in segments for value in values]


@given(segments=SEGMENTS, codec=st.sampled_from(Compression))
def test_a_batch_is_what_the_record_codec_writes_and_reads(segments, codec):
    expected = records_of(segments)
    assert encode_records(segments) == bytes(write_records(expected, None))
    batch = encode_batch(segments, 7, codec)
    stamp(batch, 5, 1, 99)
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert (header.record_count, header.last_offset_delta) == (len(expected), len(expected) - 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 99)
    assert header.size == len(batch)
    assert [r._replace(offset=0, headers=()) for r in decode_records(batch)] == expected


def test_numbers_of_every_width():
    values = [b"%d" % i for i in range(9_000)]
    batch = encode_batch(
        [(None, values[:63]), (b"k", values[63:65]), (None, values[65:])], 7, Compression.LZ4, 1
    )
    stamp(batch, 1, 0, 0)
    found = decode_records(batch)
    assert [r.value for r in found] == values
    assert [r.offset for r in found] == list(range(9_000))
    assert [r.key for r in found[60:67]] == [None] * 3 + [b"k"] * 2 + [None] * 2


@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_halves_have_all_records_in_order_and_know_their_blocks(counts):
    receipts = [Receipt("t", ORIGIN, n) for n in counts]
    values = [b"%d" % i for i in range(sum(counts))]
    owner = [b for b, n in zip(receipts, counts, strict=True) for _ in range(n)]
    whole = Batch(
        "t", encode_batch([(b"k", values)], 7, Compression.NONE), len(values),
        [Claim(b, n) for b, n in zip(receipts, counts, strict=True)], b"k",
    )  # fmt: skip
    waiting, found = [whole], []
    while waiting:
        batch = waiting.pop(0)
        halves = batch.halves(None)
        assert sum(p.count for p in batch.claims) == batch.count == len(decode_records(batch.data))
        if halves:
            waiting = [*halves, *waiting]
        else:
            found.append((decode_records(batch.data)[0].value, batch.claims[0].receipt))
    assert found == list(zip(values, owner, strict=True))


def test_murmur2_is_javas():
    """The values of Kafka's own UtilsTest."""
    known = {
        b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829, b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }  # fmt: skip
    assert {k: (murmur2(k) ^ 0x80000000) - 0x80000000 for k in known} == known
