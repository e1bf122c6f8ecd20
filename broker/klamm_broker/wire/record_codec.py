"""Records inside a batch: zigzag varints, one loop each way.

A record is its length, then attributes (unused), timestamp and offset as differences to the batch's first,
key, value and headers. The loops inline the one-byte varint, which is nearly all of them. `batch` is the
module to call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_broker.wire.errors import InvalidRecord
from klamm_broker.wire.varint import Buffer, VarintTooLong, decode_varint, encode_varint

if TYPE_CHECKING:
    from klamm_broker.wire.batch import BatchHeader, Record

RECORD_BYTES_MIN: Final = 7  # length, attributes, two differences, null key, null value, no headers


class _Varints(dict[int, bytes]):
    """Encoded varints of small numbers, filled as they are used."""

    def __missing__(self, value: int) -> bytes:
        encoded = encode_varint(value)
        if -1 <= value < 4096:
            self[value] = encoded
        return encoded


_VARINT: Final = _Varints()
_NULL: Final = encode_varint(-1)


def write_records(records: list[Record], base_offset: int | None) -> bytes:
    """The body of a batch. Offsets are counted from 0, or taken relative to `base_offset` if that is given."""
    varint = _VARINT
    out: list[bytes] = []
    base_timestamp = records[0].timestamp
    for index, (offset, timestamp, key, value, headers) in enumerate(records):
        delta = index if base_offset is None else offset - base_offset
        parts = [b"\0", varint[timestamp - base_timestamp], varint[delta]]
        parts += (_NULL,) if key is None else (varint[len(key)], key)
        parts += (_NULL,) if value is None else (varint[len(value)], value)
        parts.append(varint[len(headers)])
        for name, content in headers:
            encoded = name.encode("utf-8", "surrogateescape")
            parts += (varint[len(encoded)], encoded)
            parts += (_NULL,) if content is None else (varint[len(content)], content)
        record = b"".join(parts)
        out += (varint[len(record)], record)
    return b"".join(out)


def read_records(body: Buffer, header: BatchHeader) -> list[Record]:
    """All records of a decompressed body. Raises InvalidRecord unless they are exactly what the header says."""
    data = bytes(body)
    count = header.record_count
    if count < 0 or count * RECORD_BYTES_MIN > len(data):
        raise _invalid(header, f"announces {count} records in {len(data)} bytes")
    log_append_time = header.max_timestamp if header.timestamp_type else None
    records: list[Record] = []
    pos = 0
    try:
        for _ in range(count):
            record, pos = _read_record(data, pos, header, log_append_time)
            records.append(record)
    except (IndexError, VarintTooLong):
        raise _invalid(header, f"record {len(records)} of {count} is cut or garbled") from None
    if pos != len(data):
        raise _invalid(header, f"{len(data) - pos} bytes follow the last of {count} records")
    return records


def _read_record(
    data: bytes, pos: int, header: BatchHeader, log_append_time: int | None
) -> tuple[Record, int]:
    from klamm_broker.wire.batch import Record

    length, pos = decode_varint(data, pos, 5)
    end = pos + length
    if length < 0 or end > len(data):
        raise IndexError
    pos += 1  # attributes
    timestamp, pos = decode_varint(data, pos)
    delta, pos = decode_varint(data, pos, 5)
    key, pos = _read_bytes(data, pos)
    value, pos = _read_bytes(data, pos)
    byte = data[pos]
    if byte == 0:
        headers: list[tuple[str, bytes | None]] = []
        pos += 1
    else:
        headers, pos = _read_headers(data, pos, end)
    if pos != end:
        raise _invalid(header, f"a record is {pos - end + length} bytes long and says {length}")
    if log_append_time is None:
        timestamp += header.base_timestamp
    else:
        timestamp = log_append_time
    return Record(header.base_offset + delta, timestamp, key, value, headers), pos


def _read_bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    byte = data[pos]
    if byte < 128:
        size = (byte >> 1) ^ -(byte & 1)
        pos += 1
    else:
        size, pos = decode_varint(data, pos, 5)
    if size < 0:
        if size != -1:
            raise IndexError
        return None, pos
    end = pos + size
    if end > len(data):
        raise IndexError
    return data[pos:end], end


def _read_headers(data: bytes, pos: int, end: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, pos = decode_varint(data, pos, 5)
    if count < 0 or count * 2 > end - pos:  # a header takes two bytes at least
        raise IndexError
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, pos = _read_bytes(data, pos)
        if name is None:
            raise IndexError
        content, pos = _read_bytes(data, pos)
        headers.append((name.decode("utf-8", "surrogateescape"), content))
    return headers, pos


def _invalid(header: BatchHeader, reason: str) -> InvalidRecord:
    return InvalidRecord(f"batch at base offset {header.base_offset}: {reason}")
