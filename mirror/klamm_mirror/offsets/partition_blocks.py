"""The blocks of one partition, see `segments`: the latest as they are, those before them compressed. Pure.

A block may only change while it is among the last. So older blocks are kept in packs. Runs of records that transactions
end are alike, and a run that takes five bytes in a block takes about one in a pack. Regular runs take almost nothing.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from struct import Struct
from typing import Final, Self

from klamm_mirror.offsets.segments import Block

PACK_BLOCKS: Final = 16
LATEST_MAX: Final = 17
"""Blocks of a partition that are not packed. One stays at least: it grows, or a writer that begins anew replaces it."""
OPEN_PACKS: Final = 16
"""Packs kept open: groups that read the same partition are often near each other."""
OVERHEAD: Final = 350
"""The memory that a block or a pack takes beside its bytes."""
_BLOCK: Final = Struct(">qqqqqI")
_UPSTREAM: Final = attrgetter("upstream")
_DOWNSTREAM: Final = attrgetter("downstream")


@dataclass(frozen=True, slots=True)
class Pack:
    """Blocks that are kept compressed. `covered`, `upstream` and `downstream` are those of the first."""

    covered: int
    upstream: int
    downstream: int
    upstream_end: int
    downstream_end: int
    data: bytes

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Self:
        """Packs blocks, at least one."""
        rows = bytearray()
        for b in blocks:
            rows += _BLOCK.pack(
                b.covered, b.upstream, b.downstream, b.upstream_end, b.downstream_end, len(b.packed)
            )
            rows += b.packed
        first, last = blocks[0], blocks[-1]
        ends = last.upstream_end, last.downstream_end
        return cls(first.covered, first.upstream, first.downstream, *ends, zlib.compress(rows))

    @property
    def blocks(self) -> tuple[Block, ...]:
        return _blocks(self.data)

    @property
    def size(self) -> int:
        return len(self.data) + OVERHEAD


@lru_cache(maxsize=OPEN_PACKS)
def _blocks(data: bytes) -> tuple[Block, ...]:
    rows, pos, found = zlib.decompress(data), 0, []
    while pos < len(rows):
        covered, up, down, up_end, down_end, length = _BLOCK.unpack_from(rows, pos)
        pos += _BLOCK.size
        found.append(Block(covered, up, down, up_end, down_end, rows[pos : pos + length]))
        pos += length
    return tuple(found)


class PartitionBlocks:
    """Blocks of one partition: disjoint and ascending on both sides."""

    __slots__ = ("_latest", "_log_start", "_packed", "_packs", "_replaced")

    def __init__(self) -> None:
        self._packed = 0
        """The sum of the packs' sizes."""
        self._packs: list[Pack] = []
        self._latest: list[Block] = []
        """Not empty, once there was a block."""
        self._log_start = 0
        self._replaced: set[int] = set()
        """Where blocks began downstream of which nothing is kept; the topic still has them."""

    def __bool__(self) -> bool:
        return bool(self._latest)

    @property
    def size(self) -> int:
        """The memory that the blocks take, in bytes."""
        return self._packed + sum(len(block.packed) + OVERHEAD for block in self._latest)

    @property
    def begin(self) -> int:
        return (self._packs or self._latest)[0].covered

    @property
    def end(self) -> tuple[int, int]:
        return self._latest[-1].upstream_end, self._latest[-1].downstream_end

    # ---- changes

    def apply(self, block: Block) -> None:
        # From `covered` on, the source was copied again. From `downstream` on, the target has lost what it had.
        while self._latest:
            last = self._latest.pop()
            kept = last.before(upstream=block.covered, downstream=block.downstream)
            if kept is not None:
                self._latest.append(kept)
                break
            self._replaced.add(last.downstream)
            self._open_last()
        self._replaced.discard(block.downstream)
        self._latest.append(block)
        self._log_start = min(self._log_start, block.downstream)
        if len(self._latest) > LATEST_MAX:
            self._replace_packs(len(self._packs), self._latest[:PACK_BLOCKS])
            del self._latest[:PACK_BLOCKS]

    def drop(self, downstream: int) -> None:
        """Drops the block that begins at this downstream offset."""
        self._replaced.discard(downstream)
        at = bisect_right(self._packs, downstream, key=_DOWNSTREAM) - 1
        if at >= 0 and downstream < self._packs[at].downstream_end:
            self._replace_packs(at, [b for b in self._packs[at].blocks if b.downstream != downstream])
        else:
            self._latest = [b for b in self._latest if b.downstream != downstream]
            self._open_last()

    def trim(self, log_start: int) -> list[int]:
        """Drops the blocks before the target's log start, except the last, and forgets those that were replaced.

        Returns where all these began downstream.
        """
        self._log_start = log_start
        gone: list[int] = []
        while self._packs and self._packs[0].blocks[0].downstream_end <= log_start:
            blocks = self._packs[0].blocks
            gone += _before(blocks, log_start)
            self._replace_packs(0, [b for b in blocks if b.downstream_end > log_start])
        gone += (before := _before(self._latest[:-1], log_start))
        del self._latest[: len(before)]
        # A writer may begin a block anew only from the last one on.
        replaced = {at for at in self._replaced if at < self._latest[-1].downstream}
        self._replaced -= replaced
        return [*gone, *sorted(replaced)]

    def shed(self) -> bool:
        """Drops the oldest blocks to make room. Returns False when only the last block is left."""
        if not self._packs and len(self._latest) == 1:
            return False
        if self._packs:
            self._replaced |= {b.downstream for b in self._packs[0].blocks}
            self._replace_packs(0, [])
        else:
            self._replaced.add(self._latest.pop(0).downstream)
        return True

    def _replace_packs(self, at: int, blocks: Sequence[Block]) -> None:
        """Puts these blocks in the place of a pack, or behind the last pack."""
        packs = [Pack.of(blocks)] if blocks else []
        self._packed += sum(p.size for p in packs) - sum(p.size for p in self._packs[at : at + 1])
        self._packs[at : at + 1] = packs

    def _open_last(self) -> None:
        """Unpacks blocks when no other is left."""
        if not self._latest and self._packs:
            pack = self._packs.pop()
            self._packed -= pack.size
            self._latest = list(pack.blocks)

    # ---- questions

    def translate(self, upstream: int) -> int | None:
        block, after = self._around(upstream, _UPSTREAM)
        if block is not None and upstream < block.upstream_end:
            return max(block.find(upstream), self._log_start)
        if after is not None:
            known = upstream >= after.covered or (block is None and after.downstream <= self._log_start)
            return max(after.downstream, self._log_start) if known else None
        return max(self.end[1], self._log_start) if upstream == self.end[0] else None

    def translate_back(self, downstream: int) -> int | None:
        downstream = max(downstream, self._log_start)
        block, after = self._around(downstream, _DOWNSTREAM)
        if block is not None and downstream < block.downstream_end:
            return block.find_back(downstream)
        if after is not None:
            known = after.covered <= (0 if block is None else block.upstream_end)
            return after.upstream if known else None
        return self.end[0] if downstream == self.end[1] else None

    def first_without(self, offset: int, *, upstream: bool) -> int:
        """Returns the first offset from `offset` on, upstream or downstream, at which no known record lies."""
        for block in self._ending_after(offset, upstream=upstream):
            for segment in block.segments:
                first = segment.upstream if upstream else segment.downstream
                if first > offset:
                    return offset
                offset = max(offset, first + segment.records)
        return offset

    def _around(self, offset: int, side: attrgetter[int]) -> tuple[Block | None, Block | Pack | None]:
        """Returns the last block that begins at or before an offset, and what follows it."""
        if side(self._latest[0]) <= offset:
            return _pair(self._latest, offset, side, None)
        at = bisect_right(self._packs, offset, key=side) - 1
        after: Block | Pack = self._packs[at + 1] if at + 1 < len(self._packs) else self._latest[0]
        return (None, after) if at < 0 else _pair(self._packs[at].blocks, offset, side, after)

    def _ending_after(self, offset: int, *, upstream: bool) -> Iterator[Block]:
        end = attrgetter("upstream_end" if upstream else "downstream_end")
        for pack in self._packs[bisect_right(self._packs, offset, key=end) :]:
            yield from (b for b in pack.blocks if end(b) > offset)
        yield from (b for b in self._latest if end(b) > offset)


def _before(blocks: Iterable[Block], log_start: int) -> list[int]:
    return [b.downstream for b in blocks if b.downstream_end <= log_start]


def _pair(
    blocks: Sequence[Block], offset: int, side: attrgetter[int], behind: Block | Pack | None
) -> tuple[Block, Block | Pack | None]:
    at = bisect_right(blocks, offset, key=side) - 1
    return blocks[at], blocks[at + 1] if at + 1 < len(blocks) else behind
