"""Records inside a batch: zigzag varints, one loop each way.

A record is its length, then attributes (unused), timestamp and offset as differences to the batch's first, key, value
and headers. The loops inline the one-byte varint, which is nearly all of them. Call `batch`, not this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from klamm_kafka.wire.errors import InvalidRecord
from klamm_kafka.wire.varint import Buffer, VarintTooLong, decode_varint, encode_varint

Row = tuple[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""The fields of a `batch.Record`: absolute offset, timestamp, key, value, headers."""

Sight = tuple[int, int, bool]
"""Absolute offset and timestamp of a record, and whether it has a key: all that `scan_records` sees."""

SCAN_STEP: Final = 256
"""Records, or headers of a record, between two stops of a scan: some 200 us."""
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


def write_records(records: Sequence[Row], base_offset: int | None) -> bytes:
    """Returns the body of a batch. Offsets count from 0, or are relative to `base_offset` if that is given."""
    varint = _VARINT
    out: list[bytes] = []
    base_timestamp = records[0][1]
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


def read_records(body: Buffer, *, count: int, base_offset: int, base_timestamp: int) -> list[Row]:
    """Returns all records of a decompressed body. Raises InvalidRecord unless they are exactly what the header announces."""
    data = bytes(body)
    if count < 0 or count * RECORD_BYTES_MIN > len(data):
        raise _invalid(base_offset, f"announces {count} records in {len(data)} bytes")
    rows: list[Row] = []
    try:
        pos = _read_rows(data, count, base_offset, base_timestamp, rows)
    except (IndexError, VarintTooLong):
        raise _invalid(base_offset, f"record {len(rows)} of {count} is cut or garbled") from None
    if pos != len(data):
        raise _invalid(base_offset, f"{len(data) - pos} bytes follow the last of {count} records")
    return rows


def _read_rows(data: bytes, count: int, base_offset: int, base_timestamp: int, rows: list[Row]) -> int:
    """Appends the records to `rows`. Returns the position behind the last.

    A length inside a record that reaches past its end is noticed when the record is over, or by IndexError.
    """
    size, pos = len(data), 0
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
            raise _invalid(base_offset, f"a record is {pos - end + length} bytes long and says {length}")
        rows.append((base_offset + delta, timestamp, key, value, headers))
    return pos


def scan_records(body: Buffer, *, count: int, base_offset: int, base_timestamp: int) -> Iterator[list[Sight]]:
    """Yields what can be seen of the records without copying any content, some hundred at a time; none within very many headers.

    Raises InvalidRecord, as `read_records` does, once it is there.
    """
    size, pos, number = len(body), 0, 0
    if count < 0 or count * RECORD_BYTES_MIN > size:
        raise _invalid(base_offset, f"announces {count} records in {size} bytes")
    seen: list[Sight] = []
    try:
        for number in range(count):  # noqa: B007 - the error names it
            byte = body[pos]
            length, pos = ((byte >> 1) ^ -(byte & 1), pos + 1) if byte < 128 else decode_varint(body, pos, 5)
            end = pos + length
            if length < 0 or end > size:
                raise IndexError
            pos += 1  # attributes
            byte = body[pos]
            delta, pos = ((byte >> 1) ^ -(byte & 1), pos + 1) if byte < 128 else decode_varint(body, pos)
            timestamp = base_timestamp + delta
            byte = body[pos]
            delta, pos = ((byte >> 1) ^ -(byte & 1), pos + 1) if byte < 128 else decode_varint(body, pos, 5)
            byte = body[pos]
            if byte < 128 and not byte & 1:
                keyed, pos = True, pos + 1 + (byte >> 1)
            else:
                keyed, pos = _skip_bytes(body, pos)
            byte = body[pos]
            if byte < 128 and not byte & 1:
                pos += 1 + (byte >> 1)
            else:
                _, pos = _skip_bytes(body, pos)
            if body[pos] == 0:
                pos += 1
            else:
                headers, pos = decode_varint(body, pos, 5)
                if headers < 0 or headers * 2 > end - pos:
                    raise IndexError
                for left in range(headers, 0, -1):
                    named, pos = _skip_bytes(body, pos)
                    if not named:
                        raise IndexError
                    _, pos = _skip_bytes(body, pos)
                    if not left % SCAN_STEP:
                        yield []
            if pos != end:
                raise _invalid(base_offset, f"a record is {pos - end + length} bytes long and says {length}")
            seen.append((base_offset + delta, timestamp, keyed))
            if len(seen) == SCAN_STEP:
                yield seen
                seen = []
    except (IndexError, VarintTooLong):
        raise _invalid(base_offset, f"record {number} of {count} is cut or garbled") from None
    if pos != size:
        raise _invalid(base_offset, f"{size - pos} bytes follow the last of {count} records")
    yield seen


def _skip_bytes(data: Buffer, pos: int) -> tuple[bool, int]:
    """Returns whether a key, a value or a part of a header is there (not null), and the position behind it."""
    byte = data[pos]
    size, pos = ((byte >> 1) ^ -(byte & 1), pos + 1) if byte < 128 else decode_varint(data, pos, 5)
    if size < 0:
        if size != -1:
            raise IndexError
        return False, pos
    end = pos + size
    if end > len(data):
        raise IndexError
    return True, end


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


def _invalid(base_offset: int, reason: str) -> InvalidRecord:
    return InvalidRecord(f"batch at base offset {base_offset}: {reason}")
