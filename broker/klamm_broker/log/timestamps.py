"""Finds offsets by timestamp in a list of segments, for ListOffsets.

Time indexes lead to a segment and a position, batch headers to a batch; only that one batch is
decoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from klamm_broker.log.segment import Segment
from klamm_kafka.wire.batch import Record, decode_records, read_header

Found = tuple[int, int, int]
"""(timestamp, offset, leader epoch)"""


def first_at_or_after(segments: Iterable[Segment], timestamp: int, *, log_start_offset: int) -> Found | None:
    """Returns the first record from the log start on with at least this timestamp."""
    for segment in segments:
        if segment.largest_timestamp < timestamp:
            continue
        start = max(segment.time_index.lookup(timestamp - 1), log_start_offset)
        for position, size, _, last, largest in segment.heads(segment.index.lookup(start)):
            if largest < timestamp or last < log_start_offset:
                continue
            records, epoch = _records(segment, position, size)
            for record in records:
                if record.timestamp >= timestamp and record.offset >= log_start_offset:
                    return record.timestamp, record.offset, epoch
    return None


def largest(segments: Iterable[Segment]) -> Found | None:
    """Returns the first record with the largest timestamp of all."""
    best = max((s for s in segments if s.size), key=lambda s: s.largest_timestamp, default=None)
    if best is None or best.largest_timestamp < 0:
        return None
    wanted = best.largest_timestamp
    return first_at_or_after([best], wanted, log_start_offset=best.base_offset)


def _records(segment: Segment, position: int, size: int) -> tuple[list[Record], int]:
    data = os.pread(segment.file.fd, size, position)
    return decode_records(data), read_header(data).leader_epoch
