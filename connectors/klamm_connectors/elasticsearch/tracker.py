"""What may be committed: for each partition, the end of the records that are all dealt with, without a gap. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from klamm_plugins.records import TopicPartition


class Chunk:
    """Records of one partition that came together: `open` of them are not dealt with, `end` is the offset after them.

    `dropped`: the partition went away, and what is left of the chunk is somebody else's.
    """

    __slots__ = ("dropped", "end", "open")

    def __init__(self, end: int) -> None:
        self.open = 0
        self.end = end
        self.dropped = False


class Tracker:
    """Chunks in the order in which they came, by partition."""

    def __init__(self) -> None:
        self._chunks: dict[TopicPartition, deque[Chunk]] = {}
        self._done: dict[TopicPartition, int] = {}

    def begin(self, place: TopicPartition, end: int) -> Chunk:
        """A chunk that ends before offset `end`. It is open, by one, until it was filled."""
        chunk = Chunk(end)
        chunk.open = 1
        self._chunks.setdefault(place, deque()).append(chunk)
        return chunk

    def committable(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset to go on from, for those partitions of `offsets` where anything was ever dealt with.

        `offsets` is where the records that came end: what nothing is open before, records that were left out on
        their way to the task included.
        """
        found = {}
        for place, end in offsets.items():
            chunks = self._chunks.get(place, deque())
            while chunks and not chunks[0].open:
                self._done[place] = chunks.popleft().end
            if not chunks:
                found[place] = end
            elif place in self._done:
                found[place] = self._done[place]
        return found

    def drop(self, places: Collection[TopicPartition]) -> None:
        """Forget these partitions."""
        for place in places:
            self._done.pop(place, None)
            for chunk in self._chunks.pop(place, ()):
                chunk.dropped = True
