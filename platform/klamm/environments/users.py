"""Connectors whose processes run in an environment of the plugin directory, as this machine's processes show them.

A process holds a lock on its environment (`overlay.hold`), and its title names its connector or task. Where the system has
no /proc, or the processes are another user's, only the lock tells that somebody is there.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from klamm.environments.overlay import IN_USE

TITLE: Final = b"klamm connect: "
NAMELESS: Final = "a process of an unknown connector"


def connectors_in(environment: Path, proc: Path = Path("/proc")) -> list[str]:
    """Return the names of connectors with a process in this environment, sorted; NAMELESS stands for those of another user."""
    marker = str((environment / IN_USE).absolute())
    titles: set[str] = set()
    explained, hidden = False, not proc.is_dir()
    for process in proc.glob("[0-9]*"):
        title = _title(process)
        try:
            holds = marker in set(_open_files(process))
        except PermissionError:
            hidden |= title is not None
            continue
        explained |= holds
        if holds and title is not None:
            titles.add(title)
    if not titles and (hidden or not explained) and _is_held(environment):
        return [NAMELESS]
    # A task is called as its connector with a number behind; the connector's own process is there too.
    return sorted(t for t in titles if t.rpartition("-")[0] not in titles)


def _title(process: Path) -> str | None:
    try:
        line = (process / "cmdline").read_bytes()
    except OSError:  # it ended meanwhile, or is another user's
        return None
    if not line.startswith(TITLE):
        return None
    return line.removeprefix(TITLE).rstrip(b"\0").decode(errors="replace") or None


def _open_files(process: Path) -> Iterator[str]:
    """Yields the files that a process has open. Raises PermissionError for a process of another user."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, NotADirectoryError):  # it ended meanwhile
        for link in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                yield str(link.readlink())


def _is_held(environment: Path) -> bool:
    try:
        with (environment / IN_USE).open("rb") as marker:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
