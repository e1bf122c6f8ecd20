"""`klamm backup verify --against`: compares a backup with a cluster, be it the one that was backed up or one that it was restored to.

Batches whose bytes are the same on both sides are not decoded. A partition ends at its first difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.groups import committed
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import known_offsets
from klamm.admin.topics import Topic as AdminTopic
from klamm.admin.topics import list_topics
from klamm.backup.cluster_state import id_of, topic_configs
from klamm.backup.folder import BackupFolder
from klamm.backup.mapping import Mapping as Offsets
from klamm.backup.model import Group, Partition, State, Topic
from klamm.backup.pairing import Pairing
from klamm.backup.progress import Progress
from klamm.backup.reading import PartitionReader, Source
from klamm.backup.replay import Replay
from klamm.backup.selection import Names, Selection
from klamm.backup.together import together
from klamm_kafka.client import Cluster
from klamm_kafka.wire.batch import HEADER_BYTES, Record, decode_records
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.raw import Batch, Counts, convert

AT_A_TIME: Final = 4
_COMPARED: Final = slice(27, 43)
"""Base and maximum timestamp in a batch's header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    topic: Topic
    partition: Partition
    target: str
    target_id: bytes
    same: bool
    """The cluster has the topic that was backed up, not a copy."""
    lenient: bool
    start: int
    end: int


@dataclass(slots=True, kw_only=True)
class Comparison:
    """Counts of compared records, and the differences as sentences."""

    topics: int = 0
    equal: int = 0
    compacted: int = 0
    deleted: int = 0
    """Offsets of the backup that retention has deleted from the cluster since."""
    offsets: int = 0
    """Groups' offsets that are where they should be, or further on."""
    differences: list[str] = field(default_factory=list)

    def add(self, part: _Part, pairing: Pairing) -> None:
        """Take the result of a partition."""
        self.equal += pairing.equal
        self.compacted += pairing.compacted
        if part.same:
            self.deleted += max(min(part.start, part.partition.end) - part.partition.start, 0)
        if pairing.difference is not None:
            self.differences.append(
                f"{part.topic.name} partition {part.partition.number}: {pairing.difference}"
            )


async def compare(
    admin: Admin, cluster: Cluster, folder: BackupFolder, state: State, *,
    selection: Selection, names: Names, progress: Progress,
) -> Comparison:  # fmt: skip
    """Compare topics, records and groups' offsets. Raises BackupError, AdminError, ClientError."""
    chosen = set(selection.chosen(t.name for t in state.topics))
    topics = [t for t in state.topics if t.name in chosen]
    names.check(sorted(chosen))
    found = Comparison(topics=len(topics))
    parts = await _parts(admin, topics, names, found)
    places: dict[TopicPartition, Offsets] = {}
    source = Source(cluster, {p.target: p.target_id for p in parts})
    progress.begin("compare", sum(c.records for p in parts for c in p.partition.chunks))
    waiting = iter(parts)

    async def work() -> None:
        for part in waiting:
            run = _Run(source, folder, part, progress)
            await run.run()
            found.add(part, run.pairing)
            if run.pairing.difference is None:
                places[TopicPartition(part.topic.name, part.partition.number)] = run.offsets

    await together([work() for _ in range(AT_A_TIME)])
    await _groups(admin, state.groups, parts, places, found)
    found.differences.sort()
    return found


async def _parts(admin: Admin, topics: Sequence[Topic], names: Names, found: Comparison) -> list[_Part]:
    there = {t.name: t for t in await list_topics(admin)}
    matched: list[tuple[Topic, AdminTopic]] = []
    for topic in topics:
        target = there.get(names.target(topic.name))
        if target is None:
            found.differences.append(f"{topic.name}: the cluster has no topic {names.target(topic.name)}")
        elif len(target.partitions) < len(topic.partitions):
            found.differences.append(
                f"{topic.name}: {len(target.partitions)} partitions in the cluster, {len(topic.partitions)} in the backup"
            )
        else:
            matched.append((topic, target))
    places = [TopicPartition(target.name, p.number) for topic, target in matched for p in topic.partitions]
    ends = await known_offsets(admin, places, LATEST, committed=True)
    starts = await known_offsets(admin, places, EARLIEST)
    configs = await topic_configs(admin, [target.name for _, target in matched])
    return [
        _Part(
            topic=topic, partition=p, target=target.name, target_id=target.id,
            same=bool(topic.id) and id_of(target) == topic.id,
            lenient="compact" in configs[target.name].effective.get("cleanup.policy", ""),
            start=starts[place], end=ends[place],
        )
        for topic, target in matched
        for p in topic.partitions
        for place in [TopicPartition(target.name, p.number)]
    ]  # fmt: skip


class _Run:
    """Compares one partition. `offsets` gets the places of the backup's records in a copy."""

    def __init__(self, source: Source, folder: BackupFolder, part: _Part, progress: Progress) -> None:
        self._source, self._folder, self._part, self._progress = source, folder, part, progress
        self.offsets = Offsets(part.start)
        self.pairing = Pairing(by_offset=part.same, lenient=part.lenient)
        self._ours: deque[Batch] = deque()
        self._theirs: deque[Batch] = deque()

    async def run(self) -> None:
        """Compare until the backup's end, or the first difference."""
        pairing = self.pairing
        async with aclosing(self._backup()) as backup, aclosing(self._cluster()) as cluster:
            while True:
                self._match()
                if pairing.difference is not None:
                    return
                empty = not self._ours and not pairing.backup
                if not await _next(*((backup, self._ours) if empty else (cluster, self._theirs))):
                    break
            if self._ours:
                pairing.backup += _rows(self._ours.popleft())
            if self._theirs:
                pairing.cluster += _rows(self._theirs.popleft())
            if pairing.lenient:
                pairing.compacted += sum(b.count for b in self._ours)
                async for batches in backup:
                    pairing.compacted += sum(b.count for b in batches)
        pairing.end(cluster_has_more=not self._part.same)

    def _match(self) -> None:
        """Compare until a side has nothing. Batches are decoded only where their bytes differ."""
        pairing = self.pairing
        while pairing.difference is None:
            if self._ours and self._theirs and not pairing.backup and not pairing.cluster and self._alike():
                pairing.equal += self._ours.popleft().count
                self._theirs.popleft()
                continue
            if not pairing.backup and self._ours:
                pairing.backup += _rows(self._ours.popleft())
            elif not pairing.cluster and self._theirs:
                pairing.cluster += _rows(self._theirs.popleft())
            elif not (pairing.backup and pairing.cluster):
                return
            pairing.step()

    def _alike(self) -> bool:
        ours, theirs = self._ours[0], self._theirs[0]
        if self._part.same and ours.runs != theirs.runs:
            return False
        return (
            ours.count == theirs.count
            and ours.data[21:23] == theirs.data[21:23]
            and ours.data[_COMPARED] == theirs.data[_COMPARED]
            and ours.data[HEADER_BYTES:] == theirs.data[HEADER_BYTES:]
        )

    async def _backup(self) -> AsyncGenerator[list[Batch], None]:
        replay = Replay(self._folder, self._part.topic.name, self._part.partition)
        begin = self._part.start if self._part.same else 0
        async with aclosing(replay.read()) as reading:
            async for batches in reading:
                for batch in batches:
                    self.offsets.add(batch.runs)
                    self._progress.advance(batch.count, len(batch.data))
                yield [b for b in batches if b.next_offset > begin]

    async def _cluster(self) -> AsyncGenerator[list[Batch], None]:
        part = self._part
        start, end = part.start, part.end
        if part.same:
            start, end = max(start, part.partition.start), min(end, part.partition.end)
        reader = PartitionReader(
            self._source, self._part.target, self._part.partition.number, position=start, end=end
        )
        async with aclosing(reader.read()) as reading:
            async for found in reading:
                yield [b for piece in found.pieces for b in convert(piece, start, Counts())[0]]


def _rows(batch: Batch) -> list[Record]:
    offsets = (o for first, n in batch.runs for o in range(first, first + n))
    return [r._replace(offset=o) for r, o in zip(decode_records(batch.data), offsets, strict=True)]


async def _next(side: AsyncGenerator[list[Batch], None], into: deque[Batch]) -> bool:
    """Read more of a side. Returns False at its end."""
    try:
        into.extend(await anext(side))
    except StopAsyncIteration:
        return False
    return True


async def _groups(
    admin: Admin, groups: Sequence[Group], parts: Sequence[_Part], places: dict[TopicPartition, Offsets], found: Comparison
) -> None:  # fmt: skip
    """Compare groups' offsets. One that has gone on is where it should be."""
    by_place = {TopicPartition(p.topic.name, p.partition.number): p for p in parts}
    for group in groups:
        now = await committed(admin, group.name)
        for offset in group.offsets:
            part = by_place.get(TopicPartition(offset.topic, offset.partition))
            mapped = places.get(TopicPartition(offset.topic, offset.partition))
            if part is None or mapped is None:
                continue
            due = offset.offset if part.same else mapped.translate(offset.offset)
            there = now.get(TopicPartition(part.target, offset.partition))
            if there is None or there.offset < due:
                told = "none" if there is None else str(there.offset)
                found.differences.append(
                    f"group {group.name}: offset {told} in {part.target}-{offset.partition} instead of {due}"
                )
            else:
                found.offsets += 1
