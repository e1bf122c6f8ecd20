"""Tells a failed log directory from a failed operation in it, by the error of the operating system.

Kafka takes any error for a failed directory. Here only these count: the errors of a broken disk or of its connection, and
a directory that is gone. A full disk recovers by itself, and so does a process with too many open files; a single file
that is missing or unreadable concerns its partition alone.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final

from klamm_broker.log.log_dir import META_FILE

_NAMES: Final = (
    "EIO",
    "ENXIO",
    "ENODEV",
    "EROFS",
    "ESTALE",
    "EUCLEAN",
    "EREMOTEIO",
    "ENOMEDIUM",
    "ESHUTDOWN",
    "ENOTCONN",
)
_BROKEN: Final = frozenset(getattr(errno, name) for name in _NAMES if hasattr(errno, name))
_AWAY: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

Report = Callable[[Path, OSError], None]
"""Gets a log directory and an error in it; any thread may call it."""


def is_broken(directory: Path, error: OSError) -> bool:
    """Decides whether an error of an operation in a log directory means that the whole directory cannot be used."""
    if error.errno in _BROKEN:
        return True
    if error.errno not in _AWAY:
        return False
    try:
        (directory / META_FILE).stat()
    except OSError as e:
        return e.errno in _BROKEN or e.errno in _AWAY
    return False


def is_full(error: BaseException) -> bool:
    """Decides whether a full disk is the error or its cause: there may be room again at any time."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in _FULL


def ignore(directory: Path, error: OSError) -> None:
    """Does nothing. A log without an owner reports here."""
