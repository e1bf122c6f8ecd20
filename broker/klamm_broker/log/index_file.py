"""A sorted file of fixed-size entries: the common part of the offset and the time index.

The entries of a segment that is written to live in a bytearray and reach the file with `flush()`. Entries of a finished
segment are read when needed, and kept within a limit. Losing the unwritten tail loses nothing: recovery rebuilds
the indexes of every segment after the recovery point. Entries are big-endian, as in Kafka's files.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import ClassVar

from klamm_broker.log.errors import CorruptFile
from klamm_broker.log.files import INDEX_BYTES, OpenFile, read_small


class IndexFile:
    """Entries of `layout`; `writable` segments keep them in memory. Not thread-safe."""

    layout: ClassVar[Struct]
    kept_free: ClassVar[int] = 0  # slots that only the end of the segment may take

    def __init__(self, path: Path, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.layout.size
        self._full_bytes = (self.max_entries - self.kept_free) * self.layout.size
        self._data: bytearray | bytes | None = None
        self._flushed = 0  # bytes of a bytearray that the file has

    def __len__(self) -> int:
        return len(self._entries()) // self.layout.size

    @property
    def full(self) -> bool:
        """True when there is no room for another entry, so that the segment must be finished."""
        data = self._data  # asked before every append: a call less
        return len(data if data is not None else self._load()) >= self._full_bytes

    def _entries(self) -> bytearray | bytes:
        data = self._data
        return data if data is not None else self._load()

    def _load(self) -> bytes:
        self._data = data = read_small(self.path)
        INDEX_BYTES.add(self, len(data))
        return data

    def _read_last(self) -> bytes:
        """Returns the file's last entry, or nothing if it has none. Loads no other one."""
        size = self.layout.size
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            end = os.fstat(fd).st_size // size * size
            return os.pread(fd, size, end - size) if end else b""
        finally:
            os.close(fd)

    def let_go(self) -> None:
        """Forget the entries that the file has, as memory is short. Only called for a finished segment's index."""
        self._data = None

    def _writable(self) -> bytearray:
        data = self._data
        if isinstance(data, bytearray):
            return data
        INDEX_BYTES.remove(self)
        self._data = data = bytearray(self.path.read_bytes() if self.path.exists() else b"")
        self._flushed = len(data)
        return data

    def reset(self, size: int | None = None) -> None:
        """Forget all entries, in memory and in the file, before a rebuild. `size` is the file's, if known."""
        INDEX_BYTES.remove(self)
        self._data = bytearray()
        self._flushed = 0
        if size == 0:
            return
        file = OpenFile(self.path, os.O_WRONLY | os.O_CREAT)
        os.ftruncate(file.fd, 0)

    def keep(self, entries: int) -> None:
        """Drop all but the first `entries`, in memory and in the file."""
        data = self._writable()
        size = entries * self.layout.size
        if size >= len(data):
            return
        del data[size:]
        if self._flushed > size:
            self._flushed = size
            file = OpenFile(self.path, os.O_WRONLY | os.O_CREAT)
            os.ftruncate(file.fd, size)

    def flush(self) -> None:
        """Write the entries that the file does not have yet."""
        data = self._data
        if not isinstance(data, bytearray) or self._flushed == len(data):
            return
        file = OpenFile(self.path, os.O_WRONLY | os.O_CREAT)
        while self._flushed < len(data):
            self._flushed += os.pwrite(file.fd, memoryview(data)[self._flushed :], self._flushed)

    def seal(self) -> None:
        """Write the rest of a finished segment's entries, and read the file from now on."""
        self.flush()
        self.release()

    def release(self) -> None:
        """Give the memory back; the file holds everything that was flushed."""
        INDEX_BYTES.remove(self)
        self._data = None

    def check(self) -> None:
        """Raise CorruptFile when the file cannot be this index. Cheap: it checks size and last entry only."""
        size = len(self._entries())
        if size % self.layout.size:
            raise CorruptFile(f"{self.path}: {size} bytes is not a multiple of {self.layout.size}")
