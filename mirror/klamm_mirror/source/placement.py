"""Deals partitions out to tasks, by the bytes that the source holds of each. Pure.

Those bytes are the work of a first copy. Later they tell the mean throughput, as far as retention times are equal. They need
no memory of our own, so that a connector that starts anew deals alike.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

Partition = tuple[str, int]
Shares = list[list[Partition]]

PARTITION_BYTES: Final = 1 << 20
"""The bytes that a partition counts in addition: one without records costs something, too."""
GAIN: Final = 1.25
"""Partitions move only if the largest share was larger than this many times the one after the move."""


def place(
    partitions: Sequence[Partition], tasks: int, sizes: Mapping[Partition, int], before: Shares | None = None
) -> Shares:
    """Returns the share of each task; no share is empty. `sizes` are in bytes, `before` are the shares until now."""
    count = min(tasks, len(partitions))
    weights = {p: sizes.get(p, 0) + PARTITION_BYTES for p in partitions}
    fresh = _deal([[] for _ in range(count)], sorted(partitions, key=lambda p: -weights[p]), weights)
    if before is not None and len(before) == count:
        stay = [[p for p in share if p in weights] for share in before]
        known = {p for share in stay for p in share}
        new = [p for p in partitions if p not in known]
        kept = _deal(stay, sorted(new, key=lambda p: -weights[p]), weights)
        if all(kept) and _largest(kept, weights) <= GAIN * _largest(fresh, weights):
            fresh = kept
    order = {p: index for index, p in enumerate(partitions)}
    return [sorted(share, key=order.__getitem__) for share in fresh]


def _deal(shares: Shares, partitions: Iterable[Partition], weights: Mapping[Partition, int]) -> Shares:
    """Gives each partition to the smallest share."""
    heap = [(sum(weights[p] for p in share), index) for index, share in enumerate(shares)]
    heapq.heapify(heap)
    for partition in partitions:
        load, index = heap[0]
        shares[index].append(partition)
        heapq.heapreplace(heap, (load + weights[partition], index))
    return shares


def _largest(shares: Shares, weights: Mapping[Partition, int]) -> int:
    return max((sum(weights[p] for p in share) for share in shares), default=0)
