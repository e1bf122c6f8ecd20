"""One process per checkpoint: two that write to one would take the same records twice, and Spark finds out too
late.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from klamm_base.errors import ConfigError
from klamm_base.files import PRIVATE_FILE, make_private_folder

WAIT_S: Final = 30.0
"""A process that was just killed may take so long to be gone, its Java included."""
_NAME: Final = ".lock"


@contextlib.contextmanager
def locked(checkpoint: Path, stop: threading.Event, wait_s: float = WAIT_S) -> Iterator[int]:
    """Holds the checkpoint. Yields the file descriptor, for a Java that must count as its holder, too.

    The lock is the kernel's: it is gone with the last process that has the descriptor, however that ends.
    Raises ConfigError when another process still holds it after `wait_s`, or when the directory cannot be made.
    """
    try:
        make_private_folder(checkpoint)
        held = os.open(checkpoint / _NAME, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    except OSError as e:
        raise ConfigError(
            f"the checkpoint {checkpoint} cannot be used: {e.strerror}", key="checkpoint"
        ) from None
    try:
        deadline = time.monotonic() + wait_s
        while not _taken(held):
            if time.monotonic() > deadline:
                holder = os.pread(held, 20, 0).decode(errors="replace").strip()
                raise ConfigError(
                    f"the checkpoint {checkpoint} is in use by another process ({holder or 'unknown'}): a job runs once",
                    key="checkpoint",
                )
            if stop.wait(0.1):
                break
        else:
            os.ftruncate(held, 0)
            os.pwrite(held, f"{os.getpid()}\n".encode(), 0)
        yield held
    finally:
        os.close(held)


def in_use(checkpoint: Path) -> bool:
    """Returns whether a process holds the checkpoint now."""
    try:
        held = os.open(checkpoint / _NAME, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _taken(held)
    finally:
        os.close(held)


def _taken(held: int) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
