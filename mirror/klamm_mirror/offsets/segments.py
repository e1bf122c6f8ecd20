"""The exact mapping of a partition's offsets from upstream to downstream: pure, no I/O, no clock.

A segment says that so many `records` lie one after the other, from `upstream` at the source and from `downstream` at the
target. Only a discontinuity begins a new segment: a hole left by compaction or aborted records, a transaction's marker
at the target, a record that was written twice. A `Block` is a row of segments, which is one record of the segments'
topic. `SegmentLog` makes the blocks of a partition while it is copied. `SegmentStore` takes the blocks of all
partitions in the order of the topic, and translates in both directions.

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
from klamm_mirror.offsets.translation import Partition

SEGMENTS_MAX: Final = 128
"""Segments of a block: the open block is written again whenever it grows, so it must stay small."""
UNPACKED_MAX: Final = 64
"""Blocks kept unpacked: groups that read the same partition are often near each other."""
BLOCKS_MAX: Final = 4096
"""Blocks that a store keeps of one partition, some 2 MB. Offsets before them are left to the offset syncs."""


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
        """Returns the part that lies before these offsets on both sides; None when nothing does."""
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
        if back or len(self._open) >= SEGMENTS_MAX:
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


class SegmentStore:
    """Blocks by upstream partition."""

    def __init__(self) -> None:
        self._partitions: dict[Partition, _Blocks] = {}

    def apply(self, partition: Partition, block: Block) -> None:
        """Takes a block that came after all others of its partition, or replaces an earlier form of itself."""
        self._partitions.setdefault(partition, _Blocks()).apply(block)

    def drop(self, partition: Partition, downstream: int) -> None:
        """Drops the block that begins at this downstream offset: the topic has a tombstone for it."""
        if (blocks := self._partitions.get(partition)) is not None:
            blocks.blocks = [b for b in blocks.blocks if b.downstream != downstream]
            blocks.replaced.discard(downstream)

    def trim(self, partition: Partition, log_start: int) -> list[int]:
        """Notes the target's log start. Drops blocks whose records all lie before it, except the last.

        Returns where the dropped blocks began downstream, and those that later copies have replaced.
        """
        blocks = self._partitions.get(partition)
        return [] if blocks is None else blocks.trim(log_start)

    def translate(self, partition: Partition, upstream: int) -> int | None:
        """Returns the downstream offset of this very record, or of the next if there is none at this offset.

        Returns None where the mapping does not reach.
        """
        blocks = self._partitions.get(partition)
        return blocks.translate(upstream) if blocks is not None and blocks.blocks else None

    def translate_back(self, partition: Partition, downstream: int) -> int | None:
        """Returns the upstream offset of the record at this downstream offset, or of the next."""
        blocks = self._partitions.get(partition)
        return blocks.translate_back(downstream) if blocks is not None and blocks.blocks else None

    def first_without(self, partition: Partition, offset: int, *, upstream: bool) -> int:
        """Returns the first offset from `offset` on, upstream or downstream, at which no known record lies."""
        blocks = self._partitions.get(partition)
        for block in blocks.blocks if blocks is not None else ():
            if (block.upstream_end if upstream else block.downstream_end) > offset:
                for segment in block.segments:
                    first = segment.upstream if upstream else segment.downstream
                    if first <= offset < first + segment.records:
                        offset = first + segment.records
        return offset

    def begin(self, partition: Partition) -> int | None:
        """Returns the upstream offset from which everything is known."""
        blocks = self._partitions.get(partition)
        return blocks.blocks[0].covered if blocks is not None and blocks.blocks else None

    def end(self, partition: Partition) -> tuple[int, int] | None:
        """Returns the offsets, upstream and downstream, behind the last known record."""
        blocks = self._partitions.get(partition)
        return blocks.end if blocks is not None and blocks.blocks else None

    def ends(self) -> dict[Partition, tuple[int, int]]:
        """Returns the offsets, upstream and downstream, behind each partition's last known record."""
        return {p: blocks.end for p, blocks in self._partitions.items() if blocks.blocks}


class _Blocks:
    """Blocks of one partition: disjoint and ascending on both sides."""

    __slots__ = ("blocks", "log_start", "replaced")

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.log_start = 0
        self.replaced: set[int] = set()
        """Where blocks began downstream of which nothing is left; the topic still has them."""

    @property
    def end(self) -> tuple[int, int]:
        return self.blocks[-1].upstream_end, self.blocks[-1].downstream_end

    def apply(self, block: Block) -> None:
        # From `covered` on, the source was copied again. From `downstream` on, the target has lost what it had.
        while self.blocks:
            last = self.blocks.pop()
            kept = last.before(upstream=block.covered, downstream=block.downstream)
            if kept is not None:
                self.blocks.append(kept)
                break
            self.replaced.add(last.downstream)
        self.replaced.discard(block.downstream)
        self.blocks.append(block)
        del self.blocks[:-BLOCKS_MAX]
        self.log_start = min(self.log_start, block.downstream)

    def trim(self, log_start: int) -> list[int]:
        self.log_start = log_start
        gone = [b.downstream for b in self.blocks[:-1] if b.downstream_end <= log_start]
        self.blocks = self.blocks[len(gone) :]
        # A writer may begin a block anew only from the last one on.
        replaced = {at for at in self.replaced if at < self.blocks[-1].downstream}
        self.replaced -= replaced
        return [*gone, *sorted(replaced)]

    def translate(self, upstream: int) -> int | None:
        at = bisect_right(self.blocks, upstream, key=lambda b: b.upstream) - 1
        if at >= 0 and upstream < self.blocks[at].upstream_end:
            return max(self.blocks[at].find(upstream), self.log_start)
        if at + 1 < len(self.blocks):
            after = self.blocks[at + 1]
            known = upstream >= after.covered or (at < 0 and after.downstream <= self.log_start)
            return max(after.downstream, self.log_start) if known else None
        return max(self.end[1], self.log_start) if upstream == self.end[0] else None

    def translate_back(self, downstream: int) -> int | None:
        downstream = max(downstream, self.log_start)
        at = bisect_right(self.blocks, downstream, key=lambda b: b.downstream) - 1
        if at >= 0 and downstream < self.blocks[at].downstream_end:
            return self.blocks[at].find_back(downstream)
        if at + 1 < len(self.blocks):
            after = self.blocks[at + 1]
            known = after.covered <= (self.blocks[at].upstream_end if at >= 0 else 0)
            return after.upstream if known else None
        return self.end[0] if downstream == self.end[1] else None
