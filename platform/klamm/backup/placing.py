"""Finds where a backup's records are in topics that a cluster has already, for groups' offsets that are restored without them.

A topic of the backup's id is the one that was backed up: its offsets hold. Any other is a copy. It holds the records without a hole, from
wherever a restore began; its record in the last one's place tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing

from klamm.admin.client import Admin
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import known_offsets
from klamm.admin.topics import Topic as AdminTopic
from klamm.admin.topics import list_topics
from klamm.backup.cluster_state import id_of
from klamm.backup.errors import BackupError
from klamm.backup.filling import first_offset
from klamm.backup.mapping import Mapping as Offsets
from klamm.backup.mapping import Unmoved
from klamm.backup.model import Topic
from klamm.backup.replay import Replay
from klamm_kafka.client import Cluster
from klamm_kafka.wire.batch import Record, decode_records
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST
from klamm_mirror.raw import Batch
from klamm_mirror.topics import internal_topics


async def find_places(
    admin: Admin, cluster: Cluster, replays: Sequence[Replay], topics: Mapping[str, Topic], names: Mapping[str, str]
) -> dict[TopicPartition, Offsets]:  # fmt: skip
    """Return the places of these partitions' records. `topics` are the backup's by name, `names` those that they have in the cluster.

    Raises BackupError where the cluster does not hold the records.
    """
    there = {t.name: t for t in await list_topics(admin)}
    for replay in replays:
        _check(there.get(names[replay.topic]), names[replay.topic], replay.partition.number)
    targets = [TopicPartition(names[r.topic], r.partition.number) for r in replays]
    starts = await known_offsets(admin, targets, EARLIEST)
    ends = await known_offsets(admin, targets, LATEST, committed=True)
    found: dict[TopicPartition, Offsets] = {}
    for replay, target in zip(replays, targets, strict=True):
        topic_id = topics[replay.topic].id
        runs, last = await _read(replay)
        if topic_id and topic_id == id_of(there[target.topic]):
            places: Offsets = Unmoved(replay.end)
        elif last is None:
            places = Offsets(starts[target])
        else:
            bases = dict.fromkeys((0, first_offset(replay.partition), starts[target]))
            places = await _fitting(
                cluster, target, (_offsets(b, runs) for b in bases), last, start=starts[target], end=ends[target]
            )  # fmt: skip
        found[TopicPartition(replay.topic, target.partition)] = places
    return found


async def record_at(cluster: Cluster, place: TopicPartition, offset: int) -> Record | None:
    """Return the committed record at an offset; None where there is none."""
    data = await internal_topics.fetch(
        cluster, place.topic, offset, partition=place.partition, committed=True
    )
    return next((r for r in internal_topics.records_of(data, offset) if r.offset == offset), None)


def is_same(record: Record | None, other: Record | None) -> bool:
    """Return whether two records are there and differ by their offsets at most."""
    return record is not None and other is not None and record[1:] == other[1:]


def _check(topic: AdminTopic | None, name: str, partition: int) -> None:
    if topic is None:
        raise BackupError(
            f"topic {name} is not there, so that its offsets have no place: restore it, too (--parts topics,groups), or leave "
            "it out (--exclude)"
        )
    if not any(p.number == partition for p in topic.partitions):
        raise BackupError(
            f"topic {name} has {len(topic.partitions)} partitions, the backup has partition {partition}"
        )


async def _read(replay: Replay) -> tuple[list[tuple[int, int]], Record | None]:
    """Return the rows of a partition's offsets, and its last record."""
    runs: list[tuple[int, int]] = []
    last: Batch | None = None
    async with aclosing(replay.read()) as reading:
        async for batches in reading:
            for batch in batches:
                runs += batch.runs
                last = batch
    return runs, None if last is None else decode_records(last.data)[-1]


def _offsets(base: int, runs: Sequence[tuple[int, int]]) -> Offsets:
    found = Offsets(base)
    found.add(runs)
    return found


async def _fitting(
    cluster: Cluster, target: TopicPartition, ways: Iterable[Offsets], last: Record, *, start: int, end: int
) -> Offsets:  # fmt: skip
    """Return the places by which the backup's last record is where it is in a copy. Raises BackupError."""
    for offsets in ways:
        at = offsets.next - 1
        if start <= at < end and is_same(await record_at(cluster, target, at), last):
            return offsets
    raise BackupError(
        f"{target} does not hold the backup's records where a restore puts them, so that offsets have no place in it: restore the "
        "topic, too, under another name (--parts topics,groups --rename), or leave it out (--exclude)"
    )
