"""Committed source offsets of MirrorSource, as MirrorMaker stores them."""

from __future__ import annotations

from typing import Any, Final

from klamm_plugins.connector import SourceOffset, SourcePartition
from klamm_plugins.errors import ConnectError

_CLUSTER: Final = "cluster"
_TOPIC: Final = "topic"
_PARTITION: Final = "partition"
_OFFSET: Final = "offset"


def source_partition(alias: str, topic: str, partition: int) -> dict[str, Any]:
    """Returns the key of a partition's committed offset."""
    return {_CLUSTER: alias, _TOPIC: topic, _PARTITION: partition}


def check_partition(partition: SourcePartition) -> None:
    """Raises ConnectError for what is not a key of `source_partition`."""
    for key in (_CLUSTER, _TOPIC, _PARTITION):
        if partition.get(key) is None:
            raise ConnectError(f"Source partition {dict(partition)} has no '{key}', which must be there")
    number = partition[_PARTITION]
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ConnectError(f"Source partition has '{_PARTITION}' {number!r}: must be a number from 0 on")


def offset_of(offset: SourceOffset) -> int:
    """Returns the number in a committed offset; -1: begin with the first record. Raises ConnectError."""
    number = offset.get(_OFFSET)
    if not isinstance(number, int) or isinstance(number, bool) or number < -1:
        raise ConnectError(f"Source offset {dict(offset)}: '{_OFFSET}' must be a number from -1 on")
    return number
