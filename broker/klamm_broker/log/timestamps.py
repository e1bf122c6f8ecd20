"""Finds offsets by timestamp in a list of segments, for ListOffsets.

Time indexes lead to a segment and a position, batch headers to a batch; only that one batch is looked into. It may be large, and where
timestamps do not rise very many headers lie between two entries of an index: so both take steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from klamm_broker.log.record_rules import looking_inside
from klamm_broker.log.segment import Segment
from klamm_broker.log.steps import Steps
from klamm_kafka.wire.batch import read_header, sights
from klamm_kafka.wire.varint import Buffer

Found = tuple[int, int, int]
"""(timestamp, offset, leader epoch)"""
STEP: Final = 256
"""Headers in one step."""


def first_at_or_after(
    since: Callable[[int], Sequence[Segment]], timestamp: int, *, log_start_offset: int
) -> Steps[Found | None]:
    """Returns the first record from the log start on with at least this timestamp.

    `since` gives the segments from that with an offset on. It is asked again after each segment with steps: others can have been deleted
    meanwhile, or replaced by a cleaned one.
    """
    start = log_start_offset
    while True:
        held = since(start)
        number = next((n for n, s in enumerate(held) if s.largest_timestamp >= timestamp), None)
        if number is None:
            return None
        found = yield from _first_in_segment(held[number], timestamp, start)
        if found is not None or number + 1 == len(held):
            return found
        start = held[number + 1].base_offset


def largest(segments: Iterable[Segment]) -> Steps[Found | None]:
    """Returns the first record with the largest timestamp of all."""
    best = max((s for s in segments if s.size), key=lambda s: s.largest_timestamp, default=None)
    if best is None or best.largest_timestamp < 0:
        return None
    return (yield from _first_in_segment(best, best.largest_timestamp, best.base_offset))


def _first_in_segment(segment: Segment, timestamp: int, start: int) -> Steps[Found | None]:
    """Returns the first such record in a segment from the offset `start` on."""
    file = segment.file  # of a segment that is deleted meanwhile, too
    left = STEP
    first = max(segment.time_index.lookup(timestamp - 1), start)
    for position, size, _, last, largest in segment.heads(segment.index.lookup(first)):
        left -= 1
        if not left:
            left = STEP
            yield None
        if largest < timestamp or last < start:
            continue
        found = yield from _first_in(os.pread(file.fd, size, position), timestamp, start)
        if found is not None:
            return found
    return None


def _first_in(data: bytes, timestamp: int, log_start_offset: int) -> Steps[Found | None]:
    """Returns the first such record in a batch."""
    header = read_header(data)

    def look(body: Buffer) -> Steps[Found | None]:
        for seen in sights(body, header):
            for offset, at, _ in seen:
                if at >= timestamp and offset >= log_start_offset:
                    return at, offset, header.leader_epoch
            yield None
        return None

    return (yield from looking_inside(data, 0, header, look))
