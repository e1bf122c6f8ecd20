"""Maps a key to its partition as Java's producers do: by murmur2 of the key. Pure."""

from __future__ import annotations

import struct
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Returns the 32-bit hash of Kafka's `Utils.murmur2`, unsigned."""
    size = len(data)
    h = _SEED ^ size
    for (word,) in struct.iter_unpack("<I", data[: size & ~3]):
        k = word * _M & _MASK
        h = h * _M & _MASK ^ (k ^ k >> 24) * _M & _MASK
    rest = data[size & ~3 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of `key` in a topic with that number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
