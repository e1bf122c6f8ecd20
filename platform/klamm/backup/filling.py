"""Lets restored partitions begin at the offset where the source's began (`--keep-offsets`).

A producer cannot choose offsets. But it can write as many empty records as are needed, and DeleteRecords removes them: the log then begins at
the offset that is wanted. A killed run goes on where the log ends. Holes further on stay closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.admin.records import delete_records
from klamm.backup.errors import BackupError
from klamm.backup.model import Partition
from klamm.backup.progress import Progress
from klamm.backup.sending import HELD_BYTES, RestoreSender, Target, sending
from klamm.backup.targets import TargetTopic
from klamm_kafka.client import Cluster
from klamm_kafka.wire.batch import Record, encode_batch
from klamm_kafka.wire.compression import Compression
from klamm_mirror.raw import Batch

BATCH_RECORDS: Final = 100_000
"""Some 60 KB: far below what a broker takes as one batch."""
OFFSETS_MAX: Final = 1_000_000_000
"""Beyond this, filling would take longer than most restores: some 600 MB of batches."""


def first_offset(partition: Partition) -> int:
    """Return the offset at which a copy has to begin, so that its first record has the offset that it had."""
    if not partition.chunks:
        return partition.end
    return max(partition.start, partition.chunks[0].first)


async def fill(
    admin: Admin, cluster: Cluster, there: Sequence[TargetTopic], progress: Progress
) -> list[TargetTopic]:
    """Let the topics of ours begin where the source's did, as far as they hold no records. Returns them as they are now.

    Raises BackupError, AdminError.
    """
    needs = {
        TopicPartition(t.name, p.number): (t.ends[p.number], first)
        for t in there
        if t.is_ours
        for p in t.source.partitions
        if t.starts[p.number] < (first := first_offset(p)) and t.ends[p.number] <= first
    }
    for tp, (_, first) in needs.items():
        if first > OFFSETS_MAX:
            raise BackupError(
                f"{tp} begins at offset {first}: --keep-offsets goes up to {OFFSETS_MAX}; restore without it"
            )
    if not needs:
        return list(there)
    parts = [
        (Target(remote=tp.topic, partition=tp.partition), end, first) for tp, (end, first) in needs.items()
    ]
    progress.begin("begin at the same offsets", sum(first - end for _, end, first in parts))
    sender = RestoreSender(cluster, [target for target, _, _ in parts])
    await sending(sender, [_fill(sender, *part, progress) for part in parts])
    answers = await delete_records(admin, {tp: first for tp, (_, first) in needs.items()})
    for tp, answer in answers.items():
        if isinstance(answer, AdminError):
            raise AdminError(answer.code, f"cannot let {tp} begin at offset {needs[tp][1]}", answer.text)
    return [
        _begun(t, {tp.partition: first for tp, (_, first) in needs.items() if tp.topic == t.name})
        for t in there
    ]


async def _fill(sender: RestoreSender, target: Target, end: int, first: int, progress: Progress) -> None:
    while end < first:
        count = min(BATCH_RECORDS, first - end)
        batch = Batch(bytearray(_empty(count)), end, end + count - 1, end + count, count, 0, base=end)
        target.send(batch)
        sender.wake.set()
        await target.wait(HELD_BYTES)
        progress.advance(count, len(batch.data))
        end += count
    await target.wait(0)


@cache
def _empty(count: int) -> bytes:
    return bytes(encode_batch([Record(timestamp=0)] * count, compression=Compression.ZSTD))


def _begun(topic: TargetTopic, firsts: dict[int, int]) -> TargetTopic:
    return replace(topic, starts={**topic.starts, **firsts}, ends={**topic.ends, **firsts})
