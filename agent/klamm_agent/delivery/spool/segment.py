"""A segment of the spool: batches in Kafka's log format, and a file beside them that names the blocks of their records.

`00000000000000000000.log` holds batches back to back, numbered by offsets of the spool's own; `klamm log dump` reads it.
`….origins` has a line of JSON per batch, written before the batch: every batch in the log has its origins. Not thread-safe.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from klamm_agent.delivery.batches import Origin, Share
from klamm_base.files import PRIVATE_FILE
from klamm_kafka.wire.batch import HEADER_BYTES, BatchHeader, check_crc, read_header
from klamm_kafka.wire.errors import CorruptRecord, InvalidRecord

_OFFSET: Final = struct.Struct(">q")


class StoredBatch(NamedTuple):
    """A batch read from the spool; `end` is the offset behind it."""

    data: bytearray
    records: int
    end: int
    shares: list[Share]
    key: bytes | None
    """The key of its records: they are for one partition."""
    number: int = 0
    """Its number in the write-ahead log; 0: it never was there."""


class Damaged(NamedTuple):
    """A damaged place in the log: nothing before offset `end` can be read."""

    why: str
    end: int
    shares: list[Share]


class Segment:
    """One segment. `base` is its first offset, `next` the offset behind its last, `size` the bytes of its log."""

    def __init__(self, folder: Path, base: int) -> None:
        self.base = self.next = base
        self.size = 0
        self._log_path = folder / f"{base:020d}.log"
        self._origins_path = folder / f"{base:020d}.origins"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._log = os.open(self._log_path, flags, PRIVATE_FILE)
        try:
            self._origins = os.open(self._origins_path, flags, PRIVATE_FILE)
        except OSError:
            os.close(self._log)
            raise
        self._shares: dict[int, tuple[bytes | None, list[Share], int]] | None = None
        self.dirty = False

    def recover(self) -> int:
        """Cuts off everything behind the last whole batch; returns how many bytes that were."""
        there = os.fstat(self._log).st_size
        for position, header in self._headers(there):
            self.size = position + header.size
            self.next = header.next_offset
        if there > self.size:
            os.ftruncate(self._log, self.size)
        self._recover_origins()
        return there - self.size

    def _recover_origins(self) -> None:
        """Cuts off the origins of batches that are not there, and a line that a kill left unfinished."""
        whole = 0
        for line in self._origins_path.read_bytes().splitlines(keepends=True):
            found = _parsed(line)
            if not line.endswith(b"\n") or (found is not None and found[0] >= self.next):
                break
            whole += len(line)
        os.ftruncate(self._origins, whole)

    def trust(self, following: int) -> None:
        """Takes the segment as whole, since it was closed in order; the next begins at `following`. Reading finds damage."""
        self.size, self.next = os.fstat(self._log).st_size, following

    def _headers(self, there: int) -> Iterator[tuple[int, BatchHeader]]:
        position, expected = 0, self.base
        while position < there:
            try:
                head = os.pread(self._log, HEADER_BYTES, position)
                header = read_header(head)
                if header.base_offset != expected or position + header.size > there:
                    return
                check_crc(os.pread(self._log, header.size, position), 0, header)
            except (CorruptRecord, InvalidRecord):
                return
            yield position, header
            position += header.size
            expected = header.next_offset

    def append(
        self, data: bytearray, count: int, shares: Sequence[Share], key: bytes | None, *, number: int = 0
    ) -> int:
        """Appends a batch, whose `data` has its checksum; returns the offset behind it. Raises OSError, having written nothing."""
        rows = [[s.origin.path, *s.origin.inode, s.origin.start, s.origin.end, s.records] for s in shares]
        line = [self.next, None if key is None else key.decode("latin-1"), rows, number]
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        origins = os.fstat(self._origins).st_size
        try:
            _write_all(self._origins, origins, (text,))
            # The checksum does not cover the base offset
            _write_all(self._log, self.size, (_OFFSET.pack(self.next), memoryview(data)[_OFFSET.size :]))
        except OSError:
            os.ftruncate(self._origins, origins)
            os.ftruncate(self._log, self.size)
            raise
        self.dirty = True
        self.size += len(data)
        if self._shares is not None:
            self._shares[self.next] = key, list(shares), number
        self.next += count
        return self.next

    def read(self, position: int, offset: int) -> tuple[StoredBatch | Damaged, int]:
        """Reads the batch at a position, which begins with `offset`; returns it and the position of the next batch."""
        try:
            header = read_header(os.pread(self._log, HEADER_BYTES, position))
            data = bytearray(os.pread(self._log, header.size, position))
            check_crc(data, 0, header)
            if header.base_offset != offset:
                raise CorruptRecord(f"offset {header.base_offset} where {offset} is expected")
        except (CorruptRecord, InvalidRecord, OSError) as e:
            why = f"{self._log_path.name} at byte {position}: {e}"
            return Damaged(why, self.next, self.shares_from(offset)), self.size
        _OFFSET.pack_into(data, 0, 0)  # as brokers expect it from a producer
        key, shares, number = self._origins_by_offset().get(offset, (None, [], 0))
        found = StoredBatch(data, header.record_count, header.next_offset, shares, key, number)
        return found, position + header.size

    def shares_from(self, offset: int) -> list[Share]:
        """Returns the shares of all batches from `offset` on."""
        by_offset = self._origins_by_offset()
        return [s for at in sorted(by_offset) if offset <= at < self.next for s in by_offset[at][1]]

    def numbers_from(self, offset: int) -> list[int]:
        """Returns the numbers in the write-ahead log of all batches from `offset` on."""
        return [found[2] for at, found in self._origins_by_offset().items() if offset <= at < self.next]

    def _origins_by_offset(self) -> dict[int, tuple[bytes | None, list[Share], int]]:
        if self._shares is None:
            self._shares = {}
            for line in self._origins_path.read_bytes().splitlines():
                if (found := _parsed(line)) is not None:
                    self._shares[found[0]] = found[1:]
        return self._shares

    def position_of(self, offset: int) -> int:
        """Returns the position of the batch that begins with `offset`, or of the first batch behind it."""
        for position, header in self._headers(self.size):
            if header.base_offset >= offset:
                return position
        return self.size

    def forget(self) -> None:
        """Drops the origins from memory; they are read again when needed."""
        self._shares = None

    def sync(self) -> None:
        """Makes everything written safe on disk. Raises OSError."""
        if self.dirty:
            os.fsync(self._origins)
            os.fsync(self._log)
            self.dirty = False

    def close(self) -> None:
        os.close(self._log)
        os.close(self._origins)

    def delete(self) -> None:
        self.close()
        self._log_path.unlink(missing_ok=True)
        self._origins_path.unlink(missing_ok=True)


def _parsed(line: bytes) -> tuple[int, bytes | None, list[Share], int] | None:
    """Returns offset, key, shares and number of a batch; None for a line that holds none. Older releases wrote no number."""
    try:
        at, key, rows, *number = json.loads(line)
        shares = [
            Share(Origin(path, (dev, inode), start, end), count)
            for path, dev, inode, start, end, count in rows
        ]
        text = None if key is None else key.encode("latin-1")
        return int(at), text, shares, int(number[0]) if number else 0
    except (ValueError, TypeError, AttributeError):
        return None


def _write_all(fd: int, position: int, parts: Sequence[bytes | memoryview]) -> None:
    """Writes all parts at a position. Raises OSError; a full disk is one."""
    views = [memoryview(p) for p in parts]
    while views:
        written = os.pwritev(fd, views, position)
        position += written
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if views:
            views[0] = views[0][written:]
