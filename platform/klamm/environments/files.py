"""Writes and removes files and folders of the plugin directory as a whole, even if the process is killed
meanwhile. Blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from klamm.environments.overlay import IN_USE
from klamm_base.files import write_atomically

_READABLE: Final = 0o644
"""Packages hold no secrets, and a plugin directory that root fills may be read by a worker of another user."""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is on the disk before it gets its name. Several writers may write the same file at
    once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data, mode=_READABLE, shared=True)


def write_json(path: Path, data: Any) -> None:
    write_whole(path, json.dumps(data, indent=1).encode())


def discard(folder: Path, work: Path) -> None:
    """Remove a folder: its name is free at once, and a kill in the middle leaves nothing under it."""
    work.mkdir(parents=True, exist_ok=True)
    away = Path(tempfile.mkdtemp(dir=work, prefix="gone-"))
    with contextlib.suppress(FileNotFoundError):
        folder.rename(away / folder.name)
    shutil.rmtree(away, ignore_errors=True)


def discard_unused(folder: Path, work: Path) -> bool:
    """Remove an environment unless a process holds it (`overlay.hold`); returns whether it is gone."""
    try:
        with (folder / IN_USE).open("a") as marker:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            discard(folder, work)  # while it is locked: who comes now finds that it is gone
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True
    return True
