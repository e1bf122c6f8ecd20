"""Chooses the segments that are due for deletion: a pure function of their sizes and timestamps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SegmentFacts(NamedTuple):
    """The facts of a segment for retention. `end_offset` is the offset after its last record."""

    size: int
    end_offset: int
    timestamp: int  # the largest one in it, or the file's modification time if it has none


def deletable(
    segments: Sequence[SegmentFacts],
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    log_start_offset: int,
    high_watermark: int,
    delete_policy: bool,
) -> int:
    """Returns how many of the oldest segments may go. All of them means: roll first, then delete.

    A segment goes when its records are older than `retention_ms`, when the log stays at least
    `retention_bytes` without it, or when it lies below the log start offset; never above the high watermark,
    and never an empty active one.
    """
    excess = sum(s.size for s in segments) - retention_bytes
    count = 0
    for number, segment in enumerate(segments):
        active = number == len(segments) - 1
        if segment.end_offset > high_watermark or (active and segment.size == 0):
            break
        expired = delete_policy and 0 <= retention_ms < now_ms - segment.timestamp
        too_much = delete_policy and retention_bytes >= 0 and excess >= segment.size
        below_start = not active and segment.end_offset <= log_start_offset
        if not (expired or too_much or below_start):
            break
        excess -= segment.size
        count += 1
    return count
