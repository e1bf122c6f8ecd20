"""Translates a group's offset upstream into an offset downstream: pure, no I/O, no clock.

`OffsetSyncStore` takes offset syncs in the order of their topic and translates. `CheckpointStore` holds
each group's last checkpoints and lets nothing pass that would take a group back. `offsets_to_sync` chooses
the offsets that may be committed for a group at the target.

A translated offset never lies after a record that the group has not read upstream. It is exact at a sync,
else one after the nearest sync before it: a group may read some records again, but skips none. Syncs are
kept densely at a partition's end and ever more sparsely before it, at most 64 per partition, as in
MirrorMaker's OffsetSyncStore. Ours keeps all of the latest syncs and thins the older ones by a third of
their distance to the end, where MirrorMaker halves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from klamm_mirror.topics.formats import Checkpoint, OffsetSync

Partition = tuple[str, int]
"""Topic and partition."""

SYNCS_MAX: Final = 64
"""Syncs kept for each partition, as many as MirrorMaker keeps."""
SYNCS_AFTER_THINNING: Final = 52
# The gap between two kept syncs is at most this share of the older sync's distance to the end.
_PRECISIONS: Final = (16.0, 12.0, 8.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0)


class OffsetSyncStore:
    """Offset syncs by upstream partition."""

    def __init__(self) -> None:
        self._partitions: dict[Partition, _PartitionSyncs] = {}

    def apply(self, sync: OffsetSync) -> None:
        """Adds a sync that came after all others of its partition."""
        syncs = self._partitions.get((sync.topic, sync.partition))
        if syncs is None:
            syncs = self._partitions[sync.topic, sync.partition] = _PartitionSyncs()
        syncs.add(sync.upstream_offset, sync.downstream_offset)

    def translate(self, topic: str, partition: int, upstream_offset: int, *, since: int = 0) -> int | None:
        """Returns the downstream offset for a reader that is at `upstream_offset`, by syncs from `since` on.

        Returns None when no such sync lies at or before that offset, because no answer would be safe.
        """
        syncs = self._partitions.get((topic, partition))
        return None if syncs is None else syncs.translate(upstream_offset, since)

    def ends(self) -> dict[Partition, int]:
        """Returns the downstream offset of each upstream partition's last sync."""
        return {partition: syncs.downstream[-1] for partition, syncs in self._partitions.items()}

    def syncs(self, topic: str, partition: int) -> list[tuple[int, int]]:
        """Returns (upstream, downstream) of a partition's kept syncs, oldest first."""
        syncs = self._partitions.get((topic, partition))
        return [] if syncs is None else list(zip(syncs.upstream, syncs.downstream, strict=True))


class _PartitionSyncs:
    """Syncs of one partition in ascending order of both offsets."""

    __slots__ = ("downstream", "upstream")

    def __init__(self) -> None:
        self.upstream: list[int] = []
        self.downstream: list[int] = []

    def add(self, upstream: int, downstream: int) -> None:
        if self.upstream and (upstream < self.upstream[-1] or downstream < self.downstream[-1]):
            # The source began again, or the target lost records: the earlier syncs are worthless now.
            self.upstream.clear()
            self.downstream.clear()
        if self.upstream and upstream == self.upstream[-1]:
            self.downstream[-1] = downstream
            return
        self.upstream.append(upstream)
        self.downstream.append(downstream)
        if len(self.upstream) > SYNCS_MAX:
            keep = _spread(self.upstream)
            self.upstream = [self.upstream[i] for i in keep]
            self.downstream = [self.downstream[i] for i in keep]

    def translate(self, upstream: int, since: int) -> int | None:
        at = bisect_right(self.upstream, upstream) - 1
        if at < 0 or self.upstream[at] < since:
            return None
        if self.upstream[at] == upstream:
            return self.downstream[at]
        # Every record after a sync lies after it downstream too, but nobody knows how many of them were copied.
        behind = self.downstream[at] + 1
        return min(behind, self.downstream[at + 1]) if at + 1 < len(self.downstream) else behind


def _spread(offsets: list[int]) -> list[int]:
    """Selects the ascending offsets to keep: the last, the first, and between them ever fewer towards the first."""
    newest = offsets[-1]
    keep: list[int] = []
    for precision in _PRECISIONS:
        keep = [len(offsets) - 1]
        for i in range(len(offsets) - 2, 0, -1):
            older = offsets[i - 1]
            if (offsets[keep[-1]] - older) * precision > newest - older:
                keep.append(i)
        keep.append(0)
        if len(keep) <= SYNCS_AFTER_THINNING:
            break
    return keep[::-1]


class CheckpointStore:
    """The last checkpoint of each group and downstream partition."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Partition, Checkpoint]] = {}
        self._written: dict[tuple[str, Partition], int] = {}

    def remember(self, checkpoint: Checkpoint, written_ms: int) -> None:
        """Stores a checkpoint that was written or read back."""
        place = checkpoint.topic, checkpoint.partition
        self._groups.setdefault(checkpoint.group, {})[place] = checkpoint
        self._written[checkpoint.group, place] = written_ms

    def topics(self) -> set[str]:
        """Returns the downstream topics of the checkpoints."""
        return {topic for checkpoints in self._groups.values() for topic, _ in checkpoints}

    def is_news(self, checkpoint: Checkpoint) -> bool:
        """Returns True when the checkpoint takes the group forward, or follows a group that went back upstream.

        A later state of the syncs may translate the same offset to an earlier one. This is held back, as in
        MirrorMaker: a reader that moved would read records again.
        """
        last = self._groups.get(checkpoint.group, {}).get((checkpoint.topic, checkpoint.partition))
        return (
            last is None
            or checkpoint.upstream_offset < last.upstream_offset
            or checkpoint.downstream_offset > last.downstream_offset
        )

    def forget_beyond(self, ends: Mapping[Partition, int]) -> list[Checkpoint]:
        """Drops and returns checkpoints beyond a downstream partition's end: the partition has lost these records.

        No translation lies farther, so the topic was shortened or recreated.
        """
        gone = [
            checkpoint
            for checkpoints in self._groups.values()
            for partition, checkpoint in checkpoints.items()
            if partition in ends and checkpoint.downstream_offset > ends[partition]
        ]
        for checkpoint in gone:
            del self._groups[checkpoint.group][checkpoint.topic, checkpoint.partition]
        return gone

    def forget_outdated(self, since: Callable[[Partition], float]) -> list[Checkpoint]:
        """Drops and returns checkpoints that were not written after their downstream partition's time (ms): they may mean
        another topic of that name.
        """
        gone = [
            checkpoint
            for group, checkpoints in self._groups.items()
            for place, checkpoint in checkpoints.items()
            if self._written[group, place] <= since(place)
        ]
        for checkpoint in gone:
            del self._groups[checkpoint.group][checkpoint.topic, checkpoint.partition]
        return gone

    def of_group(self, group: str) -> dict[Partition, Checkpoint]:
        """Returns a group's last checkpoints by downstream partition."""
        return dict(self._groups.get(group, {}))

    def forget(self, groups: Iterable[str]) -> None:
        """Drops groups that are looked after elsewhere."""
        for group in groups:
            self._groups.pop(group, None)


def offsets_to_sync(
    checkpoints: Mapping[Partition, Checkpoint], committed: Mapping[Partition, int]
) -> dict[Partition, Checkpoint]:
    """Returns checkpoints to commit for a group at the target, where it has `committed`: none that takes the group
    back.
    """
    return {
        partition: checkpoint
        for partition, checkpoint in checkpoints.items()
        if committed.get(partition, -1) < checkpoint.downstream_offset
    }
