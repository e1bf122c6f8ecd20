"""Combines reports on records: where several are on one record, that with more deliveries counts, then the further state."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise

from klamm_broker.coordinator.share.model import NO_OFFSET, StateBatch


def combined(old: Sequence[StateBatch], new: Sequence[StateBatch], start: int) -> list[StateBatch]:
    """Returns the state that both make from `start` on, in order, with neighbours joined that are alike."""
    batches = [*old, *new]
    if start != NO_OFFSET:
        batches = [b if b.first >= start else b._replace(first=start) for b in batches if b.last >= start]
    if len(batches) < 2:
        return batches
    batches.sort(key=lambda b: b.first)
    if all(left.last < right.first for left, right in pairwise(batches)):
        return _joined(batches)
    return _joined(_flat(batches))


def _flat(batches: Sequence[StateBatch]) -> list[StateBatch]:
    """Returns batches without overlaps. The strongest of those that are open at an offset is on top of the heap."""
    edges = sorted({edge for b in batches for edge in (b.first, b.last + 1)})
    result: list[StateBatch] = []
    opened: list[tuple[int, int, int]] = []
    at = 0
    for first, end in pairwise(edges):
        while at < len(batches) and batches[at].first <= first:
            batch = batches[at]
            heappush(opened, (-batch.deliveries, -batch.state, batch.last))
            at += 1
        while opened and opened[0][2] < first:
            heappop(opened)
        if opened:
            deliveries, state, _ = opened[0]
            result.append(StateBatch(first, end - 1, -state, -deliveries))
    return result


def _joined(batches: Sequence[StateBatch]) -> list[StateBatch]:
    result: list[StateBatch] = []
    for batch in batches:
        if result and result[-1].last + 1 == batch.first and result[-1][2:] == batch[2:]:
            result[-1] = result[-1]._replace(last=batch.last)
        else:
            result.append(batch)
    return result
