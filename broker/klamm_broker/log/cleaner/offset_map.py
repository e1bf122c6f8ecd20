"""The last offset of each key in the dirty part of a log, in bounded memory.

Kafka hashes every key to 16 bytes of MD5. Here a short key is its own entry and a long one is hashed to 32 bytes, so
that no two keys of ordinary length can be taken for each other. A pass of the cleaner ends when the map is full; the
next pass goes on from there.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

RAW_KEY_MAX: Final = 31
"""Longer keys are hashed, to one byte more than this: a hash never equals a short key."""
ENTRY_BYTES: Final = 180
"""What an entry takes besides its key: the objects of key and offset, and its share of a table that is growing."""


class OffsetMap:
    """Offsets by key. `memory` bounds it, in bytes; `load_factor` is the part of that which may be used."""

    __slots__ = ("_entries", "_limit", "_memory", "_used", "latest_offset")

    def __init__(self, memory: int, load_factor: float) -> None:
        self._entries: dict[bytes, int] = {}
        self._memory = memory
        self._limit = max(int(memory * load_factor), 2 * ENTRY_BYTES)  # less would never get anywhere
        self._used = 0
        self.latest_offset = -1
        """Everything up to here is in the map: records above it are all kept."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        return self._used >= self._limit

    @property
    def utilization(self) -> float:
        """How much of the memory is used, from 0 to 1."""
        return self._used / self._memory

    def put(self, key: bytes, offset: int) -> None:
        """Note the record of `key` at `offset`, which is larger than all before it."""
        if len(key) > RAW_KEY_MAX:
            key = blake2b(key, digest_size=RAW_KEY_MAX + 1).digest()
        entries = self._entries
        before = len(entries)
        entries[key] = self.latest_offset = offset
        if len(entries) != before:
            self._used += ENTRY_BYTES + len(key)

    def get(self, key: bytes) -> int:
        """The last offset of `key`; -1 if it is not in the map."""
        if len(key) > RAW_KEY_MAX:
            key = blake2b(key, digest_size=RAW_KEY_MAX + 1).digest()
        return self._entries.get(key, -1)
