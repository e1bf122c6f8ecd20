"""Records inside a batch: zigzag varints, one loop each way.

A record is its length, then attributes (unused), timestamp and offset as differences to the batch's first,
key, value and headers. The loops inline the one-byte varint, which is nearly all of them. `batch` is the
module to call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm_kafka.wire.errors import InvalidRecord
from klamm_kafka.wire.varint import Buffer, VarintTooLong, decode_varint, encode_varint

if TYPE_CHECKING:
    from klamm_kafka.wire.batch import BatchHeader, Record

_Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]  # the fields of a Record

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
    rows: list[_Row] = []
    try:
        pos = _read_rows(data, count, header, rows)
    except (IndexError, VarintTooLong):
        raise _invalid(header, f"record {len(rows)} of {count} is cut or garbled") from None
    if pos != len(data):
        raise _invalid(header, f"{len(data) - pos} bytes follow the last of {count} records")
    from klamm_kafka.wire.batch import Record

    new = tuple.__new__  # Record's own constructor takes its arguments apart and packs them again
    records = [new(Record, row) for row in rows]
    if header.timestamp_type:
        return [record._replace(timestamp=header.max_timestamp) for record in records]
    return records


def _read_rows(data: bytes, count: int, header: BatchHeader, rows: list[_Row]) -> int:
    """Appends the records to `rows`; the position behind the last.

    A length inside a record that reaches past its end is noticed when the record is over, or by IndexError.
    """
    base_offset, base_timestamp, size = header.base_offset, header.base_timestamp, len(data)
    pos = 0
    for _ in range(count):
        byte = data[pos]
        length, pos = ((byte >> 1) ^ -(byte & 1), pos + 1) if byte < 128 else decode_varint(data, pos, 5)
        end = pos + length
        if length < 0 or end > size:
            raise IndexError
        pos += 1  # attributes
        byte = data[pos]
        delta, pos = ((byte >> 1) ^ -(byte & 1), pos + 1) if byte < 128 else decode_varint(data, pos)
        timestamp = base_timestamp + delta
        byte = data[pos]
        delta, pos = ((byte >> 1) ^ -(byte & 1), pos + 1) if byte < 128 else decode_varint(data, pos, 5)
        byte = data[pos]
        if byte == 1:
            key, pos = None, pos + 1
        elif byte < 128 and not byte & 1:
            stop = pos + 1 + (byte >> 1)
            key, pos = data[pos + 1 : stop], stop
        else:
            key, pos = _read_bytes(data, pos)
        value, pos = _read_bytes(data, pos)
        headers: list[tuple[str, bytes | None]] = []
        if data[pos] == 0:
            pos += 1
        else:
            pos = _read_headers(data, pos, end, headers)
        if pos != end:
            raise _invalid(header, f"a record is {pos - end + length} bytes long and says {length}")
        rows.append((base_offset + delta, timestamp, key, value, headers))
    return pos


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


def _read_headers(data: bytes, pos: int, end: int, headers: list[tuple[str, bytes | None]]) -> int:
    count, pos = decode_varint(data, pos, 5)
    if count < 0 or count * 2 > end - pos:  # a header takes two bytes at least
        raise IndexError
    for _ in range(count):
        name, pos = _read_bytes(data, pos)
        if name is None:
            raise IndexError
        content, pos = _read_bytes(data, pos)
        headers.append((name.decode("utf-8", "surrogateescape"), content))
    return pos


def _invalid(header: BatchHeader, reason: str) -> InvalidRecord:
    return InvalidRecord(f"batch at base offset {header.base_offset}: {reason}")
