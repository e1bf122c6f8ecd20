"""Source files that grow and rotate while they are read: a cut of them all, and later what has come since.

`take` opens every file and notes where its last complete line ends: these lines were there at that moment. They are
read through the open file, so that renaming, removing and compressing it changes nothing. A file that is truncated
before it was read (copytruncate) no longer has the same first bytes and the same last ones before the cut: then what is
left of it is looked for in a copy, which has both. `rest` gives what files have beyond the cut by then, and files that were not
there: whoever reads a target in between has seen no document of any other line.
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
"""How long rotation may go on without two looks that see the same files."""
AGAIN_S: Final = 0.05
COPY_S: Final = 3.0
"""How long a copy beside its original is taken for a rotation that is under way."""

Inode = tuple[int, int]


@dataclass(slots=True)
class Source:
    """An open file; its lines up to `cut` are in the cut, or, of a compressed one, all."""

    path: str
    inode: Inode
    fd: int
    cut: int
    head: bytes
    tail: bytes
    """The bytes before the cut."""
    compressed: bool
    seen: int = 0
    """How far it has been given out."""

    def is_in(self, fd: int) -> bool:
        """Whether an open file, this one or another, has what this one had when it was opened."""
        size = len(self.tail)
        return (
            os.pread(fd, len(self.head), 0) == self.head and os.pread(fd, size, self.cut - size) == self.tail
        )


class Sources:
    """All files of some patterns. Use with `with`: it closes them. Raises KlammError for what cannot be read."""

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
        """The cut: two looks that see the same files, none of them a copy that is just being made."""
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
        """The lines of the cut. What was truncated meanwhile and is in no copy is in `unread` afterwards."""
        for source in self.cut:
            if source.compressed:
                yield from _compressed(source)
            else:
                yield from self._part(source, 0, source.cut)
            source.seen = source.cut

    def rest(self) -> Iterator[RawLine]:
        """Lines that have come since the cut, or since this was last asked; some of them may come twice."""
        until = time.monotonic() + STABLE_S
        while True:
            self._look_again()
            for source in self._files.values():
                yield from _new_lines(source)
            # What was truncated after it was opened and before it was read is in a copy that has come since
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
        """All files, open: two looks that see the same ones. Not those that are just being compressed."""
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
        """Lines of a part of the cut, from a copy if the file is truncated meanwhile."""
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
        """Another file that has what this one had, open. All are looked at together: names change while one looks."""
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
    """Where the last complete line between `start` and `size` ends; `start` where there is none."""
    end = size
    while end > start:
        begin = max(start, end - CHUNK)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return start


def _chunks(source: Source, start: int, end: int) -> Iterator[RawLine]:
    """Complete lines from `start` to `end`, as long as the file is what it was when it was opened."""
    left, at, place = b"", start, start
    while at < end:
        data = os.pread(source.fd, min(CHUNK, end - at), at)
        # Looked at after the read: bytes of a file that was truncated before it never pass for its own
        if not data or not source.is_in(source.fd):
            return
        at += len(data)
        *lines, left = (left + data).split(b"\n")
        for line in lines:
            yield RawLine(source.path, place, line)
            place += len(line) + 1


def _new_lines(source: Source) -> Iterator[RawLine]:
    """What an open file has beyond the place to which it was read."""
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
    """Whether the file that this one is made of is there still: `gzip` removes it at the end."""
    plain = source.path.removesuffix(".gz")
    return source.compressed and any(s.path == plain for s in found.values())


def _has_copies(sources: list[Source]) -> bool:
    """Whether a file is the beginning of another one, as it is until `copytruncate` truncates."""
    by_head = sorted((s for s in sources if s.head), key=lambda s: s.head)
    return any(a.is_in(b.fd) or b.is_in(a.fd) for a, b in pairwise(by_head))


def _inode(path: Path) -> Inode | None:
    try:
        about = path.stat()
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino


def _allow_many_files() -> None:
    """Every file of the cut is open at a time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
