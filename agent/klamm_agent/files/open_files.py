"""The open files: descriptors and system calls around the tracker's decisions."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from typing import Final

from klamm_agent.files.gzip import MAGIC, Candidate, GzipReader, Inspection
from klamm_agent.files.strays import NOBODY, look_for
from klamm_agent.files.tracked import HEAD, TAIL, Block, Inode, Print, Tracked
from klamm_agent.files.tracker import Tracker

OPEN_MAX: Final = 512  # descriptors; further files wait until others are read to their end
_COMPARED: Final = 4096  # bytes that are compared to recognise a copy that is still being written
_UNPACK: Final = 2 * 1024 * 1024  # bytes that a turn unpacks of an archive, to look through or to skip them


class OpenFiles:
    """The open files, for one thread. It reads up to `block` bytes at a time and keeps at most `most` files open. It tells `on_error` of
    files that cannot be opened or read, and tries them again.
    """

    def __init__(
        self,
        tracker: Tracker,
        on_error: Callable[[str, OSError], None],
        block: int,
        most: int = OPEN_MAX,
        owner: Callable[[str], int] = lambda _: NOBODY,
    ) -> None:
        self._owner = owner
        self._tracker, self._on_error, self._block, self._most = tracker, on_error, block, most
        self._open: dict[Inode, tuple[int, Tracked]] = {}
        self._packed: dict[Inode, GzipReader] = {}
        self._looking: tuple[int, Tracked, Inspection] | None = None
        self._fruitless: set[Inode] = set()  # files whose last read gave nothing
        self.busy = False
        """True when there is more to unpack: the next turn should come at once."""

    def open_new(self, now: float) -> None:
        look_for(self._tracker, self._owner, self._on_error, now)
        waiting = self._tracker.to_open()
        if waiting:
            self._tracker.archives.index()
        if len(self._open) + len(waiting) > self._most:
            self._make_room(len(self._open) + len(waiting) - self._most, now)
        for file in waiting:
            if len(self._open) >= self._most:
                break
            if self._waits_for_older(file):
                continue
            self._open_one(file, now)  # a file that cannot be opened takes no room from the others

    def _open_one(self, file: Tracked, now: float) -> None:
        fd = -1
        try:
            fd = os.open(file.where or file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            there = os.fstat(fd)
            if (there.st_dev, there.st_ino) != file.inode:
                os.close(fd)
                _renamed(file)
                return
            if not self._begin(fd, file, there, now):
                os.close(fd)
                return
        except FileNotFoundError:
            _renamed(file)
            return
        except OSError as e:
            if fd >= 0:
                os.close(fd)
            self._on_error(file.path, e)
            return
        self._open[file.inode] = (fd, file)

    def _begin(self, fd: int, file: Tracked, there: os.stat_result, now: float) -> bool:
        """Tells the tracker what a file holds; returns whether the file is to be read."""
        head = os.pread(fd, HEAD, 0)
        start, count = self._tracker.tail_range(file)
        if file.astray and not self._tracker.recognised(file, head, os.pread(fd, count, start)):
            return False
        compression = self._tracker.limits(file).compression
        if compression != "none" and (head.startswith(MAGIC) or (head and MAGIC.startswith(head))):
            if len(head) < len(MAGIC):
                return False  # somebody has just begun to write it
            tail = os.pread(fd, TAIL, max(0, there.st_size - TAIL))
            if not self._tracker.archives.opened(file, head, tail, there.st_size, there.st_mtime):
                return False
            reader = self._packed[file.inode] = GzipReader(_reader(fd))
            self._tracker.opened_archive(file, reader.pread(HEAD, 0), now)
            return True
        if file.archive is not None:
            self._tracker.not_packed(file)
        if compression == "gzip":
            raise OSError(errno.EINVAL, 'it is not a gzip file, although compression = "gzip"')
        start, count = self._tracker.tail_range(file)
        self._tracker.met(file, head, os.pread(fd, count, start))
        for c in self._tracker.archives.copied(file, head, there.st_size):
            if self._agree(fd, c):
                if self._is_replaced(c) or not self._tracker.archives.is_copy(file, c, there.st_size, now):
                    return False
                break
        start, count = self._tracker.tail_range(file)  # a copy begins at another position
        self._tracker.opened(file, head, os.pread(fd, count, start), now)
        return True

    def _agree(self, fd: int, candidate: Candidate) -> bool:
        """Tells, by the bytes before its offset, whether the file has the candidate's content."""
        length, offset = candidate.tail.length, candidate.offset
        if length or not offset:
            return Print.of(os.pread(fd, length, offset - length)) == candidate.tail
        if (original := self._open.get(candidate.inode)) is None:
            return False
        start = max(0, offset - _COMPARED)
        same = os.pread(fd, offset - start, start) == os.pread(original[0], offset - start, start)
        return same or self._is_replaced(candidate)

    def _is_replaced(self, candidate: Candidate) -> bool:
        """Tells whether an open file was truncated since its last read. The file's next read finds that out, when there is room."""
        original = self._open.get(candidate.inode)
        if original is None:
            return False
        fd, source = original
        known = len(source.tail)
        if not source.position:
            return not source.head_print.fits(os.pread(fd, HEAD, 0))
        return os.pread(fd, known, source.position - known) != source.tail

    def look_through(self, now: float) -> None:
        """Looks through a bit more of the archive whose turn it is."""
        if self._looking is None:
            waiting = self._tracker.archives.to_look()
            if not waiting or not self._start_looking(waiting[0]):
                return
        assert self._looking is not None, "it has begun"
        fd, file, inspection = self._looking
        try:
            if not inspection.step(_UNPACK):
                self.busy = True
                return
        except OSError as e:
            self._on_error(file.path, e)
        else:
            if file.archive is not None and file.archive.state == "look":
                self._tracker.archives.found(file, inspection, now)
        os.close(fd)
        self._looking = None

    def _start_looking(self, file: Tracked) -> bool:
        try:
            fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as e:
            if not isinstance(e, FileNotFoundError):
                self._on_error(file.path, e)
            return False
        there = os.fstat(fd)
        if (there.st_dev, there.st_ino) != file.inode:
            os.close(fd)
            return False
        self._looking = (fd, file, Inspection(_reader(fd), partial(self._tracker.archives.candidates, file)))
        return True

    def _make_room(self, wanted: int, now: float) -> None:
        """Closes files that are read to their end and still have their name: they are opened again when they grow."""
        idle = [f for _, f in self._open.values() if f.seen and not f.rotated and not f.unread]
        for file in sorted(idle, key=lambda f: f.grew_at)[:wanted]:
            self._close(file, now)

    def changed(self, now: float) -> list[Tracked]:
        """Looks at each open file; returns those with something to read, and closes those that need no more watching."""
        found = []
        self.busy = False
        self.look_through(now)
        for fd, file in list(self._open.values()):
            try:
                there = os.fstat(fd)
            except OSError as e:  # its file system went away: it is opened again when that is back
                self._on_error(file.path, e)
                self._close(file, now)
                continue
            if self._tracker.looked(file, there.st_size, there.st_mtime, there.st_nlink, now):
                found.append(file)
            elif file.unread and (self._tracker.is_final(file, now) or self._tracker.is_quiet(file, now)):
                found.append(file)  # its last line has no end, or its last event may have grown
            elif self._tracker.may_close(file, now):
                self._close(file, now)
        return self._in_order(found)

    def _in_order(self, found: list[Tracked]) -> list[Tracked]:
        """Keeps, of an input that reads one file after another, only the file whose turn it is."""
        chosen: list[Tracked] = []
        first: dict[int, Tracked] = {}
        for file in found:
            if self._tracker.limits(file).order == "parallel":
                chosen.append(file)
                continue
            best = first.get(file.source)
            if best is None or self._turn(file) < self._turn(best):
                first[file.source] = file
        full = len(self._open) >= self._most  # then an archive could not be opened
        chosen += [file for file in first.values() if full or not self._waits_for_older(file)]
        return chosen

    def _waits_for_older(self, file: Tracked) -> bool:
        return self._tracker.limits(file).order == "oldest_first" and self._tracker.archives.older(file)

    def _turn(self, file: Tracked) -> tuple[bool, float, str]:
        return file.inode in self._fruitless, self._tracker.turn(file), file.path

    def verify(self, file: Tracked) -> None:
        """Looks for a truncation of a file that cannot be read now, for want of room."""
        fd, known = self._open[file.inode][0], len(file.tail)
        if file.archive is not None:
            return
        try:
            if not file.position:
                self._tracker.glimpsed(file, os.pread(fd, HEAD, 0))
                return
            data = os.pread(fd, known, file.position - known)
        except OSError as e:
            self._on_error(file.path, e)
            return
        if data != file.tail:
            self._tracker.feed(file, data, known)

    def read(self, file: Tracked, now: float) -> Block | None:
        """Returns the next block of `file`; None when it has no whole line, or was truncated."""
        block = self._read(file, now)
        if block is None:
            self._fruitless.add(file.inode)
        else:
            self._fruitless.discard(file.inode)
        return block

    def _read(self, file: Tracked, now: float) -> Block | None:
        fd, _ = self._open[file.inode]
        start, count = self._tracker.range(file, self._block)
        final = self._tracker.is_final(file, now)
        packed = self._packed.get(file.inode)
        try:
            if packed is None:
                data = os.pread(fd, count, start)
            elif packed.advance(start, _UNPACK):
                data = packed.pread(count, start)
            else:
                self.busy = True
                return None
        except OSError as e:
            self._on_error(file.path, e)
            return None
        return self._tracker.feed(
            file, data, count, final=final, quiet=final or self._tracker.is_quiet(file, now)
        )

    def _close(self, file: Tracked, now: float) -> None:
        fd, _ = self._open.pop(file.inode)
        self._packed.pop(file.inode, None)
        self._fruitless.discard(file.inode)
        os.close(fd)
        self._tracker.closed(file, now)

    def close_all(self) -> None:
        for fd, _ in self._open.values():
            os.close(fd)
        self._open.clear()
        self._packed.clear()
        if self._looking is not None:
            os.close(self._looking[0])
            self._looking = None


def _renamed(file: Tracked) -> None:
    """Takes note that a file was renamed since the scan: the next scan finds it again."""
    if file.astray == "found":
        file.astray = "look"


def _reader(fd: int) -> Callable[[int, int], bytes]:
    return lambda count, offset: os.pread(fd, count, offset)
