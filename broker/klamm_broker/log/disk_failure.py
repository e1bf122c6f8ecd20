"""Which errors of the operating system mean that a log directory has failed, and not one operation in it.

Kafka takes any error for that. Here it is those that a disk, or its connection, gives when it is broken, and a directory
that is not there any more. A full disk recovers by itself, and so does a process that has too many files open; one file
that is missing or may not be read concerns its partition alone.
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
"""Gets a log directory and what went wrong in it; may be called in any thread."""


def is_broken(directory: Path, error: OSError) -> bool:
    """Whether this error of an operation somewhere in a log directory means that all of it cannot be used."""
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
    """Whether all that is wrong, or the cause of it, is that there is no room: it may be there again at any time."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in _FULL


def ignore(directory: Path, error: OSError) -> None:
    """The report of a log that belongs to nobody."""
