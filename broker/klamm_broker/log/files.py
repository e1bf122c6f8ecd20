"""File names and small file operations that every part of the log shares.

Names are Kafka's: a 20-digit base offset and a suffix.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from klamm_base.files import PRIVATE_FILE

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETE_DIR: Final = "-delete"
FUTURE_DIR: Final = "-future"
STRAY_DIR: Final = "-stray"
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
NAME_MAX: Final = 255  # bytes in a file name on the file systems that brokers use

_SMALL: Final = 64 << 10  # bytes asked for at a time; a regular file that gives less has no more
_NUMBERED: Final = re.compile(r"(\d{20})(\.[a-z]+)")
_UNIQUE_DIR: Final = re.compile(r"(.+)-(\d+)\.[0-9a-f]{1,32}(-delete|-future|-stray)")
_PARTITION_DIR: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d+)")


def offset_name(offset: int, suffix: str) -> str:
    """Returns the name of a file that starts at `offset`: `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def parse_offset_name(name: str) -> tuple[int, str] | None:
    """Returns (offset, suffix) of a segment's or snapshot's file name; None for any other name."""
    match = _NUMBERED.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_partition_dir(name: str) -> tuple[str, int] | None:
    """Returns (topic, partition) of a live partition directory's name; None for any other name."""
    match = _PARTITION_DIR.fullmatch(name)
    return (match[1], int(match[2])) if match and not _UNIQUE_DIR.fullmatch(name) else None


def is_delete_dir(name: str) -> bool:
    """Decides whether a directory's name marks a deleted partition."""
    match = _UNIQUE_DIR.fullmatch(name)
    return match is not None and match[3] == DELETE_DIR


def parse_future_dir(name: str) -> tuple[str, int] | None:
    """Returns (topic, partition) of a directory into which a partition was being moved; None for any other name."""
    match = _UNIQUE_DIR.fullmatch(name)
    return (match[1], int(match[2])) if match and match[3] == FUTURE_DIR else None


def future_dir_name(topic: str, partition: int, unique: str) -> str:
    """Returns the name of a partition's directory in another log directory until it takes over."""
    return _unique_dir_name(topic, f"-{partition}.{unique}{FUTURE_DIR}")


def delete_dir_name(topic: str, partition: int, unique: str) -> str:
    """Returns the name of a deleted partition's directory, cut to the length that a name may have."""
    return _unique_dir_name(topic, f"-{partition}.{unique}{DELETE_DIR}")


def stray_dir_name(topic: str, partition: int, unique: str) -> str:
    """Returns the name of a directory that contradicts known facts: it is kept, but not opened."""
    return _unique_dir_name(topic, f"-{partition}.{unique}{STRAY_DIR}")


def _unique_dir_name(topic: str, suffix: str) -> str:
    return topic[: NAME_MAX - len(suffix)] + suffix


def read_small(path: Path | str) -> bytes:
    """Returns the content of a small file, at a third of the cost of `Path.read_bytes`: a start reads tens of thousands."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, _SMALL)
        if len(data) < _SMALL:
            return data
        parts = [data]
        while data:
            data = os.read(fd, _SMALL)
            parts.append(data)
        return b"".join(parts)
    finally:
        os.close(fd)


class OpenFile:
    """A file descriptor that closes itself when nobody holds it any more.

    A fetch in flight holds the file that it sends from, so a segment can be deleted at any time.
    """

    __slots__ = ("fd",)

    def __init__(self, path: Path | str, flags: int) -> None:
        self.fd = os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)

    def __del__(
        self, _close: Callable[[int], None] = os.close
    ) -> None:  # bound early: at exit `os` may be gone
        if hasattr(self, "fd"):
            _close(self.fd)


class Releasable(Protocol):
    """An object that can release a resource, and get it back at any time."""

    def let_go(self) -> None: ...


class OpenLimit:
    """Bounds the number of held resources: the oldest is released first, and gets its resource back when it needs it.

    The order is first in, first out, so that using an open resource costs nothing.
    """

    __slots__ = ("_held", "_used", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held: dict[Releasable, int] = {}
        self._used = 0

    def __len__(self) -> int:
        return len(self._held)

    def add(self, item: Releasable, weight: int = 1) -> None:
        self.remove(item)
        self._held[item] = weight
        self._used += weight
        while self._used > self.capacity and len(self._held) > 1:
            oldest = next(iter(self._held))
            self.remove(oldest)
            oldest.let_go()

    def remove(self, item: Releasable) -> None:
        self._used -= self._held.pop(item, 0)


def segment_files_max() -> int:
    """Returns half of the files that the process may open: the rest is for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(soft // 2, 16)


SEGMENT_FILES: Final = OpenLimit(segment_files_max())
INDEX_BYTES: Final = OpenLimit(
    32 << 20
)  # for finished segments; one of 1 GiB has an index of 2 MiB at most by default
