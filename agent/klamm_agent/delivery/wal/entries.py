"""Entries of the write-ahead log as bytes, and a segment's entries read back. Pure.

An entry is a length, a CRC32C, a number, a kind, JSON, and the bytes of batches. Entries are numbered without a break within a life
of the agent; each life begins at a multiple of 2**40. So the reader knows where a segment's valid entries end, although older
entries lie behind them: a segment is overwritten in place.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from klamm_kafka.wire.crc import crc32c

LIFE: Final = 1 << 40
"""Entry numbers of one life of the agent; more than it can write."""
_FRAME: Final = struct.Struct(">II")  # bytes behind it, and their checksum
_START: Final = struct.Struct(">QBI")  # number, kind, bytes of JSON
_NOTE: Final = struct.Struct(">qiqhi")  # batch, partition or less than 0, producer id, epoch, sequence
_ACKED: Final = -1
_SPOOLED: Final = -2


class Kind(IntEnum):
    """The kinds of entries."""

    HEAD = 1
    """A segment's first entry: the whole state of the book."""
    BATCHES = 2
    """Batches that are to be sent, and the files' positions behind them: all of it or nothing."""
    NOTES = 3
    """Batches that go out, with their sequence numbers, and batches that are acknowledged."""
    STATE = 4
    """Positions that changed without a batch, and fingerprints of the registry."""


class Entry(NamedTuple):
    """An entry that was read. `at` is the position of `body` in the segment, `end` that of the next entry."""

    number: int
    kind: int
    about: dict[str, Any]
    body: bytes
    at: int
    end: int


class Sent(NamedTuple):
    """The numbers under which a batch goes, or went, to a partition."""

    partition: int
    producer_id: int
    epoch: int
    sequence: int
    cluster: str = ""
    """Id of the cluster, which gave the producer its id; empty when it does not name itself."""


class Note(NamedTuple):
    """A note on a batch: it is sent (`sent`), in the spool (`spooled`), or else acknowledged."""

    batch: int
    sent: Sent | None = None
    spooled: bool = False


def encode(
    number: int, kind: Kind, about: dict[str, Any] | None, body: Sequence[bytes | bytearray] = ()
) -> bytes:
    """Returns an entry's bytes."""
    text = b"" if about is None else json.dumps(about, separators=(",", ":")).encode()
    rest = b"".join((_START.pack(number, kind, len(text)), text, *body))
    return _FRAME.pack(len(rest), crc32c(rest)) + rest


def body_at(entry: bytes) -> int:
    """Returns the position of the body in an entry."""
    size: int = _START.unpack_from(entry, _FRAME.size)[2]
    return _FRAME.size + _START.size + size


def follows(before: int, number: int) -> bool:
    """Tells whether an entry's number may come behind `before` (-1: nothing)."""
    if before < 0 or number == before + 1:
        return True
    return number > before and number % LIFE == 0


def read_segment(data: bytes, before: int) -> Iterator[Entry]:
    """Yields a segment's valid entries, as far as they follow each other and the entry `before`.

    Its head has the whole state: it may come behind any older entry, as segments between them may be gone.
    """
    position = 0
    while position + _FRAME.size + _START.size <= len(data):
        size, crc = _FRAME.unpack_from(data, position)
        start = position + _FRAME.size
        if size < _START.size or start + size > len(data) or crc32c(data[start : start + size]) != crc:
            return
        number, kind, about = _START.unpack_from(data, start)
        if not follows(before, number) and not (kind == Kind.HEAD and not position and number > before):
            return
        at, end = start + _START.size + about, start + size
        try:
            found = json.loads(data[start + _START.size : at]) if about else {}
        except ValueError:
            return
        yield Entry(number, kind, found, data[at:end], at, end)
        position, before = end, number


def first_number(data: bytes) -> int | None:
    """Returns the number of a segment's first entry; None when it has no valid one."""
    first = next(read_segment(data, -1), None)
    return None if first is None or first.kind != Kind.HEAD else first.number


def encode_notes(notes: Iterable[Note]) -> bytes:
    """Returns the body of an entry of notes."""
    return b"".join(
        _NOTE.pack(note.batch, *(note.sent or (_SPOOLED if note.spooled else _ACKED, -1, -1, -1))[:4])
        for note in notes
    )


def cluster_of(notes: Iterable[Note]) -> str:
    """Returns the cluster to which the batches of an entry of notes were sent; empty when there are several, or none."""
    found = {note.sent.cluster for note in notes if note.sent is not None}
    return found.pop() if len(found) == 1 else ""


def decode_notes(body: bytes, cluster: str) -> list[Note]:
    """Returns the notes of an entry's body. What was sent went to `cluster`."""
    return [
        Note(
            batch,
            None if partition < 0 else Sent(partition, producer, epoch, sequence, cluster),
            partition == _SPOOLED,
        )
        for batch, partition, producer, epoch, sequence in _NOTE.iter_unpack(body)
    ]
