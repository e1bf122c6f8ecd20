"""A record as the comparison sees it: fingerprints of its fields, and a checksum. Pure.

Fingerprints hold within one process, except a compacted topic's keys; checksums are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

from klamm_kafka.wire.batch import Record

FIELDS: Final = ("timestamp", "key", "value", "headers")
"""The fields of `Content`, in its order."""
Content = tuple[int, int, int, int]

ABORTED: Final = 1
"""The record belongs to an aborted transaction: the target need not have it."""
TOMBSTONE: Final = 2
AFTER_GAP: Final = 4
"""Records right before this one were deleted from the log."""
BEGINS_LATER: Final = 8
"""The flow did not begin to copy at the source's first record."""

_NULL: Final = b"\xff\xff\xff\xff"


class Row(NamedTuple):
    """A record's fingerprints, offset, checksum and flags."""

    content: Content
    offset: int
    check: int
    flags: int = 0

    @property
    def key(self) -> int:
        return self.content[1]


def rows_of(
    records: Iterable[Record], *, stable_keys: bool, timestamps: bool = True, aborted: bool = False
) -> list[Row]:
    """Returns the rows of records. `stable_keys`: a key's fingerprint holds in other processes too.

    Without `timestamps` they count as equal: the target's broker sets its own.
    """
    new, found = tuple.__new__, []
    always = ABORTED if aborted else 0
    for record in records:
        offset, timestamp, key, value, headers = record
        time = timestamp if timestamps else 0
        key_print = _stable(key) if stable_keys else hash(key)
        check = crc32(
            _NULL if value is None else value, crc32(_NULL if key is None else key, time & 0xFFFFFFFF)
        )
        headers_print = 0
        if headers:
            pairs = tuple(headers)
            headers_print = hash(pairs)
            check = crc32(repr(pairs).encode("utf-8", "surrogateescape"), check)
        flags = always | (TOMBSTONE if value is None else 0)
        content = (time, key_print, hash(value), headers_print)
        found.append(new(Row, (content, offset, check, flags)))
    return found


def _stable(key: bytes | None) -> int:
    return -1 if key is None else int.from_bytes(blake2b(key, digest_size=8).digest())


def differing(ours: Content, theirs: Content) -> list[str]:
    """Returns the names of the fields that differ."""
    return [name for name, a, b in zip(FIELDS, ours, theirs, strict=True) if a != b]
