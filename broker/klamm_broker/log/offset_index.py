"""Kafka's `.index`: a sparse map from offsets to positions in the segment's `.log`.

An entry is the last offset of a batch, relative to the segment's base offset, and the position where that
batch starts. Entries increase in both. Lookups return a position at or before the wanted batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from struct import Struct
from typing import ClassVar

from klamm_broker.log.errors import CorruptFile
from klamm_broker.log.index_file import IndexFile


class OffsetIndex(IndexFile):
    layout: ClassVar[Struct] = Struct(">ii")

    def append(self, offset: int, position: int) -> None:
        self._writable().extend(self.layout.pack(offset - self.base_offset, position))

    def lookup(self, offset: int) -> int:
        """Returns the position of the last indexed batch that ends at or before `offset`; 0 if there is none."""
        data = self._entries()
        unpack = self.layout.unpack_from
        slot = bisect_right(
            range(len(data) // 8), offset - self.base_offset, key=lambda i: unpack(data, 8 * i)[0]
        )
        return unpack(data, 8 * (slot - 1))[1] if slot else 0

    def lookup_position(self, position: int) -> int:
        """Returns the last indexed position at or before `position`; 0 if there is none."""
        data = self._entries()
        unpack = self.layout.unpack_from
        slot = bisect_right(range(len(data) // 8), position, key=lambda i: unpack(data, 8 * i)[1])
        return unpack(data, 8 * (slot - 1))[1] if slot else 0

    def offset_behind(self, position: int, default: int) -> int:
        """Returns the offset of the first indexed batch at or after `position`; `default` if there is none."""
        data = self._entries()
        unpack = self.layout.unpack_from
        slot = bisect_left(range(len(data) // 8), position, key=lambda i: unpack(data, 8 * i)[1])
        return self.base_offset + unpack(data, 8 * slot)[0] if slot < len(data) // 8 else default

    @property
    def last(self) -> tuple[int, int] | None:
        """Returns (offset, position) of the last entry."""
        data = self._entries()
        if len(data) < 8:
            return None
        relative, position = self.layout.unpack_from(data, len(data) // 8 * 8 - 8)
        return self.base_offset + relative, position

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that end at or after `offset`."""
        data = self._writable()
        unpack = self.layout.unpack_from
        self.keep(
            bisect_right(
                range(len(data) // 8), offset - self.base_offset - 1, key=lambda i: unpack(data, 8 * i)[0]
            )
        )

    def check_against(self, log_size: int) -> None:
        """Raise CorruptFile when the index cannot belong to a log of this size.

        Kafka preallocates the index of an active segment: after a crash its file ends in zeros, which show as
        a last entry of offset 0, position 0.
        """
        self.check()
        last = self.last
        if last is not None and (last[0] < self.base_offset or not 0 <= last[1] < log_size):
            raise CorruptFile(f"{self.path}: last entry {last} does not fit a log of {log_size} bytes")
        if last is not None and len(self) > 1 and last == (self.base_offset, 0):
            raise CorruptFile(f"{self.path}: ends in empty entries")
