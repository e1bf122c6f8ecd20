"""Reads a partition's records out of a backup, as batches that a producer may send.

Batches pass as bytes (`klamm_mirror.raw`). A batch is decoded when it has holes, begins before the partition's start, or reaches over
the end that was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from klamm.backup.chunks import batches
from klamm.backup.errors import DamagedError
from klamm.backup.folder import BackupFolder, damaged
from klamm.backup.model import Chunk, Partition
from klamm_kafka.wire.batch import BatchHeader, Record, decode_records, encode_batch, read_header
from klamm_kafka.wire.varint import Buffer
from klamm_mirror.raw import Batch, Counts, Rewrite, convert, runs_of


@dataclass(slots=True)
class Replay:
    """Reads one partition. `until_ms`: everything from the first record of this time or later on is left out."""

    folder: BackupFolder
    topic: str
    partition: Partition
    until_ms: int | None = None
    end: int = field(init=False)
    """The source's offset up to which records were read: less than the partition's end only because of `until_ms`."""

    def __post_init__(self) -> None:
        self.end = self.partition.end

    async def read(self) -> AsyncGenerator[list[Batch], None]:
        """Yield the batches of one chunk after another; the next one is loaded meanwhile. Raises DamagedError."""
        chunks = list(self.partition.chunks)
        loading = asyncio.create_task(asyncio.to_thread(self._load, chunks[0])) if chunks else None
        try:
            for i, chunk in enumerate(chunks):
                assert loading is not None, "there is a chunk"
                data = await loading
                loading = None
                if i + 1 < len(chunks):
                    loading = asyncio.create_task(asyncio.to_thread(self._load, chunks[i + 1]))
                found, is_last = self._converted(chunk, data)
                yield found
                if is_last:
                    return
        finally:
            if loading is not None:
                loading.cancel()

    def _load(self, chunk: Chunk) -> tuple[Buffer, list[tuple[int, BatchHeader]]]:
        data = self.folder.load(self.topic, self.partition.number, chunk)
        try:
            return data, list(batches(chunk, data))
        except DamagedError as e:
            raise damaged(self.topic, self.partition.number, chunk, e) from None

    def _converted(
        self, chunk: Chunk, loaded: tuple[Buffer, list[tuple[int, BatchHeader]]]
    ) -> tuple[list[Batch], bool]:
        """Return the chunk's batches, and whether nothing behind them belongs to what is read."""
        data, headers = loaded
        start, until = self.partition.start, self.until_ms
        view = memoryview(data)
        if until is None or chunk.max_timestamp < until:
            return convert(view, start, Counts())[0], False
        for pos, header in headers:
            if header.max_timestamp < until:
                continue
            cut = next((r.offset for r in decode_records(view, pos) if r.timestamp >= until), None)
            if cut is not None:
                self.end = cut
                whole = convert(view[:pos], start, Counts())[0]
                part = _before(view[pos : pos + header.size], start, cut)
                return [*whole, *part], True
        return convert(view, start, Counts())[0], False


def _before(batch: Buffer, start: int, end: int) -> list[Batch]:
    """Return a batch without its records from `end` on."""
    if read_header(batch).base_offset >= end:
        return []

    def keep(records: list[Record]) -> list[Record]:
        return [r for r in records if r.offset < end]

    return convert(batch, start, Counts(), rewrite=Rewrite(change=keep))[0]


def without_first(batch: Batch, count: int) -> Batch:
    """Return a batch without its first `count` records, which the target has already; it has more than those."""
    offsets = [o for first, n in batch.runs for o in range(first, first + n)][count:]
    records = [r._replace(offset=o) for r, o in zip(decode_records(batch.data)[count:], offsets, strict=True)]
    data = encode_batch(records, compression=read_header(batch.data).compression)
    return Batch(
        data, offsets[0], batch.last, batch.next_offset, len(records), batch.max_timestamp,
        first_timestamp=records[0].timestamp, epoch=batch.epoch, runs=tuple(runs_of(offsets)),
    )  # fmt: skip
