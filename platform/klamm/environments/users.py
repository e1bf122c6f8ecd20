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
    """Return the names of connectors with a process in this environment, sorted."""
    marker = str((environment / IN_USE).absolute())
    if not proc.is_dir():
        return [NAMELESS] if _is_held(environment) else []
    titles = {
        title for process in proc.glob("[0-9]*") if (title := _title(process)) and _holds(process, marker)
    }
    # A task is called as its connector with a number behind; the connector's own process is there too.
    return sorted(t for t in titles if t.rpartition("-")[0] not in titles)


def _title(process: Path) -> str | None:
    try:
        line = (process / "cmdline").read_bytes()
    except OSError:  # it ended meanwhile
        return None
    return line.removeprefix(TITLE).rstrip(b"\0").decode(errors="replace") if line.startswith(TITLE) else None


def _holds(process: Path, marker: str) -> bool:
    return marker in set(_open_files(process))


def _open_files(process: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):  # another user's, or it ended meanwhile
        for link in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                yield str(link.readlink())


def _is_held(environment: Path) -> bool:
    try:
        with (environment / IN_USE).open("a") as marker:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
