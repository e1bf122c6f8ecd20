"""Maps a group to its partition of `__consumer_offsets` by Kafka's formula, so that logs can be exchanged."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Returns Java's `String.hashCode`: 31-polynomial over UTF-16 code units in 32-bit signed arithmetic."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, partitions: int) -> int:
    """Returns Kafka's `partitionFor`: `Utils.abs` maps the smallest integer, whose magnitude overflows, to 0."""
    value = java_hash(group_id)
    return 0 if value == -(1 << 31) else abs(value) % partitions
