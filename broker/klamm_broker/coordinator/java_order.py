"""The order in which Java's hash tables return their elements.

Kafka's assignors walk over such tables, so this order decides which member gets which partition. The rule: by bucket,
in a bucket by insertion. A table has a power of two of buckets, at least 16, and doubles when it is more than three
quarters full; a copy of a collection has more buckets than four thirds of its size from the start. (Java turns buckets
into trees from eight collisions on; that is not imitated.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, TypeVar

from klamm_broker.coordinator.partitioning import java_hash

_T = TypeVar("_T")
_HALVES: Final = Struct(">QQ")
_SMALLEST_TABLE: Final = 16


def uuid_hash(uuid: bytes) -> int:
    """Returns `hashCode` of Kafka's Uuid, from its 16 bytes."""
    most, least = _HALVES.unpack(uuid)
    mixed: int = most ^ least
    return ((mixed >> 32) ^ mixed) & 0xFFFFFFFF


def _ordered(
    items: Iterable[_T],
    hash_of: Callable[[_T], int],
    *,
    copied: bool = False,
    capacity: int = _SMALLEST_TABLE,
) -> list[_T]:
    distinct = list(dict.fromkeys(items))
    room = len(distinct) * 4 // 3 + 1 if copied else (len(distinct) * 4 + 2) // 3
    size = 1
    while size < capacity:
        size *= 2
    while size < room:
        size *= 2

    def bucket(item: _T) -> int:
        value = hash_of(item) & 0xFFFFFFFF
        return (value ^ (value >> 16)) & (size - 1)

    return sorted(distinct, key=bucket)


def strings(items: Iterable[str], *, capacity: int = _SMALLEST_TABLE) -> list[str]:
    """Returns strings in the order of a HashMap or HashSet. `capacity` is the one with which it was made."""
    return _ordered(items, java_hash, capacity=capacity)


def uuids(items: Iterable[bytes], *, copied: bool = False) -> list[bytes]:
    """Returns Kafka's Uuids in the order of a HashMap, or of a HashSet that is a copy."""
    return _ordered(items, uuid_hash, copied=copied)


def integers(items: Iterable[int]) -> list[int]:
    """Returns integers in the order of a HashSet that is a copy: mostly ascending, but not always."""
    return _ordered(sorted(items), int, copied=True)
