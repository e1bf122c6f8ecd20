"""Translates a group's offset between a flow's clusters, as exactly as the flow's own topics allow.

`OffsetMapping` reads the flow's offset segments and offset syncs. Segments translate exactly. Where they do not reach, the
nearest sync serves: no record is skipped, some may be read again. `backwards` exchanges upstream and downstream: for
the readers of a mirrored topic who go back to the original.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm_kafka.client import Cluster
from klamm_kafka.wire.batch import Record
from klamm_mirror.offsets.segment_topic import SegmentReader
from klamm_mirror.offsets.translation import OffsetSyncStore, Partition
from klamm_mirror.topics.follower import TopicFollower
from klamm_mirror.topics.formats import OffsetSync


class Translated(NamedTuple):
    """An offset at the other cluster (None: unknown). `exact`: it is that of the very record, or of the next."""

    offset: int | None
    exact: bool


class OffsetSyncReader(TopicFollower):
    """Reads the topic of offset syncs into a store.

    `backwards`: at the nearest sync before a reader's position in the mirrored topic, the reader has seen all records
    up to it in the original's order. So continuing after that sync skips no record either.
    """

    def __init__(self, cluster: Cluster, topic: str, *, backwards: bool = False) -> None:
        super().__init__(cluster, topic)
        self.store = OffsetSyncStore()
        self._backwards = backwards

    def reset(self) -> None:
        self.store = OffsetSyncStore()

    def take(self, record: Record) -> None:
        sync = OffsetSync.decode(record.key, record.value)
        if self._backwards:
            sync = OffsetSync(sync.topic, sync.partition, sync.downstream_offset, sync.upstream_offset)
        self.store.apply(sync)


class OffsetMapping:
    """The mapping of one flow's offsets. Topics have their upstream names."""

    def __init__(self, syncs: OffsetSyncReader, segments: SegmentReader, *, backwards: bool = False) -> None:
        self._syncs = syncs
        self._segments = segments
        self._backwards = backwards

    async def catch_up(self) -> bool:
        """Reads both topics to their ends. Returns False while neither exists."""
        there = [await self._syncs.catch_up(), await self._segments.catch_up()]
        return any(there)

    async def trim(self, log_starts: dict[Partition, int], *, write: bool) -> None:
        """Drops what maps records that are gone from the target, see `SegmentReader.trim`."""
        await self._segments.trim(log_starts, write=write)

    def translate(self, topic: str, partition: int, offset: int) -> Translated:
        """Returns the offset for a reader that is at `offset`."""
        key = topic, partition
        segments = self._segments.store
        exact = segments.translate_back(key, offset) if self._backwards else segments.translate(key, offset)
        if exact is not None:
            return Translated(exact, exact=True)
        here, there, ends = 0, None, segments.end(key)
        if ends is not None:
            end_here, end_there = reversed(ends) if self._backwards else ends
            if offset > end_here:  # syncs before that end tell less, or tell of another topic
                here, there = end_here, end_there
        known = there, self._syncs.store.translate(topic, partition, offset, since=here)
        return Translated(max((o for o in known if o is not None), default=None), exact=False)

    def read_past(self, topic: str, partition: int, offset: int) -> int | None:
        """Returns the other side's offset behind all known records, if a reader at `offset` is past them; else None."""
        ends = self._segments.store.end((topic, partition))
        if ends is None:
            return None
        here, there = reversed(ends) if self._backwards else ends
        return there if offset >= here else None

    def first_without(self, topic: str, partition: int, offset: int) -> int:
        """Returns the first offset from `offset` on, on the side that is translated to, at which no known record lies."""
        return self._segments.store.first_without((topic, partition), offset, upstream=self._backwards)

    def begin(self, topic: str, partition: int) -> int | None:
        """Returns the upstream offset from which everything is known."""
        return self._segments.store.begin((topic, partition))

    def ends(self) -> dict[Partition, int]:
        """Returns the downstream offset behind each partition's last known record."""
        ends = {p: end + 1 for p, end in self._syncs.store.ends().items()}
        for partition, (_, end) in self._segments.store.ends().items():
            ends[partition] = max(end, ends.get(partition, 0))
        return ends
