"""Modes of what is on the disk: folders 0700, files 0600."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def umask(value: int) -> Iterator[None]:
    """Gives this process and those that it starts meanwhile another umask."""
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def not_private(folder: Path) -> dict[str, str]:
    """Returns path and mode of everything in the folder, itself included, that others may use."""
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}
    return {
        str(path.relative_to(folder)): oct(mode)
        for path, mode in modes.items()
        if mode != (0o700 if path.is_dir() else 0o600)
    }
