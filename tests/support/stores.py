"""Java's treatment of record keys, spelled independently of our code."""

from __future__ import annotations


def java_partition(key: bytes, partitions: int) -> int:
    """Returns the partition that Java's default partitioner gives a key: murmur2, made positive, modulo."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(key)) & mask
    whole = len(key) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        h = (h * m ^ ((k ^ (k >> 24)) * m)) & mask
    if rest := key[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return ((h ^ (h >> 15)) & 0x7FFFFFFF) % partitions
