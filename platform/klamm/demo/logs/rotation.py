"""Log files that are rotated as logrotate does it: by renaming, or by copying and truncating.

A rotated file keeps its content; `access.log.1` is the newest. The writer itself copies and truncates between two writes,
so that no line falls into the gap that logrotate's `copytruncate` has.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from klamm.demo.logs.lines import Rotation


class LogFile:
    """One growing file. `rotate` moves its content out of the way; `lines` counts over all its rotations."""

    def __init__(self, path: Path, rotation: Rotation | None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._rotation = rotation
        self._fd = self._open()
        self.lines = 0
        self.rotations = 0

    def write(self, lines: list[bytes]) -> None:
        """Appends whole lines, so that a reader never sees half of one for long."""
        data = memoryview(b"".join(lines))
        while data:
            data = data[os.write(self._fd, data) :]
        self.lines += len(lines)

    def rotate(self) -> None:
        """Rotates the file in its own way. Does nothing for a file without rotation."""
        if self._rotation is None:
            return
        for number in range(self.rotations, 0, -1):
            self._rotated(number).rename(self._rotated(number + 1))
        if self._rotation == "rename":
            self._path.rename(self._rotated(1))
            os.close(self._fd)
            self._fd = self._open()
        else:
            shutil.copyfile(self._path, self._rotated(1))
            os.ftruncate(self._fd, 0)
        self.rotations += 1

    def close(self) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def _rotated(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
