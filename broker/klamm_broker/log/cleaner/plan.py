"""Chooses the compacted log to clean next, and its offsets: pure functions of the logs' facts.

A log is clean up to a checkpoint, and dirty behind it. The cleaner never touches the active segment, records at or above
the last stable offset, and records younger than min.compaction.lag.ms. A log is due when the dirty share of its bytes
exceeds min.cleanable.dirty.ratio, or when a record in it has been dirty for max.compaction.lag.ms; the dirtiest log goes
first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from klamm_broker.log.config import LogConfig
from klamm_broker.log.segment import MAX_RELATIVE_OFFSET

SEGMENTS_IN_GROUP_MAX: Final = 512
"""Segments that can be released on the broker's loop in some milliseconds. Kafka has no such bound."""


class DirtySegment(NamedTuple):
    """The facts of a segment for the plan. The timestamps are looked up only where a lag is configured: -1 otherwise."""

    base_offset: int
    size: int
    largest_timestamp: int = -1
    first_timestamp: int = -1  # the largest of its first batch


class LogFacts(NamedTuple):
    """The facts of a compacted log. `clean_offset` is its checkpoint; the last segment is the active one."""

    name: str
    segments: Sequence[DirtySegment]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    clean_offset: int | None
    config: LogConfig


class Candidate(NamedTuple):
    """A log that has a part to clean: offsets from `first_dirty` to below `end` (the base of a segment)."""

    name: str
    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    min_ratio: float
    delay_ms: int  # the time beyond max.compaction.lag.ms that a record has been dirty

    @property
    def ratio(self) -> float:
        """The dirty share, from 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def due(self) -> bool:
        return (self.delay_ms > 0 and self.dirty_bytes > 0) or self.ratio > self.min_ratio


def first_dirty(facts: LogFacts) -> tuple[int, str | None]:
    """Returns where the dirty part begins, and what is wrong with the checkpoint if it cannot be used."""
    start, checkpoint = facts.log_start_offset, facts.clean_offset
    if checkpoint is None:
        return start, None
    if checkpoint < start:
        return start, f"the cleaner's checkpoint {checkpoint} is before the log start offset"
    if checkpoint > facts.log_end_offset:
        return (
            start,
            f"the cleaner's checkpoint {checkpoint} is beyond the log end offset {facts.log_end_offset}",
        )
    return checkpoint, None


def candidate(facts: LogFacts, now_ms: int) -> Candidate | None:
    """Returns the part of this log that could be cleaned now; None if it has only the active segment."""
    segments, config = facts.segments, facts.config
    if len(segments) < 2:
        return None
    dirty, _ = first_dirty(facts)
    bases = [segment.base_offset for segment in segments]
    active = len(segments) - 1
    first = min(max(bisect_right(bases, dirty) - 1, 0), active)  # the segment that has the first dirty offset
    uncleanable = min(facts.last_stable_offset, bases[active])
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        held = (s.base_offset for s in segments[first:active] if s.largest_timestamp > youngest)
        uncleanable = min(uncleanable, next(held, uncleanable))
    uncleanable = max(dirty, uncleanable)
    last = min(max(bisect_right(bases, uncleanable) - 1, 0), active)
    clean_bytes = sum(s.size for s in segments[: bisect_left(bases, dirty)])
    dirty_bytes = sum(s.size for s in segments[first:last])
    if clean_bytes + dirty_bytes == 0:
        return None
    return Candidate(
        name=facts.name,
        first_dirty=dirty,
        end=bases[last],
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        min_ratio=config.min_cleanable_dirty_ratio,
        delay_ms=_delay_ms(segments[first:active], config.max_compaction_lag_ms, now_ms),
    )


def _delay_ms(segments: Iterable[DirtySegment], lag_ms: int, now_ms: int) -> int:
    earliest = min((s.first_timestamp for s in segments if s.first_timestamp > 0), default=None)
    return 0 if earliest is None else max(now_ms - lag_ms - earliest, 0)


def dirtiest(candidates: Iterable[Candidate]) -> Candidate | None:
    """Returns the log to clean now, if any is due."""
    return max((c for c in candidates if c.due), key=lambda c: c.ratio, default=None)


class SourceSegment(NamedTuple):
    """A segment to clean, with the sizes of its files in bytes."""

    base_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


def group(
    segments: Sequence[SourceSegment], *, max_bytes: int, max_index_bytes: int, end: int
) -> list[list[SourceSegment]]:
    """Groups neighbours that go into one segment together, so that logs do not end up in ever smaller segments.

    Log and indexes of a group stay within the limits even if nothing is removed, and so do relative offsets. `end` is
    the offset up to which the log is cleaned.
    """
    groups: list[list[SourceSegment]] = []
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end
        members = groups[-1] if groups else []
        if (
            members
            and len(members) < SEGMENTS_IN_GROUP_MAX
            and sum(s.size for s in members) + segment.size <= max_bytes
            and sum(s.index_bytes for s in members) + segment.index_bytes <= max_index_bytes
            and sum(s.time_index_bytes for s in members) + segment.time_index_bytes <= max_index_bytes
            and (segment.size == 0 or following - 1 - members[0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            members.append(segment)
        else:
            groups.append([segment])
    return groups
