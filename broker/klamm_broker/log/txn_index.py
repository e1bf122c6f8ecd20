"""Kafka's `.txnindex`: the aborted transactions whose marker is in this segment.

A consumer that reads committed records gets them with each fetch and skips their records. An entry has
34 bytes: version 0, producer id, first and last offset, and the last stable offset when the marker came.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from klamm_base.files import write_all
from klamm_broker.log.errors import CorruptFile
from klamm_broker.log.files import OpenFile

_LAYOUT: Final = Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    """One aborted transaction: its records are in [first_offset, last_offset]."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """Aborted transactions in the order of their markers. The file exists only if there are any.

    As with the other indexes, `flush` writes new entries, and recovery rebuilds those that a crash takes.
    """

    __slots__ = ("_entries", "_flushed", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: list[AbortedTxn] | None = None
        self._flushed = 0  # entries that the file has

    @property
    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            self._entries = self._read()
            self._flushed = len(self._entries)
        return self._entries

    def _read(self) -> list[AbortedTxn]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        if len(data) % _LAYOUT.size:
            raise CorruptFile(f"{self.path}: {len(data)} bytes is not a multiple of {_LAYOUT.size}")
        entries = []
        for version, *fields in _LAYOUT.iter_unpack(data):
            if version != 0:
                raise CorruptFile(f"{self.path}: entry of version {version}, only 0 is known")
            entries.append(AbortedTxn(*fields))
        return entries

    def check(self, base_offset: int) -> None:
        """Raise CorruptFile when the file cannot be the index of the segment that starts at `base_offset`."""
        for txn in self.entries:
            if txn.last_offset < base_offset or txn.first_offset > txn.last_offset:
                raise CorruptFile(f"{self.path}: {txn} is not of a segment that starts at {base_offset}")

    def append(self, txn: AbortedTxn) -> None:
        self.entries.append(txn)

    def flush(self) -> None:
        """Write the entries that the file does not have yet."""
        new = (self._entries or [])[self._flushed :]
        if new:
            file = OpenFile(self.path, os.O_WRONLY | os.O_CREAT)
            os.lseek(file.fd, self._flushed * _LAYOUT.size, os.SEEK_SET)
            write_all(file.fd, b"".join(_LAYOUT.pack(0, *txn) for txn in new))
            self._flushed += len(new)

    def overlapping(self, first: int, end: int) -> list[AbortedTxn]:
        """Returns the entries with records in [first, end)."""
        return [t for t in self.ending_from(first) if t.first_offset < end]

    def ending_from(self, offset: int) -> Iterator[AbortedTxn]:
        """Yields the entries whose marker is at or after `offset`, in their order."""
        entries = self.entries
        begin = bisect_left(entries, offset, key=lambda t: t.last_offset)
        return islice(entries, begin, None)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or after `offset`."""
        kept = [t for t in self.entries if t.last_offset < offset]
        self._entries = kept
        if len(kept) < self._flushed:
            file = OpenFile(self.path, os.O_WRONLY)
            os.ftruncate(file.fd, len(kept) * _LAYOUT.size)
            self._flushed = len(kept)

    def reset(self, *, there: bool = True) -> None:
        """Forget everything before a rebuild. `there`: there may be a file."""
        self._entries = []
        self._flushed = 0
        if there:
            self.path.unlink(missing_ok=True)
