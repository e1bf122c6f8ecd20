"""Source files that grow and rotate while they are read: a cut of them all, and later the lines since the cut.

`take` opens every file and notes the end of its last complete line: these lines are the cut. It reads them through
the open file, so that renaming, removing and compressing the file changes nothing. A file that is truncated before it
was read (copytruncate) no longer has the same first bytes, and the same last bytes before the cut; its copy has both,
and the unread lines come from the copy. `rest` gives the lines beyond the cut, and those of new files: documents of a
target that was read in between belong to no other line.
"""

from __future__ import annotations

import gzip
import os
import resource
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self, cast

from klamm.reconcile.compare import Unread
from klamm.reconcile.files import RawLine, expand
from klamm_base.errors import KlammError

HEAD: Final = 1024
TAIL: Final = 256
CHUNK: Final = 1 << 20
STABLE_S: Final = 10.0
"""The longest time for two looks in a row to see the same files while rotation goes on."""
AGAIN_S: Final = 0.05
COPY_S: Final = 3.0
"""The time for which a copy beside its original counts as a running rotation."""

Inode = tuple[int, int]


@dataclass(slots=True)
class Source:
    """An open file. Its lines up to `cut` are in the cut; all lines of a compressed file are."""

    path: str
    inode: Inode
    fd: int
    cut: int
    head: bytes
    tail: bytes
    """The bytes before the cut."""
    compressed: bool
    seen: int = 0
    """The offset up to which its lines were given out."""

    def is_in(self, fd: int) -> bool:
        """Return whether an open file, this file or another, begins with the contents that this file had at its
        opening.
        """
        size = len(self.tail)
        return (
            os.pread(fd, len(self.head), 0) == self.head and os.pread(fd, size, self.cut - size) == self.tail
        )


class Sources:
    """All files of some patterns, to be used in a `with`, which closes them. Raises KlammError for an unreadable file."""

    def __init__(self, patterns: Sequence[str], exclude: Sequence[str] = ()) -> None:
        self._patterns = patterns
        self._exclude = exclude
        self._files: dict[Inode, Source] = {}
        self._opened: list[int] = []
        self.cut: list[Source] = []
        """The files of the cut, by the names that they had then."""
        self.unread: list[Unread] = []
        """Of the cut, what was gone before it was read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self._opened:
            os.close(fd)

    def take(self) -> None:
        """Take the cut: after two looks that see the same files, none of them a copy in the making."""
        _allow_many_files()
        expand(self._patterns)
        copies_until = time.monotonic() + COPY_S
        while True:
            now = self._look()
            if time.monotonic() > copies_until or not _has_copies(list(now.values())):
                break
            for source in now.values():
                os.close(source.fd)
            time.sleep(AGAIN_S)
        self._files, self.cut = now, list(now.values())
        self._opened = [s.fd for s in self.cut]

    def lines(self) -> Iterator[RawLine]:
        """Yield the lines of the cut. `unread` holds lines that were truncated meanwhile and are in no copy."""
        for source in self.cut:
            if source.compressed:
                yield from _compressed(source)
            else:
                yield from self._part(source, 0, source.cut)
            source.seen = source.cut

    def rest(self) -> Iterator[RawLine]:
        """Yield lines that have come since the cut, or since the last call; some lines may come twice."""
        until = time.monotonic() + STABLE_S
        while True:
            self._look_again()
            for source in self._files.values():
                yield from _new_lines(source)
            # Lines that were truncated between opening and reading are in a copy that has come since
            if all(s.compressed or s.is_in(s.fd) for s in self._files.values()):
                return
            if time.monotonic() > until:
                raise self._too_fast("truncated")

    def _look_again(self) -> None:
        """Take in new files, and those that were truncated and written anew."""
        for source in [s for s in self._files.values() if not s.compressed and not s.is_in(s.fd)]:
            del self._files[source.inode]
        for inode, source in self._look().items():
            if inode in self._files:
                os.close(source.fd)
            else:
                self._files[inode] = source
                self._opened.append(source.fd)

    def _look(self) -> dict[Inode, Source]:
        """Return all files, open, after two looks that see the same files.

        Leaves out a file in the making by compression.
        """
        until = time.monotonic() + STABLE_S
        while True:
            found = self._open_all()
            same = found.keys() == {_inode(p) for p in self._list()}
            dropped = [s for s in found.values() if not same or _being_compressed(s, found)]
            for source in dropped:
                os.close(source.fd)
            if same:
                return {s.inode: s for s in found.values() if s not in dropped}
            if time.monotonic() > until:
                raise self._too_fast("renamed")
            time.sleep(AGAIN_S)

    def _too_fast(self, what: str) -> KlammError:
        patterns = ", ".join(self._patterns)
        return KlammError(f"files that match {patterns} are {what} faster than one can read them")

    def _list(self) -> list[Path]:
        excluded = set(expand(self._exclude, must=False))
        return [p for p in expand(self._patterns, must=False) if p not in excluded]

    def _open_all(self) -> dict[Inode, Source]:
        found: dict[Inode, Source] = {}
        for path in self._list():
            try:
                source = _open(path)
            except FileNotFoundError:
                continue  # the next look finds its new name
            except BaseException:
                for other in found.values():
                    os.close(other.fd)
                raise
            if source.inode in found:  # a hard link, or renamed between two of the patterns
                os.close(source.fd)
            else:
                found[source.inode] = source
        return found

    def _part(self, source: Source, start: int, end: int) -> Iterator[RawLine]:
        """Yield lines of a part of the cut, from a copy if the file is truncated meanwhile."""
        at = start
        for line in _chunks(source, start, end):
            yield line
            at = line.offset + len(line.data) + 1
        if at >= end:
            return
        copy = self._copy_of(source)
        if copy is None:
            self.unread.append(Unread(source.path, at, end))
            return
        try:
            yield from _chunks(copy, at, end)
        finally:
            os.close(copy.fd)

    def _copy_of(self, source: Source) -> Source | None:
        """Return another file, open, that has this file's contents.

        Looks at all files together: names change meanwhile.
        """
        copy = None
        for other in self._look().values():
            same = other.inode != source.inode and not other.compressed and source.is_in(other.fd)
            if same and copy is None:
                copy = other
            else:
                os.close(other.fd)
        return copy


def _open(path: Path) -> Source:
    """Open a file and find its last complete line. Raises FileNotFoundError, and KlammError for the rest."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as e:
        raise KlammError(f"cannot read {path}: {e.strerror}") from None
    about = os.fstat(fd)
    compressed = path.suffix == ".gz"
    cut = about.st_size if compressed else _last_line_end(fd, 0, about.st_size)
    head = b"" if compressed else os.pread(fd, min(HEAD, cut), 0)
    tail = b"" if compressed else os.pread(fd, min(TAIL, cut), cut - min(TAIL, cut))
    return Source(str(path), (about.st_dev, about.st_ino), fd, cut, head, tail, compressed)


def _last_line_end(fd: int, start: int, size: int) -> int:
    """Return the end of the last complete line between `start` and `size`; `start` where there is none."""
    end = size
    while end > start:
        begin = max(start, end - CHUNK)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return start


def _chunks(source: Source, start: int, end: int) -> Iterator[RawLine]:
    """Yield complete lines from `start` to `end`, as long as the file keeps the contents that it had at its opening."""
    left, at, place = b"", start, start
    while at < end:
        data = os.pread(source.fd, min(CHUNK, end - at), at)
        # We check after the read: bytes of a file that was truncated before never pass for the file's own
        if not data or not source.is_in(source.fd):
            return
        at += len(data)
        *lines, left = (left + data).split(b"\n")
        for line in lines:
            yield RawLine(source.path, place, line)
            place += len(line) + 1


def _new_lines(source: Source) -> Iterator[RawLine]:
    """Yield the lines of an open file beyond the last read offset."""
    size = os.fstat(source.fd).st_size
    if source.compressed:
        if source.seen == 0:
            yield from _compressed(source)
            source.seen = size
        return
    end = _last_line_end(source.fd, source.seen, size)
    if not source.head:  # it was empty when it was opened: from its first lines on it is known by them
        source.head = os.pread(source.fd, min(HEAD, end), 0)
    for line in _chunks(source, source.seen, end):
        yield line
        source.seen = line.offset + len(line.data) + 1


def _compressed(source: Source) -> Iterator[RawLine]:
    offset = 0
    try:
        with os.fdopen(os.dup(source.fd), "rb") as raw, gzip.open(raw, "rb") as file:
            raw.seek(0)
            for data in cast(BinaryIO, file):
                if data.endswith(b"\n"):
                    yield RawLine(source.path, offset, data[:-1])
                offset += len(data)
    except (OSError, EOFError, zlib.error) as e:
        raise KlammError(f"cannot read {source.path}: {e}") from None


def _being_compressed(source: Source, found: dict[Inode, Source]) -> bool:
    """Return whether the original of this compressed file still exists: `gzip` removes it at the end."""
    plain = source.path.removesuffix(".gz")
    return source.compressed and any(s.path == plain for s in found.values())


def _has_copies(sources: list[Source]) -> bool:
    """Return whether a file is the beginning of another file, as it is until `copytruncate` truncates."""
    by_head = sorted((s for s in sources if s.head), key=lambda s: s.head)
    return any(a.is_in(b.fd) or b.is_in(a.fd) for a, b in pairwise(by_head))


def _inode(path: Path) -> Inode | None:
    try:
        about = path.stat()
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino


def _allow_many_files() -> None:
    """Raise the limit of open files: every file of the cut is open at the same time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
