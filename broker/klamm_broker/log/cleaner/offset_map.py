"""The last offset of each key in the dirty part of a log, in a bounded amount of memory.

It is a table of 24 bytes a slot, as Kafka's: a digest of 16 bytes (BLAKE2 here, MD5 there) and an offset. Unused pages of
the table take no memory. The first keys are in a dictionary, which takes an eighth of the memory and a fifth of the
time; most logs need no more. A pass of the cleaner ends when the map is full; the next pass goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import count
from struct import Struct
from typing import Final

_DIGEST_BYTES: Final = 16
_OFFSET: Final = Struct(">q")
_HALVES: Final = Struct(">QQ")
SLOT_BYTES: Final = _DIGEST_BYTES + _OFFSET.size
_SLOTS_MIN: Final = (
    3  # room for one key, so that a pass makes progress, and one empty slot, so that a search ends
)
_SHORT: Final = (
    31  # longer keys are hashed to one byte more than this, so that a hash never equals a short key
)
_DICT_SHARE: Final = 8  # of the memory
_DICT_ENTRY_BYTES: Final = 216  # the objects of key and offset, and their share of a growing dictionary


class OffsetMap:
    """Offsets by key. `memory` bounds it, in bytes; `load_factor` is the share of the slots that may be used."""

    __slots__ = ("_count", "_few", "_few_max", "_limit", "_slots", "_table", "latest_offset")

    def __init__(self, memory: int, load_factor: float) -> None:
        in_dict = memory // _DICT_SHARE
        self._slots = _prime_up_to(max((memory - in_dict) // SLOT_BYTES, _SLOTS_MIN))
        self._limit = min(max(int(self._slots * load_factor), 1), self._slots - 1)
        self._few: dict[bytes, int] | None = {}
        self._few_max = in_dict // _DICT_ENTRY_BYTES
        self._table = bytearray()
        self._count = 0  # in the table
        self.latest_offset = -1
        """Everything up to here is in the map: records above it are all kept."""

    def __len__(self) -> int:
        return self._count if self._few is None else len(self._few)

    @property
    def full(self) -> bool:
        return len(self) >= self._limit

    @property
    def utilization(self) -> float:
        """The share of the table that is used, or would be, from 0 to 1."""
        return len(self) / self._slots

    def put(self, key: bytes, offset: int) -> None:
        """Note the record of `key` at `offset`, which is larger than all before it. Do not call it when the map is full."""
        if len(key) > _SHORT:
            key = blake2b(key, digest_size=_SHORT + 1).digest()
        self.latest_offset = offset
        few = self._few
        if few is None:
            self._put(key, offset)
            return
        few[key] = offset
        if len(few) > self._few_max:
            self._table = bytearray(self._slots * SLOT_BYTES)
            self._few = None
            for one, its_offset in few.items():
                self._put(one, its_offset)

    def _put(self, key: bytes, offset: int) -> None:
        digest = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        table = self._table
        for at in self._places(digest):
            if table.startswith(digest, at):
                break
            if _is_free(table, at):
                table[at : at + _DIGEST_BYTES] = digest
                self._count += 1
                break
        _OFFSET.pack_into(table, at + _DIGEST_BYTES, offset + 1)  # 0 is a free slot

    def get(self, key: bytes) -> int:
        """Returns the last offset of `key`; -1 if it is not in the map."""
        if len(key) > _SHORT:
            key = blake2b(key, digest_size=_SHORT + 1).digest()
        if self._few is not None:
            return self._few.get(key, -1)
        digest = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        table = self._table
        for at in self._places(digest):
            if table.startswith(digest, at):
                found: int = _OFFSET.unpack_from(table, at + _DIGEST_BYTES)[0]
                return found - 1
            if _is_free(table, at):
                break
        return -1

    def _places(self, digest: bytes) -> Iterator[int]:
        """Yields the possible slots of a digest, by double hashing: all slots, since their number is prime and one is free."""
        first, second = _HALVES.unpack(digest)
        slots = self._slots
        slot, step = first % slots, second % (slots - 1) + 1
        while True:
            yield slot * SLOT_BYTES
            slot = (slot + step) % slots


def _is_free(table: bytearray, at: int) -> bool:
    return bool(_OFFSET.unpack_from(table, at + _DIGEST_BYTES)[0] == 0)


def _prime_up_to(limit: int) -> int:
    """Returns the largest prime up to `limit`, which is at least 3."""
    return next(
        n for n in count(limit, -1) if n == 2 or (n % 2 and all(n % d for d in range(3, int(n**0.5) + 1, 2)))
    )
