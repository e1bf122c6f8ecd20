"""Committable offsets: for each partition, the end of the records that are all dealt with, without a gap. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from klamm_plugins.records import TopicPartition


class Chunk:
    """Records of one partition that arrived together. `open` counts those not dealt with; `end` is the offset
    after them.

    `dropped`: the partition was revoked, and the rest of the chunk belongs to another task.
    """

    __slots__ = ("dropped", "end", "open")

    def __init__(self, end: int) -> None:
        self.open = 0
        self.end = end
        self.dropped = False


class Tracker:
    """The chunks of each partition, in order of arrival."""

    def __init__(self) -> None:
        self._chunks: dict[TopicPartition, deque[Chunk]] = {}
        self._done: dict[TopicPartition, int] = {}

    def begin(self, place: TopicPartition, end: int) -> Chunk:
        """Returns a chunk that ends before offset `end`. It counts as open by one until it is filled."""
        chunk = Chunk(end)
        chunk.open = 1
        self._chunks.setdefault(place, deque()).append(chunk)
        return chunk

    def committable(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the offset to continue from, for those partitions of `offsets` in which anything was ever dealt
        with.

        `offsets` is the end of the records that arrived. A partition with nothing open is committed up to it,
        including records that were filtered out on their way to the task.
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
        """Forgets these partitions."""
        for place in places:
            self._done.pop(place, None)
            for chunk in self._chunks.pop(place, ()):
                chunk.dropped = True
