"""Record batches of format 2 from lists of values, made by table look-ups and one join, without a call per record. Pure.

The bytes around a value depend only on its length and on the width of its number in the batch: tables have both.
`wire.batch.stamp` writes sequence, producer and checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from klamm_kafka.wire.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader, decode_records
from klamm_kafka.wire.compression import Compression, compress
from klamm_kafka.wire.varint import encode_varint, size_of_varint

KeyedValues = tuple[bytes | None, list[bytes]]
"""Values with the same key (None: no key), in their order."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_KEPT: Final = 16_384  # lengths above are rare, and computed each time
_NO_KEY: Final = b"\1"
_END: Final = b"\0"  # of a record: no headers
_WIDTHS: Final = ((1, 0, 64), (2, 64, 8_192), (3, 8_192, 1 << 20), (4, 1 << 20, 1 << 27))
"""Bytes that a record's number in the batch takes, and the range of numbers that take so many."""


class _Heads(dict[int, bytes]):
    """The bytes before a record's number, by length of its value: the end of the record before, then length, attributes and
    timestamp delta 0.
    """

    def __init__(self, width: int, key_bytes: int) -> None:
        self._more = (
            3 + width + key_bytes
        )  # attributes, timestamp delta and number of headers are a byte each

    def __missing__(self, length: int) -> bytes:
        size = self._more + size_of_varint(length) + length
        found = _END + encode_varint(size) + b"\0\0"
        if length < _KEPT:
            self[length] = found
        return found


class _Lengths(dict[int, bytes]):
    """The bytes between a record's number and its value, by length of the value; `before` comes first."""

    def __init__(self, before: bytes) -> None:
        self._before = before

    def __missing__(self, length: int) -> bytes:
        found = self._before + encode_varint(length)
        if length < _KEPT:
            self[length] = found
        return found


_heads: Final[dict[tuple[int, int], _Heads]] = {}  # by width and bytes of the key: a few
_lengths: Final = _Lengths(_NO_KEY)
_bare_lengths: Final = _Lengths(b"")
_numbers: Final[list[bytes]] = []


def encode_records(keyed: Sequence[KeyedValues]) -> bytes:
    """Encodes the records of a batch, numbered from 0."""
    count = sum(len(values) for _, values in keyed)
    while len(_numbers) < count:
        _numbers.append(encode_varint(len(_numbers)))
    parts: list[bytes] = []
    first = 0
    for key, values in keyed:
        for width, low, high in _WIDTHS:
            begin, end = max(low, first), min(high, first + len(values))
            if begin < end:
                whole = end - begin == len(values)
                piece = values if whole else values[begin - first : end - first]
                parts += _records(key, piece, begin, width)
        first += len(values)
    parts.append(_END)
    return b"".join(parts)[1:]


def _records(key: bytes | None, values: list[bytes], first: int, width: int) -> list[bytes]:
    count = len(values)
    lengths = list(map(len, values))
    before = _NO_KEY if key is None else encode_varint(len(key)) + key
    heads = _heads.get((width, len(before)))
    if heads is None:
        if len(_heads) > 256:
            _heads.clear()
        heads = _heads[width, len(before)] = _Heads(width, len(before))
    numbers = _numbers[first : first + count]
    parts = [b""] * (4 * count)
    parts[0::4] = map(heads.__getitem__, lengths)
    parts[1::4] = numbers
    parts[3::4] = values
    if key is None:
        parts[2::4] = map(_lengths.__getitem__, lengths)
    else:
        parts[2::4] = map(before.__add__, map(_bare_lengths.__getitem__, lengths))
    return parts


def encode_batch(
    keyed: Sequence[KeyedValues], timestamp_ms: int, codec: Compression, level: int | None = None
) -> bytearray:
    """Encodes a whole batch, without producer and checksum; all records have the same time."""
    count = sum(len(values) for _, values in keyed)
    body = compress(codec, encode_records(keyed), level)
    batch = bytearray(HEADER_BYTES)
    batch += body
    _HEADER.pack_into(
        batch, 0, 0, len(batch) - LENGTH_PREFIX_BYTES, -1, MAGIC, 0, int(codec),
        count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count,
    )  # fmt: skip
    return batch


def halves(batch: bytearray, header: BatchHeader, level: int | None = None) -> list[bytearray]:
    """Encodes the records of a batch as two batches; returns none for a batch of one record."""
    records = decode_records(batch)
    if len(records) < 2:
        return []
    middle = len(records) // 2
    return [
        encode_batch(
            [(r.key, [r.value or b""]) for r in part], header.base_timestamp, header.compression, level
        )
        for part in (records[:middle], records[middle:])
    ]
