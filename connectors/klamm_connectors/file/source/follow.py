"""Follows the file at a path through growth, truncation, truncation and refill, renaming and replacement.

Invariant: the task remembers the bytes just before `position` and reads them again with every chunk, in the
same system call. So it never takes other bytes for the continuation of what it read. In doubt it reads the
file from its beginning: lines may be repeated, but none is cut or silently left out. It switches to a new
file at the path when that file has content and the open file is read to its end. It does not sleep. It does
not look for files that were rotated away before it could open them, but warns when there seem to be some.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Final

from klamm_connectors.file.source.lines import NONE, Lines, LineSplitter
from klamm_connectors.file.source.positions import ends_line
from klamm_plugins.errors import ConnectError

log = logging.getLogger(__name__)

_CHUNK: Final = 256 * 1024  # about two batches of 2000 lines of a usual log
_KEPT: Final = 1024  # bytes before the position by which a file is known again
_LINE_MAX: Final = 64 * 1024 * 1024  # no broker takes a record of this size
_WATCH_S: Final = 60.0  # how long a file that was left is looked at for lines that come too late
_NAMED_MAX: Final = 5  # files that one warning names


class FollowedFile:
    """The lines of one path, each with the position after it. For one thread."""

    def __init__(self, path: str, position: int) -> None:
        self._path = path
        self._splitter = LineSplitter(position)
        self._kept = b""
        self._fd: int | None = None
        self._identity = (0, 0)
        self._left: tuple[int, int, float] | None = (
            None  # the file before this: descriptor, bytes read, watched until
        )
        self._missing_logged = False

    @property
    def done(self) -> int:
        """The position after the last line that was returned."""
        return self._splitter.position - self._splitter.pending

    def size(self) -> int | None:
        """Returns the open file's size in bytes; None when no file is open."""
        return None if self._fd is None else os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        self._forget_left()

    def read_lines(self) -> Lines | None:
        """Returns the lines that the next chunk completes, maybe none; None when there is nothing new."""
        if self._fd is None and not self._open_first():
            return None
        chunk, seen = self._read()
        if len(chunk) == seen:
            self._watch_left()
            if not self._is_replaced():
                return None
            opened = self._open()
            if opened is None:
                return None
            # Bytes that were written between the last look at the open file and its replacement.
            chunk, seen = self._read()
            if len(chunk) == seen:
                return self._switch(opened)
            os.close(opened)  # found again when the rest is read
        lines = self._splitter.feed(chunk, seen)
        self._check_line_length()
        return lines

    def _open(self) -> int | None:
        try:
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as e:
            raise ConnectError(f"file {self._path} cannot be opened: {e.strerror}") from e

    def _open_first(self) -> bool:
        opened = self._open()
        if opened is None:
            if not self._missing_logged:
                log.warning("%s: no such file yet; waiting for it", self._path)
                self._missing_logged = True
            return False
        self._take(opened)
        if self._splitter.position:
            self._check_committed(self._splitter.position)
        return True

    def _check_committed(self, position: int) -> None:
        """Starts over when no line of this file can have ended at `position`."""
        kept = min(position, _KEPT)
        found = self._pread(kept + 1, position - kept)
        if len(found) < kept:
            self._start_over(self._shorter())
        elif not ends_line(found[kept - 1 : kept], found[kept:]):
            self._start_over(f"no line ends at byte {position}, so it is not the file that was read before")
        else:
            self._kept = found[:kept]

    def _take(self, fd: int) -> None:
        self._fd = fd
        there = os.fstat(fd)
        self._identity = (there.st_dev, there.st_ino)

    def _read(self) -> tuple[bytes, int]:
        """Returns the bytes after the position, behind some that were read before, and how many these are; or the
        file's beginning when it is not the file that was read before.
        """
        kept = self._kept
        data = self._pread(len(kept) + _CHUNK, self._splitter.position - len(kept))
        if not data.startswith(kept):
            size = self.size()
            differs = f"the bytes before byte {self._splitter.position} are not those read there before"
            self._start_over(
                self._shorter()
                if size is not None and size < self._splitter.position
                else f"{differs}, so it was truncated and filled again"
            )
            data, kept = self._pread(_CHUNK, 0), b""
        if len(data) > len(kept):
            self._kept = data[-_KEPT:]
        return data, len(kept)

    def _pread(self, count: int, position: int) -> bytes:
        assert self._fd is not None, "opened by the caller"
        try:
            return os.pread(self._fd, count, position)
        except OSError as e:
            raise ConnectError(f"file {self._path} cannot be read at byte {position}: {e.strerror}") from e

    def _is_replaced(self) -> bool:
        """Returns True when the path names another file that has content.

        An empty file can wait: the writer may still have the old file open.
        """
        try:
            there = Path(self._path).stat()
        except OSError:
            return False  # renamed or removed, and nothing in its place yet
        return there.st_size > 0 and (there.st_dev, there.st_ino) != self._identity

    def _switch(self, opened: int) -> Lines:
        """Switches to the new file. Returns the old file's last line when it has no line end.

        That line's position is 0, the beginning of the new file.
        """
        assert self._fd is not None, "there is an old file"
        old = os.fstat(self._fd)
        rest = self._splitter.finish()
        log.info(
            "%s: was replaced by another file; the old one was read to its end (%d bytes), going on with the new one",
            self._path,
            self._splitter.position,
        )
        self._forget_left()
        self._left = (self._fd, self._splitter.position, time.monotonic() + _WATCH_S)
        self._take(opened)
        self._splitter = LineSplitter(0)
        self._kept = b""
        self._warn_of_files_between(old)
        return NONE if rest is None else Lines([rest], [0])

    def _watch_left(self) -> None:
        """Warns when the previous file grows after the switch, for example because of a second writer."""
        if self._left is None:
            return
        fd, read, until = self._left
        late = os.fstat(fd).st_size - read
        if late > 0:
            log.warning(
                "%s: the file that was replaced got %d bytes more after byte %d, which are not read: something "
                "still writes to it",
                self._path,
                late,
                read,
            )
        if late > 0 or time.monotonic() > until:
            self._forget_left()

    def _forget_left(self) -> None:
        if self._left is not None:
            os.close(self._left[0])
            self._left = None

    def _warn_of_files_between(self, old: os.stat_result) -> None:
        """Warns of other files beside this one that were written after the old file: they were not read."""
        path = Path(self._path)
        between = []
        try:
            with os.scandir(path.parent) as entries:
                for entry in entries:
                    if not entry.name.startswith(path.name) or not entry.is_file(follow_symlinks=False):
                        continue
                    there = entry.stat(follow_symlinks=False)
                    known = (there.st_dev, there.st_ino) in {self._identity, (old.st_dev, old.st_ino)}
                    if not known and there.st_size and there.st_mtime_ns > old.st_mtime_ns:
                        between.append(entry.name)
        except OSError as e:
            log.warning("%s: cannot tell whether files in between were not read: %s", self._path, e)
        if between:
            log.warning(
                "%s: seems to have been replaced more than once since the last look; files in between were not "
                "read: %s%s",
                self._path,
                ", ".join(sorted(between)[:_NAMED_MAX]),
                ", ..." if len(between) > _NAMED_MAX else "",
            )

    def _shorter(self) -> str:
        return f"is shorter than the {self._splitter.position} bytes read so far, so it was truncated or replaced"

    def _start_over(self, why: str) -> None:
        log.warning(
            "%s: %s: reading from its beginning (an unfinished line of %d bytes is gone)",
            self._path,
            why,
            self._splitter.pending,
        )
        self._splitter = LineSplitter(0)
        self._kept = b""

    def _check_line_length(self) -> None:
        if self._splitter.pending > _LINE_MAX:
            raise ConnectError(
                f"file {self._path}: the line that begins at byte {self.done} is longer than {_LINE_MAX} bytes"
            )
