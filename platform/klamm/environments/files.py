"""Files and folders of the plugin directory that are there whole or not at all, whoever is killed meanwhile. Blocks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from klamm.environments.overlay import IN_USE


def write_whole(path: Path, data: bytes) -> None:
    """Forced to the disk before it gets its name; several may write the same file at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(part).chmod(0o644)
        Path(part).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(part).unlink()
        raise


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
    """Remove an environment unless a process holds it (`overlay.hold`); whether it is gone."""
    try:
        with (folder / IN_USE).open("a") as marker:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            discard(folder, work)  # while it is locked: who comes now finds that it is gone
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True
    return True
