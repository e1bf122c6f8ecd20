"""The files that are open: descriptors and system calls around the tracker's decisions."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from klamm_connectors.logs.tracker import HEAD, Block, Inode, Tracked, Tracker

_OPEN_MAX: Final = 512  # descriptors; further files wait until others are read to their end


class OpenFiles:
    """For one thread; reads up to `block` bytes. Files that cannot be opened or read are told to `on_error` and tried
    again.
    """

    def __init__(self, tracker: Tracker, on_error: Callable[[str, OSError], None], block: int) -> None:
        self._tracker, self._on_error, self._block = tracker, on_error, block
        self._open: dict[Inode, tuple[int, Tracked]] = {}

    def open_new(self, now: float) -> None:
        waiting = self._tracker.to_open()
        if len(self._open) + len(waiting) > _OPEN_MAX:
            self._make_room(len(self._open) + len(waiting) - _OPEN_MAX, now)
        for file in waiting:
            if len(self._open) >= _OPEN_MAX:
                break
            self._open_one(file, now)  # those that cannot be opened take no room from the others

    def _open_one(self, file: Tracked, now: float) -> None:
        fd = -1
        try:
            fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            there = os.fstat(fd)
            if (there.st_dev, there.st_ino) != file.inode:
                os.close(fd)  # renamed since the scan; the next one finds it again
                return
            start, count = self._tracker.tail_range(file)
            self._tracker.opened(file, os.pread(fd, HEAD, 0), os.pread(fd, count, start), now)
        except FileNotFoundError:
            return
        except OSError as e:
            if fd >= 0:
                os.close(fd)
            self._on_error(file.path, e)
            return
        self._open[file.inode] = (fd, file)

    def _make_room(self, wanted: int, now: float) -> None:
        """Close files that are read to their end and still have their name: they are opened again when they grow."""
        idle = [f for _, f in self._open.values() if f.seen and not f.rotated and not f.unread]
        for file in sorted(idle, key=lambda f: f.grew_at)[:wanted]:
            self._close(file, now)

    def changed(self, now: float) -> list[Tracked]:
        """Open files with something to read, after a look at each; closes those that need no more watching."""
        found = []
        for fd, file in list(self._open.values()):
            try:
                there = os.fstat(fd)
            except OSError as e:  # of a file system that went away: opened again when it is there
                self._on_error(file.path, e)
                self._close(file, now)
                continue
            if self._tracker.looked(file, there.st_size, there.st_mtime, there.st_nlink, now):
                found.append(file)
            elif file.unread and (self._tracker.is_final(file, now) or self._tracker.is_quiet(file, now)):
                found.append(file)  # its last line has no end, or its last event may have grown
            elif self._tracker.may_close(file, now):
                self._close(file, now)
        return found

    def read(self, file: Tracked, now: float) -> Block | None:
        """The next block of `file`; None when there is no whole line, or it was truncated."""
        fd, _ = self._open[file.inode]
        start, count = self._tracker.range(file, self._block)
        final = self._tracker.is_final(file, now)
        try:
            data = os.pread(fd, count, start)
        except OSError as e:
            self._on_error(file.path, e)
            return None
        return self._tracker.feed(
            file, data, count, final=final, quiet=final or self._tracker.is_quiet(file, now)
        )

    def _close(self, file: Tracked, now: float) -> None:
        fd, _ = self._open.pop(file.inode)
        os.close(fd)
        self._tracker.closed(file, now)

    def close_all(self) -> None:
        for fd, _ in self._open.values():
            os.close(fd)
        self._open.clear()
