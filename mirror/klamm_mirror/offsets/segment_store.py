"""The mapping of all partitions of a flow, as the topic of offset segments tells it: pure, no I/O, no clock.

All of it is kept in memory, up to a limit. Beyond the limit, the partitions that take most lose their oldest blocks;
offset syncs serve there. The loss is counted, and the topic gets tombstones for it (`trim`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import Final

from klamm_mirror.offsets.partition_blocks import PartitionBlocks
from klamm_mirror.offsets.segments import Block
from klamm_mirror.offsets.translation import Partition

BYTES_MAX: Final = 64 << 20
"""Memory of a store. Regular runs take almost nothing, irregular ones two bytes: these are some 35 million runs."""
ROOM_SHARE: Final = 16
"""The part of the memory that is made free at once, because a search for the largest partitions looks at all of them."""


class SegmentStore:
    """Blocks by upstream partition."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.shed = 0
        """The number of times that the oldest blocks of a partition were dropped to make room."""
        self._bytes_max = self._full = bytes_max
        self._size = 0
        self._partitions: dict[Partition, PartitionBlocks] = {}

    def apply(self, partition: Partition, block: Block) -> None:
        """Takes a block that came after all others of its partition, or replaces an earlier form of itself."""
        blocks = self._partitions.setdefault(partition, PartitionBlocks())
        self._size -= blocks.size
        blocks.apply(block)
        self._size += blocks.size
        if self._size > self._full:
            self._make_room()

    def _make_room(self) -> None:
        """Drops the oldest blocks of the largest partitions, except the last block of each."""
        room = self._bytes_max // ROOM_SHARE
        largest = [(-blocks.size, i, blocks) for i, blocks in enumerate(self._partitions.values())]
        heapify(largest)
        while largest and self._size > self._bytes_max - room:
            size, i, blocks = largest[0]
            if blocks.shed():
                heapreplace(largest, (-blocks.size, i, blocks))
                self._size += blocks.size + size
                self.shed += 1
            else:
                heappop(largest)
        self._full = max(self._bytes_max, self._size + room)

    def drop(self, partition: Partition, downstream: int) -> None:
        """Drops the block that begins at this downstream offset: the topic has a tombstone for it."""
        if (blocks := self._partitions.get(partition)) is not None:
            self._size -= blocks.size
            blocks.drop(downstream)
            self._size += blocks.size

    def trim(self, partition: Partition, log_start: int) -> list[int]:
        """Notes the target's log start. Drops blocks whose records all lie before it, except the last.

        Returns where the dropped blocks began downstream, and those that later copies have replaced or that had to make
        room.
        """
        if (blocks := self._known(partition)) is None:
            return []
        self._size -= blocks.size
        gone = blocks.trim(log_start)
        self._size += blocks.size
        return gone

    def translate(self, partition: Partition, upstream: int) -> int | None:
        """Returns the downstream offset of this very record, or of the next if there is none at this offset.

        Returns None where the mapping does not reach.
        """
        blocks = self._known(partition)
        return None if blocks is None else blocks.translate(upstream)

    def translate_back(self, partition: Partition, downstream: int) -> int | None:
        """Returns the upstream offset of the record at this downstream offset, or of the next."""
        blocks = self._known(partition)
        return None if blocks is None else blocks.translate_back(downstream)

    def first_without(self, partition: Partition, offset: int, *, upstream: bool) -> int:
        """Returns the first offset from `offset` on, upstream or downstream, at which no known record lies."""
        blocks = self._known(partition)
        return offset if blocks is None else blocks.first_without(offset, upstream=upstream)

    def begin(self, partition: Partition) -> int | None:
        """Returns the upstream offset from which everything is known."""
        blocks = self._known(partition)
        return None if blocks is None else blocks.begin

    def end(self, partition: Partition) -> tuple[int, int] | None:
        """Returns the offsets, upstream and downstream, behind the last known record."""
        blocks = self._known(partition)
        return None if blocks is None else blocks.end

    def ends(self) -> dict[Partition, tuple[int, int]]:
        """Returns the offsets, upstream and downstream, behind each partition's last known record."""
        return {p: blocks.end for p, blocks in self._partitions.items() if blocks}

    def _known(self, partition: Partition) -> PartitionBlocks | None:
        return self._partitions.get(partition) or None
