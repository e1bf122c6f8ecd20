"""Tells whether file ranges are in the page cache, and brings them there.

`sendfile` from a page that is not in memory waits for the disk, and every connection of the broker waits with it.
`resident` asks without waiting (preadv with RWF_NOWAIT, on Linux). `bring_in` waits and is for a thread: it touches
pages and copies nothing. Where the system cannot tell, everything counts as resident.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import Final, Protocol

log = logging.getLogger(__name__)

WINDOW_BYTES: Final = 1 << 20
"""The bytes that are checked, and then sent, at a time."""
STEP_BYTES: Final = 256 << 10
"""The system reads ahead and drops pages in runs, so one page of this many bytes speaks for the others."""
AHEAD_BYTES: Final = 4 << 20
"""The bytes that a thread brings in at once, and has read ahead behind them: a reader of old records reads on."""

_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_byte: Final = [bytearray(1)]
_unsupported: Final = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_can_tell: Final = [_NOWAIT != 0 and hasattr(os, "preadv")]


class FileRange(Protocol):
    """Bytes `position` to `position + size` of a file; holding the range holds the file open."""

    @property
    def fd(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...


def resident(fd: int, position: int, size: int) -> bool:
    """Decides whether `size` bytes (at most a window) can be read without waiting. Takes about a microsecond a step."""
    if not _can_tell[0]:
        return True
    last = position + size - 1
    try:
        for at in (*range(position, last, STEP_BYTES), last):
            os.preadv(fd, _byte, at, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError as e:
        if e.errno not in _unsupported:
            raise
        log.info("the file system of the log directory does not say what is in memory: %s", e.strerror)
        _can_tell[0] = False
    return True


def read_now(range_: FileRange) -> bytes | None:
    """Returns the bytes of a range; None if they cannot be read without waiting, or if the system cannot tell."""
    if not _can_tell[0]:
        return None
    buffer = bytearray(range_.size)
    try:
        count = os.preadv(range_.fd, [buffer], range_.position, _NOWAIT)
    except OSError:
        return None
    return bytes(buffer) if count == range_.size else None


def bring_in(range_: FileRange) -> int:
    """Read the beginning of a range from the disk into the page cache. Returns how many bytes. Run it in a thread.

    The system reads ahead behind them: a reader of old records reads on, and finds its next answers in memory.
    """
    fd, position, size = range_.fd, range_.position, min(range_.size, AHEAD_BYTES)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_WILLNEED)
        os.posix_fadvise(fd, position + size, AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
    for at in (*range(position, position + size, STEP_BYTES // 2), position + size - 1):
        os.pread(fd, 1, at)
    return size


def read_into(fd: int, view: memoryview, position: int, *, wait: bool) -> int:
    """Read what is in memory into `view`. Returns the count; raises BlockingIOError if there is nothing, unless it may wait."""
    if wait or not _can_tell[0]:
        return os.preadv(fd, [view], position)
    try:
        return os.preadv(fd, [view], position, _NOWAIT)
    except BlockingIOError:
        raise
    except OSError as e:
        if e.errno not in _unsupported:
            raise
        return os.preadv(fd, [view], position)
