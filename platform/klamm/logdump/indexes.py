"""Lines for `.index`, `.timeindex` and `.txnindex` files, and their disagreements with the `.log`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from klamm.logdump.batches import Batch, LogFile
from klamm.logdump.errors import DumpError
from klamm.logdump.log_file import base_offset

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TXN_ENTRY: Final = struct.Struct(">hqqqq")
_PIECE_ENTRIES: Final = 4096
Report = Callable[[str, str], None]
"""Takes a fault, as a heading and a line below it, for the end of the output."""


class Mode(NamedTuple):
    """The mode of a dump.

    `verify`: compare, print no entries. `sanity`: check only what makes a starting broker rebuild an index.
    """

    verify: bool = False
    sanity: bool = False


def _entries(path: Path, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
    """Yield whole entries, a few thousand at a time. Raises DumpError."""
    try:
        with path.open("rb") as file:
            while data := file.read(layout.size * _PIECE_ENTRIES):
                yield from layout.iter_unpack(data[: len(data) // layout.size * layout.size])
    except OSError as e:
        raise DumpError(f"{path} cannot be read: {e.strerror}") from None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as e:
        raise DumpError(f"{path} cannot be read: {e.strerror}") from None


def _last(path: Path, layout: struct.Struct) -> tuple[int, ...]:
    with path.open("rb") as file:
        file.seek((_size(path) // layout.size - 1) * layout.size)
        return layout.unpack(file.read(layout.size))


# ---- .index


def dump_index(path: Path, mode: Mode, max_message_size: int, report: Report) -> Iterator[str]:
    """Yield entries; each must point at a batch that ends at its offset. Raises DumpError."""
    base = base_offset(path)
    with LogFile(path.with_suffix(".log")) as log:
        size = _size(path)
        if size < _OFFSET_ENTRY.size:
            yield f"{path} is empty."
            return
        if mode.sanity:
            _check_offsets(path, base, size)
            yield f"{path} passed sanity check."
            return
        for number, (relative, position) in enumerate(_entries(path, _OFFSET_ENTRY)):
            if relative == 0 and number > 0:
                return  # the unused rest of a preallocated file
            found = log.batch_at(position, min(log.size, position + max_message_size))
            if found is None:
                raise DumpError(_no_batch(path, base + relative, position, log, max_message_size))
            if found.header.last_offset != base + relative:
                report(
                    f"Mismatches in :{path.absolute()}",
                    f"  Index offset: {base + relative}, log offset: {found.header.last_offset}",
                )
            if not mode.verify:
                yield f"offset: {base + relative} position: {position}"


def _no_batch(path: Path, offset: int, position: int, log: LogFile, limit: int) -> str:
    where = f"{path}: the entry of offset {offset} points at position {position}"
    if not 0 <= position < log.size:
        return f"{where}, but {log.path.name} has {log.size} bytes"
    return (
        f"{where} of {log.path.name}, where no whole batch of at most {limit} bytes is (--max-message-size)"
    )


def _check_offsets(path: Path, base: int, size: int) -> None:
    last = base + _last(path, _OFFSET_ENTRY)[0]
    if last < base:
        raise DumpError(
            f"Corrupt index found, index file ({path.absolute()}) has non-zero size but the last offset is {last} which"
            f" is less than the base offset {base}"
        )
    if size % _OFFSET_ENTRY.size:
        raise DumpError(
            f"Index file {path.absolute()} is corrupt, found {size} bytes which is neither positive nor a multiple of"
            f" {_OFFSET_ENTRY.size}"
        )


# ---- .timeindex


def dump_time_index(path: Path, mode: Mode, report: Report) -> Iterator[str]:
    """Yield entries; the batch that ends at an entry's offset must hold its timestamp, and none a later one."""
    base = base_offset(path)
    with LogFile(path.with_suffix(".log")) as log:
        if mode.sanity:
            _check_times(path, base)
            yield f"{path} passed sanity check."
            return
        lookup = _Lookup(path.with_suffix(".index"), base)
        previous = -1
        for number, (timestamp, relative) in enumerate(_entries(path, _TIME_ENTRY)):
            offset = base + relative
            if relative == 0 and number > 0:
                return
            _compare(path, log, lookup.position(offset), _TimeEntry(timestamp, offset, previous), report)
            if not mode.verify:
                yield f"timestamp: {timestamp} offset: {offset}"
            previous = timestamp


class _Lookup:
    """Positions by offset. Offsets that rise, as a time index has them, cost one walk through the index."""

    def __init__(self, path: Path, base: int) -> None:
        self._path = path
        self._base = base
        self._restart()

    def _restart(self) -> None:
        self._entries = _entries(self._path, _OFFSET_ENTRY) if self._path.exists() else iter(())
        self._position, self._wanted = 0, self._base
        self._next: tuple[int, ...] | None = next(self._entries, None)

    def position(self, offset: int) -> int:
        """Return the position of the last entry at or before `offset`; 0 without such an entry."""
        if offset < self._wanted:
            self._restart()
        self._wanted, last = offset, -1
        while self._next is not None and self._base + self._next[0] <= offset and self._next[0] >= last:
            last, self._position = self._next[0], self._next[1]
            self._next = next(self._entries, None)
            if self._next is not None and self._next[0] == 0:
                self._next = None  # the unused rest of a preallocated file
        return self._position


class _TimeEntry(NamedTuple):
    timestamp: int
    offset: int
    previous: int
    """The timestamp of the entry before; -1 for the first."""


def _compare(path: Path, log: LogFile, start: int, entry: _TimeEntry, report: Report) -> None:
    timestamp, offset, previous = entry
    batch = _batch_of(log, start, offset)
    if batch is None or batch.header.last_offset != offset:
        found = -1 if batch is None else batch.header.last_offset
        report(
            f"The following indexed offsets are not found in :{path.absolute()}",
            f"Indexed offset: {offset}, found log offset: {found}",
        )
        return
    newest = max((r.timestamp for r in batch.records()), default=-1)
    if newest != timestamp:
        report(
            f"Found timestamp mismatch in :{path.absolute()}",
            f"  Index timestamp: {timestamp}, log timestamp: {newest}",
        )
    if previous >= timestamp:
        report(
            f"Found out of order timestamp in :{path.absolute()}",
            f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}",
        )


def _batch_of(log: LogFile, start: int, offset: int) -> Batch | None:
    return next((b for b in log.batches(start) if b.header.last_offset >= offset), None)


def _check_times(path: Path, base: int) -> None:
    size = _size(path)
    if size >= _TIME_ENTRY.size:
        first = next(_entries(path, _TIME_ENTRY))
        timestamp, relative = _last(path, _TIME_ENTRY)
        head = f"Corrupt time index found, time index file ({path.absolute()}) has non-zero size but the last"
        if timestamp < first[0]:
            raise DumpError(
                f"{head} timestamp is {timestamp} which is less than the first timestamp {first[0]}"
            )
        if relative < 0:
            raise DumpError(f"{head} offset is {base + relative} which is less than the first offset {base}")
    if size % _TIME_ENTRY.size:
        raise DumpError(
            f"Time index file {path.absolute()} is corrupt, found {size} bytes which is neither positive nor a multiple"
            f" of {_TIME_ENTRY.size}"
        )


# ---- .txnindex


def dump_txn_index(path: Path) -> Iterator[str]:
    """Yield aborted transactions. Raises DumpError."""
    size = _size(path)
    for version, producer, first, last, stable in _entries(path, _TXN_ENTRY):
        if version != 0:
            raise DumpError(f"{path}: an entry of version {version}, only 0 is known")
        yield (
            f"version: {version} producerId: {producer} firstOffset: {first} lastOffset: {last} lastStableOffset: {stable}"
        )
    if size % _TXN_ENTRY.size:
        raise DumpError(f"{path}: {size} bytes is not a multiple of {_TXN_ENTRY.size}")
