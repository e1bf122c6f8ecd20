"""One segment of a partition log: a `.log` file of record batches and its three indexes.

Its file names carry the base offset: every offset in it is at least that, and less than the base offset of
the next segment. `size` are the valid bytes; bytes behind them come from a failed write and are cut off before the
next append. It decides nothing about rolling, retention or recovery. Not thread-safe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from klamm_broker.log import files
from klamm_broker.log.errors import StorageError
from klamm_broker.log.files import OpenFile
from klamm_broker.log.offset_index import OffsetIndex
from klamm_broker.log.time_index import TimeIndex
from klamm_broker.log.txn_index import TxnIndex

_BATCH_HEAD: Final = Struct(">qi11xi8xq")  # base offset, length, last offset delta, max timestamp
_HEAD_SIZE: Final = _BATCH_HEAD.size
_PREFIX: Final = 12  # base offset and length are not counted in length
_LENGTH_MIN: Final = 49  # the rest of a batch header
_CHUNK: Final = 4 << 10  # one or two reads cover the span between two index entries
NO_TIMESTAMP: Final = -1
MAX_RELATIVE_OFFSET: Final = 2**31 - 1

BatchHead = tuple[int, int, int, int, int]
"""(position, size, base offset, last offset, largest timestamp) of a batch: enough to find one."""


class Segment:
    """A segment that is written to (`writable`) or finished."""

    __slots__ = (
        "_bytes_since_index", "_created_ms", "_dirty_tail", "_file", "_hint", "_reserved", "base_offset", "directory",
        "file_suffix", "first_timestamp", "index", "index_interval", "max_timestamp", "offset_of_max_timestamp",
        "size", "time_index", "txn_index",
    )  # fmt: skip

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        *,
        index_interval: int,
        max_index_bytes: int,
        size: int = 0,
        file_suffix: str = "",
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.file_suffix = file_suffix  # `.cleaned` while the cleaner writes it, then `.swap`
        self.index_interval = index_interval
        self.size = size
        self.index = OffsetIndex(self.path(files.OFFSET_INDEX), base_offset, max_index_bytes)
        self.time_index = TimeIndex(self.path(files.TIME_INDEX), base_offset, max_index_bytes)
        self.txn_index = TxnIndex(self.path(files.TXN_INDEX))
        self.max_timestamp: int | None = None if size else NO_TIMESTAMP  # None: not looked up yet
        self.offset_of_max_timestamp = base_offset
        self.first_timestamp: int | None = None
        self._created_ms = 0
        self._bytes_since_index = 0
        self._dirty_tail = False
        self._reserved = False  # the file is longer than `size`
        self._file: OpenFile | None = None
        self._hint = (base_offset, 0)  # (offset, position) where the last read ended: the next one's start

    @classmethod
    def create(
        cls,
        directory: Path,
        base_offset: int,
        *,
        index_interval: int,
        max_index_bytes: int,
        now_ms: int,
        file_suffix: str = "",
        reserve_bytes: int = 0,
    ) -> Segment:
        """Returns a new, empty segment with its files; overwrites files that a failed attempt left.

        Reserves `reserve_bytes` of the disk at once, until the segment is finished. Raises OSError.
        """
        segment = cls(
            directory,
            base_offset,
            index_interval=index_interval,
            max_index_bytes=max_index_bytes,
            file_suffix=file_suffix,
        )
        segment._created_ms = now_ms
        segment._file = OpenFile(segment.path(files.LOG), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        files.SEGMENT_FILES.add(segment)
        if reserve_bytes and sys.platform.startswith("linux"):
            os.posix_fallocate(segment._file.fd, 0, reserve_bytes)
            segment._reserved = True
        segment.index.reset()
        segment.time_index.reset()
        return segment

    @classmethod
    def at(cls, path: Path, base_offset: int, size: int) -> Segment:
        """Returns a segment whose `.log` has another name at the moment. Use it only to read batch heads."""
        segment = cls(path.parent, base_offset, index_interval=0, max_index_bytes=0, size=size)
        segment._file = OpenFile(path, os.O_RDONLY)
        return segment

    def path(self, suffix: str) -> Path:
        return self.directory / (files.offset_name(self.base_offset, suffix) + self.file_suffix)

    def hold(self, file: OpenFile) -> None:
        """Read from this file, which has the segment's name or is about to get it."""
        self._file = file
        files.SEGMENT_FILES.add(self)

    @property
    def file(self) -> OpenFile:
        """The open `.log` file; its holder can read on while the segment is deleted."""
        if self._file is None:
            self._file = OpenFile(self.path(files.LOG), os.O_RDWR)
            files.SEGMENT_FILES.add(self)
        return self._file

    def let_go(self) -> None:
        """Close the file until it is needed again, as too many files are open."""
        self._file = None

    def note_names(self) -> None:
        """Find out which of its files have lost the suffix `.swap`."""
        indexes = (
            (files.OFFSET_INDEX, self.index),
            (files.TIME_INDEX, self.time_index),
            (files.TXN_INDEX, self.txn_index),
        )
        for suffix, index in indexes:
            index.path = self._swap_or_final(suffix)
        self.file_suffix = files.SWAP if self._swap_or_final(files.LOG).suffix == files.SWAP else ""

    def _swap_or_final(self, suffix: str) -> Path:
        name = files.offset_name(self.base_offset, suffix)
        waiting = self.directory / (name + files.SWAP)
        return waiting if waiting.exists() else self.directory / name

    def relocate(self, directory: Path) -> None:
        """Use the same files in another directory; written-out indexes included."""
        files.SEGMENT_FILES.remove(self)
        self._file = None
        self.directory = directory
        self.index.path = self.path(files.OFFSET_INDEX)
        self.time_index.path = self.path(files.TIME_INDEX)
        self.txn_index.path = self.path(files.TXN_INDEX)

    # Writing

    def append(
        self, data: bytearray | memoryview, batches: list[tuple[int, int, int]], *, last_offset: int
    ) -> None:
        """Write `data` at the end. `batches`: (size, last offset, max timestamp) of each batch in it.

        If the disk does not take all of it, raises StorageError and leaves the segment unchanged.
        """
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise StorageError(f"{self.path(files.LOG)}: offset {last_offset} is out of this segment's range")
        if self.max_timestamp is None:
            self.load_max_timestamp()
        self._write(data)
        for size, last, timestamp in batches:
            self.note_batch(self.size, size, last, timestamp)
            self.size += size

    def append_one(
        self,
        data: bytearray | memoryview,
        last_offset: int,
        timestamp: int,
        *,
        max_bytes: int,
        max_age_ms: int,
    ) -> bool:
        """Write one batch behind others. Returns False, with nothing changed, if a segment of these limits should be finished.

        Returns False, too, when the disk does not take all of it: `append` says why.
        """
        position, size, first = self.size, len(data), self.first_timestamp
        if (
            first is None
            or first < 0
            or timestamp - first > max_age_ms
            or not 0 < position <= max_bytes - size
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
            or self.max_timestamp is None
            or self._file is None
            or self._dirty_tail
            or self.index.full
            or self.time_index.full
        ):
            return False
        try:
            written = os.pwrite(self._file.fd, data, position)
        except OSError:
            written = -1
        if written != size:
            self._dirty_tail = True
            return False
        self.note_batch(position, size, last_offset, timestamp)
        self.size = position + size
        return True

    def note_batch(self, position: int, size: int, last_offset: int, timestamp: int) -> None:
        """Note a batch that is in the file: its largest timestamp, and an index entry where one is due."""
        if timestamp > (NO_TIMESTAMP if self.max_timestamp is None else self.max_timestamp):
            self.max_timestamp = timestamp
            self.offset_of_max_timestamp = last_offset
        if self._bytes_since_index > self.index_interval:
            self.index.append(last_offset, position)
            self.time_index.maybe_append(self.largest_timestamp, self.offset_of_max_timestamp)
            self._bytes_since_index = 0
        self._bytes_since_index += size

    def _write(self, data: bytearray | memoryview) -> None:
        if self._dirty_tail:
            self.cut_tail()
        length = len(data)
        cause: OSError | None = None
        try:
            written = os.pwrite(self.file.fd, data, self.size)
            if written == length:
                return
            reason = f"the disk took {written} of {length} bytes"
        except OSError as e:
            cause, reason = e, str(e)
        self._dirty_tail = True
        try:
            self.cut_tail()
        except OSError as e:
            reason = f"{reason}; cutting the rest off failed as well: {e}"
        raise StorageError(f"{self.path(files.LOG)}: append failed: {reason}") from cause

    def cut_tail(self) -> None:
        """Remove bytes behind `size`. Raises OSError."""
        os.ftruncate(self.file.fd, self.size)
        self._dirty_tail = self._reserved = False

    def write_indexes(self) -> None:
        """Write the index entries that are only in memory."""
        self.index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def files_to_sync(self) -> list[OpenFile]:
        """Write the indexes. Returns the segment's files, which the caller forces to disk."""
        self.write_indexes()
        paths = (self.path(suffix) for suffix in files.SEGMENT_SUFFIXES[1:])
        with_content = (path for path in paths if path.exists() and path.stat().st_size)
        return [self.file, *(OpenFile(path, os.O_RDONLY) for path in with_content)]

    def close_for_append(self) -> None:
        """Finish the segment: add the entry of its largest timestamp, and write the indexes."""
        self.note_max_timestamp()
        self.give_back_reserve()
        self.index.seal()
        self.time_index.seal()
        self.txn_index.flush()

    def give_back_reserve(self) -> None:
        """Cut off the unused part of the reserved bytes. Raises OSError."""
        if self._reserved:
            self.cut_tail()

    def note_max_timestamp(self) -> None:
        """Add the time index entry that retention and timestamp lookups need after a restart."""
        if self.max_timestamp is not None and self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)

    def release(self) -> None:
        """Release file and index memory; appended records are readable after reopening."""
        files.SEGMENT_FILES.remove(self)
        self._file = None
        self.index.release()
        self.time_index.release()

    # Facts

    @property
    def largest_timestamp(self) -> int:
        """The largest record timestamp, from the time index for a finished segment; -1 if unknown."""
        if self.max_timestamp is None:
            self.load_max_timestamp()
        assert self.max_timestamp is not None
        return self.max_timestamp

    def load_max_timestamp(self) -> None:
        """Load the largest timestamp from the last time index entry: a finished, closed or recovered segment has it there."""
        last = self.time_index.last or (NO_TIMESTAMP, self.base_offset)
        self.max_timestamp, self.offset_of_max_timestamp = last

    def scan_max_timestamp(self) -> bool:
        """Load the largest timestamp from the last time index entry and the batches behind it. Returns True if it is in one of these."""
        timestamp, offset = self.time_index.last or (NO_TIMESTAMP, self.base_offset)
        indexed = timestamp
        for _, _, _, last, batch_timestamp in self.heads(self.index.lookup(offset)):
            if batch_timestamp > timestamp:
                timestamp, offset = batch_timestamp, last
        self.max_timestamp, self.offset_of_max_timestamp = timestamp, offset
        return timestamp > indexed

    @property
    def modified_ms(self) -> int:
        return int(self.path(files.LOG).stat().st_mtime * 1000)

    def roll_age_ms(self, now_ms: int, timestamp: int) -> int:
        """Returns the time that the segment has been written to: by its records' timestamps where it has any."""
        first = self.first_batch_timestamp
        if first >= 0:
            return timestamp - first
        return now_ms - (self._created_ms or self.modified_ms)

    @property
    def first_batch_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 if there is none."""
        if self.first_timestamp is None and self.size:
            self.first_timestamp = self._first_timestamp()
        return NO_TIMESTAMP if self.first_timestamp is None else self.first_timestamp

    def _first_timestamp(self) -> int:
        head = os.pread(self.file.fd, _HEAD_SIZE, 0)
        return int(_BATCH_HEAD.unpack(head)[3])

    # Reading

    def heads(self, position: int) -> Iterator[BatchHead]:
        """Yields the batches from `position` on, by small reads of their headers."""
        file, size = self.file, self.size  # held, as the caller may make a pause
        chunk, start = b"", position
        unpack = _BATCH_HEAD.unpack_from
        while position + _HEAD_SIZE <= size:
            at = position - start
            if at + _HEAD_SIZE > len(chunk):
                chunk, start, at = os.pread(file.fd, _CHUNK, position), position, 0
            base, length, delta, timestamp = unpack(chunk, at)
            if length < _LENGTH_MIN:
                raise StorageError(
                    f"{self.path(files.LOG)}: no batch at position {position} (length {length}): the file was "
                    "damaged after it had been checked; stop the broker, remove .kafka_cleanshutdown from its "
                    "log directory, and start it to have the log checked"
                )
            yield position, length + _PREFIX, base, base + delta, timestamp
            position += length + _PREFIX

    def find(self, offset: int) -> BatchHead | None:
        """Returns the first batch that ends at or after `offset`; None if all end before it."""
        hint = self._hint
        for head in self.heads(hint[1] if hint[0] == offset else self.index.lookup(offset)):
            if head[3] >= offset:
                return head
        return None

    def read(
        self, offset: int, max_bytes: int, *, up_to: int, last_offset: int, min_one_batch: bool
    ) -> tuple[int, int] | None:
        """Returns (start, end) of the whole batches below `up_to`, from the one that holds `offset` on.

        `last_offset` is the last one in this segment. Without `min_one_batch` the range is empty when the
        first batch is larger than `max_bytes`. None when every batch here ends before `offset`.
        """
        hint_offset, position = self._hint
        if hint_offset == offset and up_to > last_offset and 0 < self.size - position <= max_bytes:
            self._hint = (last_offset + 1, self.size)
            return position, self.size
        first = self.find(offset)
        if first is None:
            return None
        start, size, _, last, _ = first
        if last >= up_to or (size > max_bytes and not min_one_batch):
            return start, start
        return start, self._end(start, start + max(max_bytes, size), up_to, last_offset)

    def _end(self, start: int, limit: int, up_to: int, last_offset: int) -> int:
        """Returns the end of the last whole batch up to `limit` and below `up_to`; the one at `start` is such a batch."""
        if limit >= self.size and up_to > last_offset:
            self._hint = (last_offset + 1, self.size)
            return self.size
        position = self.index.lookup_position(min(limit, self.size))
        if up_to <= last_offset:
            position = min(position, self.index.lookup(up_to))
        for at, size, base, last, _ in self.heads(max(start, position)):
            if last >= up_to or at + size > limit:
                self._hint = (base, at)
                return at
        return self.size

    # Shrinking

    def truncate(self, position: int, offset: int) -> None:
        """Cut the segment at `position`, where the batch with `offset` starts."""
        self.size = position
        self.cut_tail()
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self._bytes_since_index = 0
        self._hint = (self.base_offset, 0)
        self.first_timestamp = None
        self.scan_max_timestamp()

    def rename_deleted(self) -> list[Path]:
        """Give the segment's files the suffix `.deleted`, which recovery removes. Returns the new paths."""
        renamed = []
        for suffix in files.SEGMENT_SUFFIXES:
            path = self.path(suffix)
            target = path.with_name(path.name + files.DELETED)
            try:
                path.rename(target)
            except FileNotFoundError:
                continue
            renamed.append(target)
        return renamed
