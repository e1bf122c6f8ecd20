"""Translates where a group reads at a flow's source into where it goes on at the target: the topic, and the offset."""

from __future__ import annotations

import math
from collections.abc import Iterable

from klamm_kafka.client import Cluster
from klamm_mirror.checkpoint.kept_offsets import UNKNOWN, KeptOffsets
from klamm_mirror.checkpoint.opposite_topics import OppositeTopics
from klamm_mirror.checkpoint.settings import CheckpointSettings
from klamm_mirror.gaps.ledger import Ledger
from klamm_mirror.offsets.mapping import OffsetMapping, OffsetSyncReader, Translated
from klamm_mirror.offsets.segment_topic import SegmentReader
from klamm_mirror.offsets.shared_topics import translate_shared
from klamm_mirror.offsets.translation import Partition


class GroupTranslator:
    """The mappings of a flow and of the opposite one. `syncs_at_source`: a flow's offset syncs are at its source, else at
    its target.
    """

    def __init__(
        self, settings: CheckpointSettings, source: Cluster, target: Cluster, *, syncs_at_source: bool
    ) -> None:
        syncs, back_syncs = (source, target) if syncs_at_source else (target, source)
        self.forward = OffsetMapping(
            OffsetSyncReader(syncs, settings.syncs_topic), SegmentReader(target, settings.segments_topic)
        )
        self.left_out: dict[Partition, list[tuple[int, int]]] = {}
        """Ranges of the target whose records are not copied on purpose, the first first."""
        self._settings = settings
        self._kept = KeptOffsets(target, self.remote) if settings.keeps_offsets else None
        self._ledger = Ledger(target, settings.gaps_topic, settings.replication_factor)
        self._opposite = OppositeTopics(source, target, settings.back_gaps_topic)
        self._unmapped: frozenset[Partition] = frozenset()
        self._back = OffsetMapping(
            OffsetSyncReader(back_syncs, settings.back_syncs_topic, backwards=True),
            SegmentReader(source, settings.back_segments_topic),
            backwards=True,
        )

    async def catch_up(self) -> bool:
        """Reads what the flows have written. Returns False while nothing was mirrored. Raises ClientError."""
        await self._ledger.catch_up()
        if self._kept is not None:
            return True
        await self._opposite.catch_up()
        self._unmapped = self._ledger.table.unmapped()
        there = [await mapping.catch_up() for mapping in (self.forward, self._back)]
        return any(there)

    async def learn(self, partitions: Iterable[Partition], remotes: Iterable[str] = ()) -> None:
        """Asks what `translate` needs to know of these upstream partitions, and `mapped_since` of these downstream topics.
        Call it after the groups' offsets were read.
        """
        if self._kept is not None:
            await self._kept.learn([p for p in partitions if self._settings.wants_topic(p[0])])
        else:
            await self._opposite.learn(
                {self._original(topic) or topic for topic, _ in partitions} | set(remotes)
            )

    def _original(self, topic: str) -> str | None:
        return self._opposite.original(topic) or self._settings.original(topic)

    def remote(self, topic: str) -> str:
        """Returns the downstream name of an upstream topic, also where it was made anew and is copied under another."""
        known = self._ledger.table.topics.get(topic)
        return (known.remote if known is not None else None) or self._settings.rename(topic)

    def translate(self, topic: str, partition: int, offset: int) -> tuple[str, Translated] | None:
        """Returns the topic's name and the offset downstream; None for a topic that is not mirrored."""
        settings = self._settings
        mapped = self._opposite.original(topic)
        original = self._original(topic)
        remote = self.remote(topic)
        if original is not None and (mapped is None or remote != original):
            wanted = settings.wants_topic(original) or (mapped is not None and settings.wants_topic(topic))
            wanted = wanted and self._opposite.is_copy(original, topic)
            return (original, self._behind_left_out(original, partition, offset)) if wanted else None
        if not settings.wants_topic(topic):
            return None
        if self._kept is not None:
            follows = self._kept.follows(topic)
            return (remote, self._kept.translate(topic, partition, offset)) if follows else None
        if remote in {topic, mapped}:
            return remote, self._shared(topic, partition, offset, remote)
        return remote, self._forward(topic, partition, offset)

    def _forward(self, topic: str, partition: int, offset: int) -> Translated:
        if (topic, partition) in self._unmapped:
            return UNKNOWN
        return self.forward.translate(topic, partition, offset)

    def _shared(self, topic: str, partition: int, offset: int, there: str) -> Translated:
        if (topic, partition) in self._unmapped or not self._opposite.is_mapped(there, partition):
            return UNKNOWN
        left_out = self.left_out.get((topic, partition), ())
        return translate_shared(
            self.forward, self._back, topic, partition, offset, there=there, left_out=left_out
        )

    def _behind_left_out(self, topic: str, partition: int, offset: int) -> Translated:
        """Returns where a reader of a copy goes on in the original."""
        if not self._opposite.is_mapped(topic, partition):
            return UNKNOWN
        found = self._back.translate(topic, partition, offset)
        for start, end in self.left_out.get((topic, partition), ()):
            if found.offset is not None and start <= found.offset < end:
                found = found._replace(offset=end)
        return found

    def ends(self) -> dict[Partition, int]:
        """Returns the downstream offset behind each downstream partition's last known record."""
        ends = self.forward.ends() if self._kept is None else self._kept.ends()
        return {(self.remote(t), p): end for (t, p), end in ends.items()}

    def mapped_since(self, place: Partition) -> float:
        """Returns the time (ms) before which an offset in this downstream partition may mean a topic that was deleted;
        infinite: now, too.
        """
        return -math.inf if self._kept is not None else self._opposite.mapped_since(*place)

    def sets(self, remote: str) -> bool:
        """Returns True for a topic of the target in which groups follow their offsets at the source."""
        return self._kept is None or self._kept.is_mirror(remote)
