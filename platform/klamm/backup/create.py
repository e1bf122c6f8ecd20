"""`klamm backup create`: reads what is new in a cluster, and writes chunks and at last a manifest.

Everything but records is asked for at first, in the order that `moment` explains; then records are read up to the ends of that moment. A killed
run leaves chunks that no manifest names: `prune` removes them. Several partitions are read at once; each has one chunk in memory and
one that is being written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.admin.topics import Topic as AdminTopic
from klamm.admin.topics import list_topics
from klamm.backup import cluster_state, model
from klamm.backup.errors import BackupError
from klamm.backup.folder import BackupFolder
from klamm.backup.former import Former, former_topics
from klamm.backup.increment import Increment, Log, is_stale, plan
from klamm.backup.manifest import FOLDER, Manifest, decode, encode, new_id
from klamm.backup.moment import Moment, moment
from klamm.backup.order import ranks
from klamm.backup.progress import Progress
from klamm.backup.reading import PartitionReader, Source, TopicGoneError
from klamm.backup.selection import Selection
from klamm.backup.together import together
from klamm.backup.writing import ChunkFiles, ChunkWriter
from klamm_kafka.client import Cluster
from klamm_kafka.wire.errors import ErrorCode

CHUNK_BYTES: Final = 16 << 20
"""A chunk is the unit of checking and of reading back; two of them per partition that is read are in memory."""
AT_A_TIME: Final = 6
ATTEMPTS: Final = 5
"""The moment is asked for so often while topics are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The wishes of a backup."""

    selection: Selection = field(default_factory=Selection)
    codec: str = "zstd"
    full: bool = False
    """Read everything, whatever a former backup has."""
    connectors: tuple[model.Connector, ...] = ()
    chunk_bytes: int = CHUNK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A partition to read: what stays of the former backup, and the part of the log."""

    topic: str
    number: int
    log: Log
    increment: Increment
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The answers of a cluster. `known`: topics as former backups have them."""

    topics: Sequence[AdminTopic]
    configs: Mapping[str, cluster_state.Configs]
    known: Mapping[str, Former]
    moment: Moment
    taken_ms: int


async def create(
    admin: Admin, cluster: Cluster, folder: BackupFolder, wanted: Wanted, progress: Progress
) -> Manifest:
    """Make a backup and return its manifest. Raises BackupError, AdminError, ClientError."""
    return await _Run(admin, cluster, folder, wanted, progress).run()


class _Run:
    def __init__(
        self, admin: Admin, cluster: Cluster, folder: BackupFolder, wanted: Wanted, progress: Progress
    ) -> None:
        self._admin, self._cluster, self._folder = admin, cluster, folder
        self._wanted, self._progress = wanted, progress

    async def run(self) -> Manifest:
        ids = await asyncio.to_thread(self._folder.ids)
        former, damage = await asyncio.to_thread(self._folder.last_good)
        for line in damage:
            self._progress.say(f"{line}; this backup follows {former.id if former else 'none'}")
        cluster_id = (await self._admin.metadata([])).cluster_id or ""
        if former is not None and former.header.cluster_id != cluster_id:
            self._progress.say(
                f"the last backup is of another cluster ({former.header.cluster_id}), this is {cluster_id}"
            )
        rules = await cluster_state.rules(self._admin, self._progress.say)
        found = await self._found(ids)
        topics, configs, known, taken_ms = found.topics, found.configs, found.known, found.taken_ms
        for line in found.moment.said:
            self._progress.say(line)
        name = new_id(taken_ms, ids[-1] if ids else "")
        files = ChunkFiles(self._folder, name, self._wanted.codec)
        if rules.users:
            names = ", ".join(u.name for u in rules.users)
            self._progress.say(
                f"SCRAM users are in the backup by name only, because brokers tell no credentials: {names}"
            )
        tasks = self._tasks(topics, found.moment.logs, configs, known, cluster_id=cluster_id, now_ms=taken_ms)
        try:
            parts = await self._read(tasks, topics, files)
        finally:
            await asyncio.to_thread(files.close)
        there = await self._same([t for t in topics if t.name in parts])
        new = model.State(
            cluster_id=cluster_id, taken_ms=taken_ms,
            topics=tuple(_topic(t, configs[t.name].own, parts[t.name]) for t in topics if t.name in there),
            groups=_of_topics(found.moment.groups, there),
            acls=rules.acls, quotas=rules.quotas, users=rules.users,
            connectors=self._wanted.connectors,
        )  # fmt: skip
        data = encode(new, name, previous=former, added=files.added, key=self._folder.key)
        await asyncio.to_thread(self._folder.store.write, f"{FOLDER}/{name}", [data])
        return decode(data, name)

    # ---- questions

    async def _topics(self) -> list[AdminTopic]:
        there = {t.name: t for t in await list_topics(self._admin)}
        return [there[name] for name in self._wanted.selection.chosen(there)]

    async def _found(self, ids: Sequence[str]) -> _Found:
        """Ask for topics, then for the moment; again while topics or partitions come: a group's offset may tell of what was written there."""
        for attempt in range(1, ATTEMPTS + 1):
            topics = await self._topics()
            try:
                found = await self._asked(topics, ids)
            except AdminError as e:
                if e.code == ErrorCode.LEADER_NOT_AVAILABLE:
                    raise BackupError(
                        f"{e}; no backup is made (--exclude TOPIC makes one of all others)"
                    ) from None
                if e.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or attempt == ATTEMPTS:
                    raise
                continue  # it was deleted meanwhile
            new = {tp.topic for tp in set(_places(await self._topics())) - set(_places(topics))}
            if not new:
                return found
        self._progress.say(
            f"topics come all the time: the next backup has {', '.join(sorted(new)[:5])}; groups' offsets may tell of work that was done there"
        )
        return found

    async def _asked(self, topics: Sequence[AdminTopic], ids: Sequence[str]) -> _Found:
        configs = await cluster_state.topic_configs(self._admin, [t.name for t in topics])
        taken_ms = time.time_ns() // 1_000_000
        known: dict[str, Former] = {}
        if not self._wanted.full:
            known = await asyncio.to_thread(former_topics, self._folder, ids, {t.name for t in topics})
        places = _places(topics)
        rank = await ranks(self._admin, _source(self._cluster, topics), places, configs)
        asked = await moment(self._admin, places, configs, rank, _epochs(topics, known))
        return _Found(topics=topics, configs=configs, known=known, moment=asked, taken_ms=taken_ms)

    async def _same(self, topics: Sequence[AdminTopic]) -> set[str]:
        """Return the topics that are still those that were read."""
        now = {t.name: t.id for t in await list_topics(self._admin)}
        for topic in topics:
            if now.get(topic.name) != topic.id:
                change = "made anew" if topic.name in now else "deleted"
                self._progress.say(f"topic {topic.name} was {change} while it was read; it is left out")
        return {t.name for t in topics if now.get(t.name) == t.id}

    def _tasks(
        self, topics: Sequence[AdminTopic], logs: Mapping[TopicPartition, Log],
        configs: Mapping[str, cluster_state.Configs], known: Mapping[str, Former], *, cluster_id: str, now_ms: int,
    ) -> list[_Task]:  # fmt: skip
        tasks = []
        for topic in topics:
            former = known.get(topic.name)
            parts, same, stale = {}, False, False
            if former is not None:
                parts = {p.number: p for p in former.topic.partitions}
                same = former.is_of(cluster_id, cluster_state.id_of(topic))
                stale = is_stale(configs[topic.name].effective, former_ms=former.taken_ms, now_ms=now_ms)
            for p in topic.partitions:
                log, old = logs[TopicPartition(topic.name, p.number)], parts.get(p.number)
                increment = plan(old, log, same_topic=same, stale=stale)
                if increment.why:
                    self._progress.say(
                        f"{topic.name}-{p.number} is read anew from {increment.position} on: {increment.why}"
                    )
                epoch = old.epoch if old is not None and same else -1
                tasks.append(
                    _Task(topic=topic.name, number=p.number, log=log, increment=increment, epoch=epoch)
                )
        return tasks

    # ---- reading

    async def _read(
        self, tasks: Sequence[_Task], topics: Sequence[AdminTopic], files: ChunkFiles
    ) -> dict[str, list[model.Partition]]:
        """Read partitions, several at a time. Topics that are deleted or made anew meanwhile are left out."""
        source = _source(self._cluster, topics)
        self._progress.begin("backup", sum(max(t.log.end - t.increment.position, 0) for t in tasks))
        parts: dict[str, list[model.Partition]] = {t.name: [] for t in topics}
        gone: set[str] = set()
        waiting = iter(tasks)

        async def work() -> None:
            for task in waiting:
                if task.topic in gone:
                    continue
                try:
                    parts[task.topic].append(
                        await self._partition(source, task, ChunkWriter(files, self._wanted.chunk_bytes))
                    )
                except TopicGoneError as e:
                    if task.topic in gone:
                        continue
                    self._progress.say(f"{e}; it is left out")
                    gone.add(task.topic)

        await together([work() for _ in range(AT_A_TIME)])
        return {name: found for name, found in parts.items() if name not in gone}

    async def _partition(self, source: Source, task: _Task, writer: ChunkWriter) -> model.Partition:
        increment = task.increment
        reader = PartitionReader(
            source, task.topic, task.number, position=increment.position, end=task.log.end
        )
        epoch, at = task.epoch, reader.position
        async for found in reader.read():
            epoch = max(epoch, found.epoch)
            await writer.take(found, reader.position)
            self._progress.advance(reader.position - at, found.size)
            at = reader.position
        written = await writer.end(max(reader.position, task.log.end))
        start = max(task.log.start, reader.purged)
        kept = [c for c in (*increment.kept, *written) if c.end > start]
        end = max(reader.position, task.log.end)
        return model.Partition(
            number=task.number, start=min(start, end), end=end, epoch=epoch, chunks=tuple(kept)
        )


def _source(cluster: Cluster, topics: Sequence[AdminTopic]) -> Source:
    return Source(cluster, {t.name: t.id for t in topics})


def _places(topics: Sequence[AdminTopic]) -> list[TopicPartition]:
    return [TopicPartition(t.name, p.number) for t in topics for p in t.partitions]


def _epochs(topics: Sequence[AdminTopic], known: Mapping[str, Former]) -> dict[TopicPartition, int]:
    """Return the leader epochs with which former backups ended, as far as the cluster has the partitions."""
    there = set(_places(topics))
    return {
        tp: p.epoch
        for name, former in known.items()
        for p in former.topic.partitions
        if p.epoch >= 0 and (tp := TopicPartition(name, p.number)) in there
    }


def _topic(topic: AdminTopic, configs: Mapping[str, str], parts: Sequence[model.Partition]) -> model.Topic:
    replicas = max((p.replication_factor for p in topic.partitions), default=1)
    return model.Topic(
        name=topic.name, id=cluster_state.id_of(topic), replication_factor=replicas, configs=dict(configs),
        partitions=tuple(sorted(parts, key=lambda p: p.number)),
    )  # fmt: skip


def _of_topics(groups: Sequence[model.Group], topics: set[str]) -> tuple[model.Group, ...]:
    """Return the groups' offsets of these topics."""
    kept = (
        model.Group(name=g.name, offsets=tuple(o for o in g.offsets if o.topic in topics)) for g in groups
    )
    return tuple(g for g in kept if g.offsets)
