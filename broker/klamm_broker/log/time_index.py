"""Kafka's `.timeindex`: (timestamp, relative offset) pairs that increase in both.

An entry says: no record up to this offset has a larger timestamp. The entry of the largest
timestamp is added when a segment is closed or rolled, so that retention need not read the log.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import ClassVar

from klamm_broker.log.errors import CorruptFile
from klamm_broker.log.index_file import IndexFile


class TimeIndex(IndexFile):
    layout: ClassVar[Struct] = Struct(">qi")
    kept_free: ClassVar[int] = 1  # for the entry that closes the segment

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless it would not increase."""
        last = self.last
        if timestamp > (last[0] if last else -1) and (last is None or offset > last[1]):
            self._writable().extend(self.layout.pack(timestamp, offset - self.base_offset))

    def lookup(self, timestamp: int) -> int:
        """Returns an offset from which to search for the first record of at least `timestamp`."""
        data = self._entries()
        unpack = self.layout.unpack_from
        slot = bisect_right(range(len(data) // 12), timestamp, key=lambda i: unpack(data, 12 * i)[0])
        return self.base_offset + (unpack(data, 12 * (slot - 1))[1] if slot else 0)

    @property
    def last(self) -> tuple[int, int] | None:
        """Returns (timestamp, offset) of the last entry."""
        data = self._data
        if data is None:
            data = self._read_last()
        if len(data) < 12:
            return None
        timestamp, relative = self.layout.unpack_from(data, len(data) // 12 * 12 - 12)
        return timestamp, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of offsets at or after `offset`."""
        data = self._writable()
        unpack = self.layout.unpack_from
        self.keep(
            bisect_right(
                range(len(data) // 12), offset - self.base_offset - 1, key=lambda i: unpack(data, 12 * i)[1]
            )
        )

    def check_sane(self) -> None:
        """Raise CorruptFile when the last entry is impossible (Kafka's preallocated zeros included)."""
        self.check()
        last = self.last
        if last is None:
            return
        first = self.layout.unpack_from(self._entries(), 0)
        if last[1] < self.base_offset or last[0] < first[0] or (len(self) > 1 and last[0] <= 0):
            raise CorruptFile(f"{self.path}: last entry {last} is before the first")
