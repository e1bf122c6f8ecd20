"""Record batches: round trips, foreign readers and writers, patching in place, damage of every kind."""

import random
import struct
import warnings
import zlib

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm_kafka.wire.batch import (
    HEADER_BYTES,
    BatchHeader,
    EndTxnMarker,
    Record,
    check_crc,
    decode_records,
    encode_batch,
    encode_end_txn_marker,
    iter_headers,
    patch,
    patch_log_append_time,
    read_end_txn_marker,
    read_header,
    recompressed,
    sights,
    unpacked,
)
from klamm_kafka.wire.compression import Compression, compress, decompress, give_back
from klamm_kafka.wire.crc import PIECE_BYTES, crc32c
from klamm_kafka.wire.errors import (
    CorruptRecord,
    ErrorCode,
    InvalidRecord,
    ProtocolError,
    UnpackedTooLarge,
    UnsupportedCompression,
)
from klamm_kafka.wire.messages.end_txn_marker import EndTxnMarker as EndTxnMarkerValue

SETTINGS = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
blobs = st.none() | st.binary(max_size=20) | st.just(b"z" * 300)
records = st.builds(
    Record,
    timestamp=st.integers(0, 1 << 42),
    key=blobs,
    value=blobs,
    headers=st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3),
)
ROWS = [
    Record(0, 1_000, b"k", b"v" * 100, [("h", b"1"), ("n", None)]),
    Record(1, 1_007, None, b"", []),
    Record(2, 998, b"", None, [("é", b"")]),
]


@SETTINGS
@given(
    rows=st.lists(records, min_size=1, max_size=8),
    compression=st.sampled_from(Compression),
    base_offset=st.integers(0, 1 << 60),
    producer=st.tuples(st.integers(-1, 1 << 60), st.integers(-1, 32767), st.integers(-1, (1 << 31) - 1)),
    transactional=st.booleans(),
)
def test_round_trip(rows, compression, base_offset, producer, transactional):
    batch = encode_batch(
        rows,
        base_offset=base_offset,
        compression=compression,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=transactional,
        leader_epoch=3,
    )
    header = read_header(b"###" + batch, 3)
    check_crc(b"###" + batch, 3, header)
    assert header.size == len(batch)
    assert header.compression is compression
    assert (header.base_offset, header.last_offset) == (base_offset, base_offset + len(rows) - 1)
    assert header.record_count == len(rows)
    assert header.max_timestamp == max(row.timestamp for row in rows)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert header.is_transactional is transactional
    assert (header.is_control, header.timestamp_type, header.leader_epoch) == (False, 0, 3)
    expected = [row._replace(offset=base_offset + i) for i, row in enumerate(rows)]
    assert decode_records(batch) == expected
    assert decode_records(memoryview(b"#" + batch), 1) == expected


@pytest.mark.parametrize("compression", Compression)
def test_aiokafka_reads_ours(compression):
    batch = encode_batch(
        ROWS, base_offset=40, compression=compression, producer_id=5, producer_epoch=1, base_sequence=9
    )
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.producer_id, theirs.base_sequence) == (40, 5, 9)
    read = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs]
    assert read == [(40 + r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in ROWS]


@pytest.mark.parametrize("compression", Compression)
def test_we_read_aiokafkas(compression):
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(compression),
        is_transactional=1,
        producer_id=7,
        producer_epoch=2,
        base_sequence=11,
        batch_size=1 << 20,
    )
    for row in ROWS:
        builder.append(row.offset, row.timestamp, row.key, row.value, list(row.headers))
    for i in range(3, 2_000):  # enough for the codec to be used at all
        builder.append(i, 1_000 + i, b"key", b"value %d" % i, [])
    built = bytes(builder.build())
    header = read_header(built)
    check_crc(built, 0, header)
    assert header.compression is compression
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 11)
    assert header.last_sequence == 11 + 1_999
    assert decode_records(built)[:3] == ROWS
    assert len(decode_records(built)) == 2_000


@pytest.mark.parametrize("codec", [0, 1])  # kafka-python brings no other codec by itself
def test_kafka_python_both_ways(codec):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its import reads resources in an old way
        from kafka.record import MemoryRecords, MemoryRecordsBuilder
    ours = encode_batch(ROWS, base_offset=7, compression=Compression(codec))
    theirs = MemoryRecords(bytes(ours)).next_batch()
    assert theirs.validate_crc()
    assert [(r.offset, r.key, r.value) for r in theirs] == [(7 + r.offset, r.key, r.value) for r in ROWS]
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 16)
    for row in ROWS:
        builder.append(timestamp=row.timestamp, key=row.key, value=row.value, headers=list(row.headers))
    builder.close()
    assert decode_records(bytes(builder.buffer())) == ROWS


def test_golden_batch():
    """One record, written out by hand."""
    batch = encode_batch([Record(timestamp=16, key=b"k", value=b"v")], base_offset=258, leader_epoch=1)
    record = "10 00 00 00 02 6b 02 76 00"  # length 8, attributes, two differences, key, value, no headers
    body = bytes.fromhex(
        "0000 00000000 0000000000000010 0000000000000010 ffffffffffffffff ffff ffffffff 00000001" + record
    )
    head = bytes.fromhex("0000000000000102 0000003a 00000001 02") + crc32c(body).to_bytes(4, "big")
    assert batch.hex() == (head + body).hex()


@pytest.mark.parametrize("position", range(21, HEADER_BYTES + 5))
def test_any_flipped_bit_under_the_crc_is_noticed(position):
    batch = encode_batch(ROWS)
    batch[position] ^= 1 << position % 8
    with pytest.raises(CorruptRecord, match="CRC") as caught:
        check_crc(batch, 0, read_header(batch))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_patching_in_place_keeps_the_rest():
    batch = b"##" + encode_batch(ROWS, compression=Compression.ZSTD)
    patched = bytearray(batch)
    patch(memoryview(patched), 2, base_offset=1 << 50, leader_epoch=77)
    header = read_header(patched, 2)
    check_crc(patched, 2, header)
    assert (header.base_offset, header.leader_epoch) == (1 << 50, 77)
    assert [r.offset for r in decode_records(patched, 2)] == [(1 << 50) + i for i in range(3)]
    assert (patched[:2], patched[10:14], patched[18:]) == (batch[:2], batch[10:14], batch[18:])


def test_log_append_time():
    batch = encode_batch(ROWS, base_offset=5)
    patch_log_append_time(batch, 0, read_header(batch), 123_456)
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert (header.timestamp_type, header.max_timestamp) == (1, 123_456)
    assert {r.timestamp for r in decode_records(batch)} == {123_456}
    assert encode_batch(ROWS, base_offset=5, log_append_time=123_456) == batch


def test_batches_back_to_back():
    one, two = encode_batch(ROWS), encode_batch(ROWS[:1], base_offset=3)
    assert [(pos, h.last_offset) for pos, h in iter_headers(one + two)] == [(0, 2), (len(one), 3)]
    assert list(iter_headers(b"")) == []
    for cut in range(len(one) + 1, len(one + two)):
        with pytest.raises(CorruptRecord, match="cut"):
            list(iter_headers((one + two)[:cut]))


def test_offsets_with_holes():
    rows = [Record(10, 1, b"a", b"1"), Record(17, 2, b"b", b"2")]
    batch = encode_batch(rows, base_offset=10, keep_offsets=True, last_offset=19)
    assert (read_header(batch).last_offset, read_header(batch).record_count) == (19, 2)
    assert [r.offset for r in decode_records(batch)] == [10, 17]
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])


@pytest.mark.parametrize("committed", [True, False])
def test_end_of_transaction(committed):
    batch = encode_end_txn_marker(
        committed=committed,
        producer_id=9,
        producer_epoch=4,
        coordinator_epoch=6,
        timestamp=1_000,
        base_offset=50,
    )
    header = read_header(batch)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (9, 4, -1)
    (record,) = decode_records(batch)
    assert read_end_txn_marker(record) == EndTxnMarker(committed, 6)
    assert record.key == bytes([0, 0, 0, committed])
    assert record.value == b"\0\0" + EndTxnMarkerValue(coordinator_epoch=6).encode(0)
    other = record._replace(key=b"\0\0\0\2")  # a leader change
    assert read_end_txn_marker(other) is None
    with pytest.raises(InvalidRecord):
        read_end_txn_marker(record._replace(key=b"\0"))


def test_last_sequence_wraps():
    header = read_header(encode_batch(ROWS, producer_id=1, producer_epoch=0, base_sequence=(1 << 31) - 2))
    assert header.last_sequence == 0


def raw_batch(body, *, count, attributes=0, magic=2, length=None):
    """Returns a batch with a right CRC around any body."""
    batch = bytearray(HEADER_BYTES) + body
    fields = (0, len(batch) - 12 if length is None else length, -1, magic, 0, attributes, max(count - 1, 0))
    struct.pack_into(">qiibIhiqqqhii", batch, 0, *fields, 0, 0, -1, -1, -1, count)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


ONE = bytes.fromhex("0e 00 00 00 01 02 76 00")  # null key, value "v"


@pytest.mark.parametrize(
    ("batch", "error", "reason"),
    [
        (raw_batch(ONE, count=2), InvalidRecord, "cut|announces"),
        (raw_batch(ONE + ONE, count=1), InvalidRecord, "follow"),
        (raw_batch(ONE, count=-1), InvalidRecord, "announces -1"),
        (raw_batch(ONE, count=2**31 - 1), InvalidRecord, "announces"),
        (raw_batch(b"\x10" + ONE[1:], count=1), InvalidRecord, "cut"),
        (raw_batch(b"\x0c" + ONE[1:], count=1), InvalidRecord, "says 6"),
        (raw_batch(bytes.fromhex("0e 00 00 00 05 02 76 00"), count=1), InvalidRecord, "garbled"),
        (raw_batch(bytes.fromhex("10 00 00 00 01 02 76 02 01"), count=1), InvalidRecord, "garbled"),
        (raw_batch(b"\xff" * 12, count=1), InvalidRecord, "garbled"),
        (raw_batch(ONE, count=1, attributes=5), UnsupportedCompression, "type 5"),
        (raw_batch(ONE, count=1, attributes=1), CorruptRecord, "gzip"),
        (raw_batch(ONE, count=1, attributes=2), CorruptRecord, "snappy"),
        (raw_batch(ONE, count=1, attributes=3), CorruptRecord, "lz4"),
        (raw_batch(ONE, count=1, attributes=4), CorruptRecord, "zstd"),
        (raw_batch(ONE, count=1, magic=1), InvalidRecord, "old format 1"),
        (raw_batch(ONE, count=1, magic=9), CorruptRecord, "magic 9"),
        (raw_batch(ONE, count=1, length=48), CorruptRecord, "length 48"),
        (raw_batch(ONE, count=1, length=-5), CorruptRecord, "length -5"),
        (raw_batch(ONE, count=1, length=5_000), CorruptRecord, "cut"),
    ],
)
def test_damage_is_named(batch, error, reason):
    with pytest.raises(error, match=reason):
        decode_records(batch)


def test_the_hand_made_record_is_one():
    assert decode_records(raw_batch(ONE, count=1)) == [Record(0, 0, None, b"v", [])]


@settings(SETTINGS, max_examples=300)
@given(data=st.data(), compression=st.sampled_from(Compression))
def test_garbage_either_decodes_or_is_a_protocol_error(data, compression):
    batch = encode_batch(ROWS, compression=compression)
    for position in data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=5)):
        batch[position] = data.draw(st.integers(0, 255))
    del batch[data.draw(st.integers(0, len(batch))) :]
    try:
        found = decode_records(batch, limit=1 << 20)
    except ProtocolError:
        return
    assert all(isinstance(record, Record) for record in found)


@pytest.mark.parametrize("compression", [c for c in Compression if c])
@pytest.mark.parametrize("size", [0, 1, 32_767, 32_768, 32_769, 200_000])
def test_compression_round_trip(compression, size):
    data = random.Random(size).randbytes(size // 2) + b"x" * (size - size // 2)
    packed = compress(compression, data)
    assert decompress(compression, packed, limit=size) == data
    assert decompress(compression, memoryview(bytearray(packed)), limit=size + 5) == data
    if size:
        with pytest.raises(CorruptRecord, match="more than"):
            decompress(compression, packed, limit=size - 1)
        for cut in {1, len(packed) // 2, len(packed) - 1}:
            with pytest.raises(CorruptRecord):
                decompress(compression, packed[:cut], limit=size)


@pytest.mark.parametrize("compression", [c for c in Compression if c])
def test_bombs_are_refused_within_the_limit(compression):
    bomb = compress(compression, bytes(64 << 20))
    with pytest.raises(CorruptRecord, match="more than 1000000 bytes"):
        decompress(compression, bomb, limit=1_000_000)


def test_foreign_forms_of_the_codecs():
    data = b"abc" * 1_000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data  # librdkafka's
    assert decompress(Compression.LZ4, bytes(cramjam.lz4.compress(data))) == data  # linked blocks
    assert (
        decompress(Compression.GZIP, zlib.compress(data[:30], wbits=31) + zlib.compress(data[30:], wbits=31))
        == data
    )
    assert decompress(Compression.NONE, data) is data


def test_lz4_blocks_are_independent():
    """Java refuses frames whose blocks depend on each other: bit 5 of the descriptor."""
    packed = compress(Compression.LZ4, b"abc" * 100_000)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES + 3])
def test_crc_of_any_buffer(size):
    data = random.Random(size).randbytes(size)
    padded = bytearray(b"#" + data + b"#")
    values = {
        crc32c(data),
        crc32c(bytearray(data)),
        crc32c(memoryview(padded)[1:-1]),
        crc32c(memoryview(data)),
    }
    assert len(values) == 1
    assert crc32c(bytearray(b"123456789")) == 0xE3069283  # the check value of the CRC catalogue


def test_header_properties():
    header = BatchHeader(5, 60, 0, 2, 0, 0x78 | 4, 2, 0, 9, -1, -1, -1, 1)
    assert (header.size, header.last_offset, header.next_offset) == (72, 7, 8)
    assert header.compression is Compression.ZSTD
    assert (header.is_transactional, header.is_control, header.timestamp_type) == (True, True, 1)
    assert (header.has_delete_horizon, header.has_producer_id) == (True, False)


@SETTINGS
@given(
    rows=st.lists(records, min_size=1, max_size=8),
    compression=st.sampled_from(Compression),
    append_time=st.none() | st.just(77),
    damage=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), max_size=3),
)
def test_what_is_seen_of_records_is_what_would_be_decoded(rows, compression, append_time, damage):
    """Also of damaged ones: both read the same records, or refuse them in the same words."""
    plain = encode_batch(rows, base_offset=40, log_append_time=append_time)
    for where, value in damage:
        plain[HEADER_BYTES + where % (len(plain) - HEADER_BYTES)] = value
    header = read_header(plain)
    batch = recompressed(plain, 0, header, compression)

    def seen():
        found = read_header(batch)
        return [sight for some in sights(unpacked(batch, 0, found), found) for sight in some]

    def decoded():
        return [(r.offset, r.timestamp, r.key is not None) for r in decode_records(batch)]

    def outcome(read):
        try:
            return read()
        except InvalidRecord as error:
            return str(error)

    assert outcome(seen) == outcome(decoded)


@pytest.mark.parametrize("compression", list(Compression)[1:])
def test_much_is_unpacked_up_to_the_limit(compression):
    for size in (1 << 20, 5_000_000):
        data = bytes(size - 1) + b"x"
        packed = compress(compression, data)
        for view in (packed, memoryview(bytearray(packed))):
            found = decompress(compression, view, limit=size)
            assert bytes(found) == data
            give_back(found)
            if size > 1 << 20:
                with pytest.raises(ValueError, match="released"):
                    found[0]
            with pytest.raises(UnpackedTooLarge, match=f"more than {size - 1} bytes"):
                decompress(compression, view, limit=size - 1)
        with pytest.raises(CorruptRecord):
            decompress(compression, packed[:-5])


def test_gzip_members_back_to_back():
    parts = [b"a" * 10, b"", b"b" * 3_000_000, b"c"]
    packed = b"".join(zlib.compress(part, wbits=31) for part in parts)
    assert bytes(decompress(Compression.GZIP, packed)) == b"".join(parts)
    with pytest.raises(UnpackedTooLarge):
        decompress(Compression.GZIP, packed, limit=3_000_010)
