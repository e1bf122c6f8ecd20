"""The exact mapping of a partition's offsets from upstream to downstream: pure, no I/O, no clock.

A segment says that so many `records` lie one after the other, from `upstream` at the source and from `downstream` at the
target. Only a discontinuity begins a new segment: a hole left by compaction or aborted records, a transaction's marker
at the target, a record that was written twice. A `Block` is a row of segments, which is one record of the segments'
topic. `SegmentLog` makes the blocks of a partition while it is copied. `segment_store.SegmentStore` takes the blocks of
all partitions in the order of the topic, and translates in both directions.

`Block.covered` is the upstream offset from which the block's writer knows everything: whatever lies between it and the
first record is a hole. So an offset in a hole is translated to the next record. An offset that no writer has covered
(another mirror was at work then) has no translation here; offset syncs serve it.

When the source is copied again from an upstream offset on, the later copies replace the earlier ones: a reader that
continues in the last copy meets each later record once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, Self

from klamm_kafka.wire.varint import VARLONG_BYTES_MAX, decode_uvarint, encode_uvarint

SEGMENTS_MAX: Final = 128
"""Segments of a block: the open block is written again whenever it grows, so it must stay small."""
UNPACKED_MAX: Final = 64
"""Blocks kept unpacked: groups that read the same partition are often near each other."""


class Segment(NamedTuple):
    """A row of records without a discontinuity: the first record's offsets, and the number of records."""

    upstream: int
    downstream: int
    records: int

    @property
    def upstream_end(self) -> int:
        return self.upstream + self.records

    @property
    def downstream_end(self) -> int:
        return self.downstream + self.records


@dataclass(frozen=True, slots=True)
class Block:
    """Segments of one partition, ascending on both sides and at least one, packed as numbers of variable length.

    `packed` holds the first segment's count, then for each further one the offsets skipped upstream, those skipped
    downstream, and its count.
    """

    covered: int
    upstream: int
    downstream: int
    upstream_end: int
    downstream_end: int
    packed: bytes

    @classmethod
    def of(cls, covered: int, segments: Iterable[Segment]) -> Self:
        """Packs segments."""
        first, *rest = segments
        packed, last = bytearray(encode_uvarint(first.records)), first
        for segment in rest:
            packed += encode_uvarint(segment.upstream - last.upstream_end)
            packed += encode_uvarint(segment.downstream - last.downstream_end)
            packed += encode_uvarint(segment.records)
            last = segment
        ends = last.upstream_end, last.downstream_end
        return cls(covered, first.upstream, first.downstream, *ends, bytes(packed))

    @classmethod
    def unpack(cls, covered: int, upstream: int, downstream: int, packed: bytes) -> Self:
        """Makes a block of its stored form. Raises ValueError."""
        try:
            last = list(_segments(upstream, downstream, packed))[-1]
        except IndexError:
            raise ValueError("the segments are cut off") from None
        return cls(covered, upstream, downstream, last.upstream_end, last.downstream_end, packed)

    @property
    def segments(self) -> list[Segment]:
        return list(_segments(self.upstream, self.downstream, self.packed))

    def find(self, upstream: int) -> int:
        """Returns the downstream offset of the record at `upstream` or of the next, which must be in the block."""
        segments = _unpacked(self.upstream, self.downstream, self.packed)
        found = segments[bisect_right(segments, upstream, key=lambda s: s.upstream_end)]
        return found.downstream + max(upstream - found.upstream, 0)

    def find_back(self, downstream: int) -> int:
        """Returns the upstream offset of the record at `downstream` or of the next, which must be in the block."""
        segments = _unpacked(self.upstream, self.downstream, self.packed)
        found = segments[bisect_right(segments, downstream, key=lambda s: s.downstream_end)]
        return found.upstream + max(downstream - found.downstream, 0)

    def before(self, *, upstream: int, downstream: int) -> Block | None:
        """Returns the part that lies before these offsets on both sides; None when no record does."""
        if self.upstream_end == self.upstream:
            return None
        if self.upstream_end <= upstream and self.downstream_end <= downstream:
            return self
        kept = []
        for segment in self.segments:
            count = min(segment.records, upstream - segment.upstream, downstream - segment.downstream)
            if count > 0:
                kept.append(segment._replace(records=count))
        return Block.of(self.covered, kept) if kept else None


@lru_cache(maxsize=UNPACKED_MAX)
def _unpacked(upstream: int, downstream: int, packed: bytes) -> tuple[Segment, ...]:
    return tuple(_segments(upstream, downstream, packed))


def _segments(upstream: int, downstream: int, packed: bytes) -> Iterator[Segment]:
    def number(pos: int) -> tuple[int, int]:
        return decode_uvarint(packed, pos, VARLONG_BYTES_MAX)

    count, pos = number(0)
    yield Segment(upstream, downstream, count)
    while pos < len(packed):
        up, pos = number(pos)
        down, pos = number(pos)
        upstream, downstream = upstream + count + up, downstream + count + down
        count, pos = number(pos)
        if not count:
            raise ValueError("a segment without records")
        yield Segment(upstream, downstream, count)


@dataclass(slots=True)
class SegmentLog:
    """Blocks of one partition in the making. `take` returns those that changed and must be written."""

    segments_max: int = SEGMENTS_MAX
    _known: int = -1
    """The upstream offset up to which everything is known; -1: nothing is."""
    _covered: int = -1
    _open: list[Segment] = field(default_factory=list)
    _changed: list[Block] = field(default_factory=list)
    _grown: bool = False

    def begin(self, upstream: int) -> None:
        """Begins anew: the next records are those from `upstream` on."""
        self._close()
        self._known = upstream

    def begin_anew(self, upstream: int, downstream: int) -> None:
        """Begins with another log, or another copy: its records from `upstream` on will lie from `downstream` on. A block without
        records takes the place of what was known, until the first record is there.
        """
        self._open, self._grown = [], False
        self._changed = [Block.of(0, [Segment(upstream, downstream, 0)])]
        self._known = upstream

    def add(self, segment: Segment) -> None:
        """Notes records that the target has."""
        last = self._open[-1] if self._open else None
        if last is not None and last[:2] == (
            segment.upstream - last.records,
            segment.downstream - last.records,
        ):
            self._open[-1] = last._replace(records=last.records + segment.records)
        else:
            self._begin_segment(segment, last)
        self._grown = True
        self._known = segment.upstream_end

    def skip(self, upstream: int) -> None:
        """Notes that there are no records before this offset that were not added."""
        self._known = max(self._known, upstream)

    def take(self) -> list[Block]:
        """Returns the blocks that changed since the last call, oldest first."""
        if self._grown:
            self._changed.append(Block.of(self._covered, self._open))
            self._grown = False
        changed, self._changed = self._changed, []
        return changed

    def _begin_segment(self, segment: Segment, last: Segment | None) -> None:
        back = last is not None and (
            segment.upstream < last.upstream_end or segment.downstream < last.downstream_end
        )
        if back or len(self._open) >= self.segments_max:
            self._close()
        if not self._open:
            known = segment.upstream if self._known < 0 else min(self._known, segment.upstream)
            # Nothing lies before the target's first record, so no earlier offset can mean anything else.
            self._covered = known if segment.downstream else 0
        self._open.append(segment)

    def _close(self) -> None:
        if self._grown:
            self._changed.append(Block.of(self._covered, self._open))
        self._open, self._grown = [], False
