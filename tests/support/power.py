"""A disk that keeps only what was forced to it: what a power cut leaves, without cutting the power.

`SyncedDisk` stands in for `os.fsync`. It notes the content of each file, and the names in each directory, as they were when
an fsync of theirs was called and has returned. `image` then makes a directory tree of that alone: a file that was never
synced is empty, one whose directory was not synced since it was made is not there, and a rename that was not synced has
not happened. That is stricter than file systems are. Linux only: it asks /proc for the path of a file.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest


class SyncedDisk:
    """`syncs` counts calls of fsync; `before` is called with each path first and may raise or wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, delay_s: float = 0.0) -> None:
        self.syncs = 0
        self.before: Callable[[str], None] = lambda _: None
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self._files: dict[int, bytes] = {}
        self._directories: dict[int, dict[str, int]] = {}
        self._held: list[int] = []  # so that no inode is used for another file
        self._open: set[int] = set()
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "fdatasync", self.fsync)

    def fsync(self, fd: int) -> None:
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        self.before(path)
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            names = {entry.name: entry.inode() for entry in os.scandir(path)}
            self._wait()
            with self._lock:
                self._directories[status.st_ino] = names
        else:
            content = self._read(fd, status.st_size)
            self._wait()
            with self._lock:
                self._files[status.st_ino] = content
        with self._lock:
            self.syncs += 1
            if status.st_ino not in self._open:
                self._open.add(status.st_ino)
                self._held.append(
                    os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
                )  # its path may be another by now

    def _wait(self) -> None:
        if self._delay_s:
            time.sleep(self._delay_s)

    @staticmethod
    def _read(fd: int, size: int) -> bytes:
        own = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        try:
            return os.pread(own, size, 0)
        finally:
            os.close(own)

    def image(self, root: Path, target: Path) -> None:
        """Write what of `root` would be there after a power cut to `target`."""
        with self._lock:
            self._restore(root.stat().st_ino, target)

    def _restore(self, inode: int, target: Path) -> None:
        target.mkdir()
        for name, child in self._directories.get(inode, {}).items():
            if child in self._directories or child not in self._files:
                # A directory that was never synced is there and empty; so is a file, and an empty directory in its
                # place would be more than it could be.
                if child in self._directories:
                    self._restore(child, target / name)
                elif "." in name or name == "producer-id-block" or name.endswith("checkpoint"):
                    (target / name).write_bytes(b"")
                else:
                    (target / name).mkdir()
            else:
                (target / name).write_bytes(self._files[child])

    def close(self) -> None:
        for fd in self._held:
            os.close(fd)
