"""The write-ahead log on disk: a ring of segments of a fixed size, written in place.

Nothing is forced to the disk: a kill of the agent keeps what the kernel has, and after a power cut the registry decides. A segment's
space is taken when it is made, so a disk that becomes full stops no segment that is there. A segment is used again once
brokers have all its batches, whatever becomes of older ones. A few batches that no broker takes do not hold it: they move on.
Not thread-safe.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from klamm_agent.delivery.wal.book import Book, Logged
from klamm_agent.delivery.wal.entries import (
    LIFE,
    Kind,
    Note,
    body_at,
    cluster_of,
    encode,
    encode_notes,
    first_number,
    read_segment,
)
from klamm_base.errors import KlammError
from klamm_base.files import PRIVATE_FILE, make_private_folder

SEGMENT_BYTES: Final = 8 * 1024 * 1024
_RESERVE: Final = 64 * 1024  # of a segment, for notes on its batches
_RING: Final = 2  # segments that stay


class WalError(KlammError):
    """The folder cannot be used or written to."""


class WriteAheadLog:
    """The log in `folder`, whose owner holds a lock already. `book` is what it says. Raises WalError from construction on."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder, self._segment_bytes = folder, segment_bytes
        self.book = Book()
        self._segments: list[_Segment] = []  # oldest first; the last is written to
        self._spare: list[_Segment] = []  # without a valid entry
        self._number = 0
        self._notes: list[Note] = []
        self._booked = 0  # of these notes, so many are in the book already
        try:
            make_private_folder(folder)
            self._read()
        except OSError as e:
            self.close()
            raise WalError(f"write-ahead log {folder} cannot be used: {e.strerror}") from e

    @property
    def is_empty(self) -> bool:
        """True when no entry was found or written."""
        return not self._segments

    def _read(self) -> None:
        found = []
        for path in self._folder.glob("*.log"):
            number = first_number(data := path.read_bytes())
            found.append((-1 if number is None else number, path, data))
        before = -1
        for number, path, data in sorted(found):
            segment = _Segment(path)
            for entry in read_segment(data, before) if number >= 0 else ():
                self.book.apply(entry, segment.name)
                segment.end, before = entry.end, entry.number
            if segment.end:
                self._segments.append(segment)
            else:  # a kill tore its head, or it does not continue the one before
                segment.wipe()
                self._spare.append(segment)
        self._number = (before // LIFE + 1) * LIFE
        if self.book.lacks_bytes:  # a damage took a segment between others: the registry decides
            self.book = Book(next=self.book.next)

    def begin_anew(self, registry: str | None) -> None:
        """Forgets all that the log says: the registry of this fingerprint holds from now on. Raises WalError."""
        self.book = Book(next=self.book.next, registries=[] if registry is None else [registry])
        self._notes.clear()
        self._booked = 0
        self._append(Kind.STATE, {}, (), anew=True)

    def read(self, logged: Logged) -> bytearray:
        """Returns the bytes of a live batch. Raises WalError."""
        segment = next(s for s in self._segments if s.name == logged.segment)
        try:
            return bytearray(os.pread(segment.fd, logged.size, logged.at))
        except OSError as e:
            raise WalError(f"write-ahead log {self._folder} cannot be read: {e.strerror}") from e

    def commit(self, about: dict[str, Any], batches: Sequence[bytearray]) -> None:
        """Writes batches and what belongs to them, all or nothing. Raises WalError, having written nothing."""
        self.flush()
        segment, at = self._append(Kind.BATCHES, about, batches)
        self.book.add(about, segment, at)

    def sent(self, notes: Iterable[Note]) -> None:
        """Writes under which numbers batches go out now. Raises WalError."""
        self._notes += notes
        self.flush()

    def acknowledged(self, batch: int) -> None:
        """Takes note that a batch is delivered or given up. The next entry, or `flush`, brings it to the log."""
        if batch in self.book.live or batch in self.book.spooled:
            self._notes.append(Note(batch))

    def spooled(self, batch: int) -> None:
        """Takes note that the spool has a batch. A kill before this is in the log does no harm: the spool knows the number."""
        if batch in self.book.live:
            self._notes.append(Note(batch, spooled=True))

    def spool_has(self, numbers: set[int]) -> None:
        """Takes in which batches wait in the spool, after a start: it may have them before the log has a note of it."""
        notes = [Note(number, spooled=True) for number in numbers if number in self.book.live]
        self._notes += notes  # they stand before all that becomes of these batches
        self._book_notes()
        self.book.spooled = {number: sent for number, sent in self.book.spooled.items() if number in numbers}

    def flush(self) -> None:
        """Writes the notes that wait. Raises WalError."""
        if self._notes:
            cluster = cluster_of(self._notes)
            self._append(Kind.NOTES, {"cluster": cluster} if cluster else None, (encode_notes(self._notes),))
            self._book_notes()
            self._notes, self._booked = [], 0

    def _book_notes(self) -> None:
        """Brings the notes that wait to the book, before they are written, or after."""
        self.book.note(self._notes[self._booked :])
        self._booked = len(self._notes)

    def change(self, about: dict[str, Any]) -> None:
        """Writes positions that changed without a batch, or a fingerprint of the registry. Raises WalError."""
        self.flush()
        self._append(Kind.STATE, about, ())
        self.book.change(about)

    def _append(
        self,
        kind: Kind,
        about: dict[str, Any] | None,
        body: Sequence[bytes | bytearray],
        *,
        anew: bool = False,
    ) -> tuple[int, int]:
        """Appends an entry; returns its segment and the position of its body there."""
        data = encode(self._number, kind, about, body)
        reserve = _RESERVE if kind == Kind.BATCHES else 0
        try:
            if anew or not self._segments or self._segments[-1].room < len(data) + reserve:
                self._roll(len(data) + _RESERVE)
                data = encode(self._number, kind, about, body)
            segment = self._segments[-1]
            at = segment.end + body_at(data)
            segment.write(data)
        except OSError as e:
            raise WalError(f"write-ahead log {self._folder} cannot be written: {e.strerror}") from e
        self._number += 1
        return segment.name, at

    def _roll(self, needed: int) -> None:
        """Begins a segment with room for `needed` bytes. Raises OSError.

        Its head has what the waiting notes say: on a full disk, only they may show that nobody needs the oldest segment.
        """
        self._book_notes()
        head = encode(self._number, Kind.HEAD, self.book.head())
        size = max(self._segment_bytes, 4 * len(head), len(head) + needed)
        segment = self._free(size)
        segment.end = 0
        try:
            segment.write(head)
        except OSError:
            segment.delete()
            raise
        self._number += 1
        self._segments.append(segment)
        self._carry()
        for old in [s for s in self._segments[:-1] if not self.book.pins[s.name]]:
            if len(self._segments) > _RING:
                self._segments.remove(old)
                old.delete()

    def _free(self, size: int) -> _Segment:
        """Returns a segment to write to: the oldest that nobody needs, else a new one."""
        for spare in [s for s in self._spare if s.size >= size]:
            self._spare.remove(spare)
            return spare
        for old in self._segments[:-1]:  # the last has the whole state until the new one has
            if not self.book.pins[old.name] and old.size >= size:
                self._segments.remove(old)
                return old
        name = max((s.name for s in self._segments + self._spare), default=-1) + 1
        path = self._folder / f"{name}.log"
        try:
            return _Segment(path, size)
        except OSError:
            path.unlink(missing_ok=True)  # no room: the agent waits until a segment is free
            raise

    def _carry(self) -> None:
        """Moves the last batches of older segments here, so that they do not hold them."""
        if len(self._segments) <= _RING:
            return
        current = self._segments[-1]
        most = min(current.room // 2, self._segment_bytes // 4)
        for old in self._segments[:-1]:
            held = [logged for logged in self.book.live.values() if logged.segment == old.name]
            size = sum(logged.size for logged in held)
            if size > most:
                continue
            most -= size
            for logged in held:
                about = {"batches": [logged.row()]}
                data = encode(self._number, Kind.BATCHES, about, (os.pread(old.fd, logged.size, logged.at),))
                at = current.end + body_at(data)
                current.write(data)
                self._number += 1
                self.book.add(about, current.name, at)

    def close(self) -> None:
        """Closes the files, once the notes that wait are written."""
        with contextlib.suppress(WalError):
            self.flush()
        for segment in self._segments + self._spare:
            os.close(segment.fd)
        self._segments, self._spare = [], []


class _Segment:
    """One file of the ring. `end` is the position behind the last entry. Raises OSError."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        self.path, self.name, self.end = path, int(path.stem), 0
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if size is not None else 0)
        self.fd = os.open(path, flags, PRIVATE_FILE)
        try:
            if size is not None:
                os.posix_fallocate(self.fd, 0, size)
            self.size = os.fstat(self.fd).st_size
        except OSError:
            os.close(self.fd)
            raise

    @property
    def room(self) -> int:
        return self.size - self.end

    def write(self, data: bytes) -> None:
        """Appends a whole entry; a part of one that an error left is written over by the next."""
        written = 0
        while written < len(data):
            written += os.pwrite(self.fd, memoryview(data)[written:], self.end + written)
        self.end += len(data)

    def wipe(self) -> None:
        """Makes its first entry invalid."""
        os.pwrite(self.fd, bytes(8), 0)

    def delete(self) -> None:
        os.close(self.fd)
        self.path.unlink(missing_ok=True)
