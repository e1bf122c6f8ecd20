"""`klamm backup verify`: reads everything back and names what is damaged.

Manifests are checked by their hashes and as a chain; chunks by their SHA-256, and their batches by Kafka's CRC, offsets and counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm.backup.chunks import batches
from klamm.backup.errors import BackupError, DamagedError
from klamm.backup.folder import BackupFolder, damaged
from klamm.backup.manifest import Manifest, check_chain
from klamm.backup.model import Chunk, Partition
from klamm.backup.progress import Progress
from klamm.backup.together import together

AT_A_TIME: Final = 3


@dataclass(slots=True, kw_only=True)
class Verdict:
    """Counts of what was checked, and the damage in sentences, in the order of the files."""

    backups: int = 0
    chunks: int = 0
    size: int = 0
    records: int = 0
    unreferenced: int = 0
    damage: list[str] = field(default_factory=list)


async def verify(folder: BackupFolder, progress: Progress, *, only: str | None = None) -> Verdict:
    """Check all backups of a folder, or one. Raises BackupError for a folder that has none, or cannot be read."""
    verdict = Verdict()
    ids = await asyncio.to_thread(folder.ids)
    if not ids:
        raise BackupError(f"{folder.store} holds no complete backup")
    manifests = await asyncio.to_thread(_manifests, folder, [only] if only else ids, verdict)
    if only is None:
        try:
            check_chain(manifests)
        except DamagedError as e:
            verdict.damage.append(str(e))
    chunks: dict[str, tuple[str, int, Chunk]] = {}
    for manifest in manifests:
        try:
            state = manifest.state(folder.key)
            for topic in state.topics:
                for partition in topic.partitions:
                    _check_row(manifest, topic.name, partition)
            chunks |= state.chunks()
        except DamagedError as e:
            verdict.damage.append(str(e))
    verdict.backups = len(manifests)
    if only is None:
        there = await asyncio.to_thread(folder.files)
        verdict.unreferenced = len(set(there) - set(chunks))
    await _check_chunks(folder, chunks, verdict, progress)
    return verdict


def _manifests(folder: BackupFolder, ids: Sequence[str], verdict: Verdict) -> list[Manifest]:
    found = []
    for name in ids:
        try:
            found.append(folder.manifest(name))
        except DamagedError as e:
            verdict.damage.append(str(e))
    return found


def _check_row(manifest: Manifest, topic: str, partition: Partition) -> None:
    """Raise DamagedError for chunks that overlap, or lie outside of the partition."""
    at = -1
    for chunk in partition.chunks:
        if chunk.first < at or chunk.end > partition.end or chunk.end <= max(chunk.first, partition.start):
            raise DamagedError(
                f"manifest {manifest.id}: {topic} partition {partition.number}: {chunk.file} of offsets "
                f"{chunk.first} to {chunk.end - 1} is out of order"
            )
        at = chunk.end


async def _check_chunks(
    folder: BackupFolder, chunks: dict[str, tuple[str, int, Chunk]], verdict: Verdict, progress: Progress
) -> None:
    progress.begin("verify", sum(c.records for _, _, c in chunks.values()))
    bad: dict[str, str] = {}
    waiting = iter(sorted(chunks))

    async def work() -> None:
        for file in waiting:
            topic, number, chunk = chunks[file]
            try:
                await asyncio.to_thread(_check, folder, topic, number, chunk)
            except DamagedError as e:
                bad[file] = str(e)
            else:
                verdict.chunks += 1
                verdict.size += chunk.size
                verdict.records += chunk.records
            progress.advance(chunk.records, chunk.size)

    await together([work() for _ in range(AT_A_TIME)])
    verdict.damage += [bad[file] for file in sorted(bad)]


def _check(folder: BackupFolder, topic: str, partition: int, chunk: Chunk) -> None:
    data = folder.load(topic, partition, chunk)
    try:
        for _ in batches(chunk, data):
            pass
    except DamagedError as e:
        raise damaged(topic, partition, chunk, e) from None
