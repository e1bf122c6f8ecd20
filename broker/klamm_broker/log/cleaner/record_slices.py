"""Finds the bounds and the keys of a batch's records: all that the cleaner looks at.

Values and headers are skipped, not decoded, so that kept records are copied unchanged.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm_kafka.wire.batch import COMPRESSION_MASK, HEADER_BYTES, LENGTH_PREFIX_BYTES, BatchHeader
from klamm_kafka.wire.compression import decompress
from klamm_kafka.wire.errors import InvalidRecord
from klamm_kafka.wire.varint import VarintTooLong, decode_varint, encode_varint


class RecordSlice(NamedTuple):
    """One record: bytes [start, end) of the batch's data; `rest` is the position behind its timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    tombstone: bool  # it has no value
    start: int
    rest: int
    end: int


def slice_records(buf: bytes, pos: int, header: BatchHeader) -> tuple[bytes, list[RecordSlice]]:
    """Returns (decompressed data, records) of the batch at `pos`. Raises InvalidRecord, CorruptRecord."""
    end = pos + LENGTH_PREFIX_BYTES + header.length
    if header.attributes & COMPRESSION_MASK:
        body = memoryview(buf)[pos + HEADER_BYTES : end]
        data = bytes(decompress(header.compression, body))
    else:
        data = buf[pos + HEADER_BYTES : end]
    records: list[RecordSlice] = []
    try:
        end = _slice(data, header, records)
    except (IndexError, VarintTooLong):
        end = -1
    if end != len(data):
        raise InvalidRecord(
            f"batch at base offset {header.base_offset}: {header.record_count} records are announced, "
            f"record {len(records)} is cut or garbled, or bytes follow the last"
        )
    return data, records


def _slice(data: bytes, header: BatchHeader, records: list[RecordSlice]) -> int:
    base_offset, base_timestamp, size = header.base_offset, header.base_timestamp, len(data)
    append_time = header.max_timestamp if header.timestamp_type else None
    new = tuple.__new__
    pos = 0
    for _ in range(header.record_count):
        start = pos
        byte = data[pos]
        length, pos = (byte >> 1, pos + 1) if byte < 128 else decode_varint(data, pos, 5)
        end = pos + length
        if length < 0 or end > size:
            raise IndexError
        pos += 1  # attributes
        byte = data[pos]
        delta, pos = ((byte >> 1) ^ -(byte & 1), pos + 1) if byte < 128 else decode_varint(data, pos)
        timestamp = base_timestamp + delta if append_time is None else append_time
        rest = pos
        byte = data[pos]
        delta, pos = ((byte >> 1) ^ -(byte & 1), pos + 1) if byte < 128 else decode_varint(data, pos, 5)
        byte = data[pos]
        length, pos = ((byte >> 1) ^ -(byte & 1), pos + 1) if byte < 128 else decode_varint(data, pos, 5)
        key = None
        if length >= 0:
            key = data[pos : pos + length]
            pos += length
        if pos >= end:
            raise IndexError
        tombstone = data[pos] == 1  # the length of the value is -1
        records.append(new(RecordSlice, (base_offset + delta, timestamp, key, tombstone, start, rest, end)))
        pos = end
    return pos


def with_timestamp(data: bytes, record: RecordSlice, delta: int) -> bytes:
    """Returns the record's bytes with another difference to the batch's base timestamp."""
    encoded = encode_varint(delta)
    content = data[record.rest : record.end]
    attributes = _attributes_at(data, record.start)
    return b"".join(
        (encode_varint(1 + len(encoded) + len(content)), data[attributes : attributes + 1], encoded, content)
    )


def _attributes_at(data: bytes, start: int) -> int:
    while data[start] >= 128:
        start += 1
    return start + 1
