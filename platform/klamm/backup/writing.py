"""Writes a backup's chunks: collects a partition's batches, and writes one chunk while the next one is read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from klamm.backup.chunks import pack
from klamm.backup.committed import Selected
from klamm.backup.folder import BackupFolder
from klamm.backup.manifest import DATA
from klamm.backup.model import Chunk


class ChunkFiles:
    """The files of one backup. `added` are the bytes that were written."""

    def __init__(self, folder: BackupFolder, name: str, codec: str) -> None:
        self.added = 0
        self._folder = folder
        self._name = name
        self._codec = codec
        self._numbers = count(1)
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, "klamm-backup-chunks")
        """As many as can compress at once: each keeps memory for a chunk."""

    async def write(self, held: Sequence[Selected], end: int) -> Chunk:
        """Write a chunk of answers in a thread."""
        file = f"{DATA}/{self._name}/{next(self._numbers):06d}.chunk"

        def work() -> Chunk:
            pieces = [piece for found in held for piece in found.pieces]
            content, told = pack(pieces, file=file, codec=self._codec, key=self._folder.key)
            self._folder.store.write(file, content, at_once=False)
            return Chunk(
                first=held[0].first, end=end,
                records=sum(found.records for found in held),
                max_timestamp=max(found.max_timestamp for found in held), **told,
            )  # fmt: skip

        chunk = await asyncio.get_running_loop().run_in_executor(self._threads, work)
        self.added += chunk.size
        return chunk

    def close(self) -> None:
        """End the threads, once what they write is written."""
        self._threads.shutdown()


class ChunkWriter:
    """Makes chunks of some `chunk_bytes` of a partition."""

    def __init__(self, files: ChunkFiles, chunk_bytes: int) -> None:
        self._files = files
        self._chunk_bytes = chunk_bytes
        self._held: list[Selected] = []
        self._size = 0
        self._writing: asyncio.Task[Chunk] | None = None
        self._chunks: list[Chunk] = []

    async def take(self, found: Selected, position: int) -> None:
        """Take an answer that was read up to `position`. Waits for the chunk before."""
        if found.pieces:
            self._held.append(found)
            self._size += found.size
        if self._size >= self._chunk_bytes:
            await self._write(position)

    async def end(self, position: int) -> list[Chunk]:
        """Write what is left, and return all chunks."""
        if self._held:
            await self._write(position)
        await self._settle()
        return self._chunks

    async def _write(self, position: int) -> None:
        await self._settle()
        held, self._held, self._size = self._held, [], 0
        self._writing = asyncio.create_task(self._files.write(held, position))

    async def _settle(self) -> None:
        if self._writing is not None:
            self._chunks.append(await self._writing)
            self._writing = None
