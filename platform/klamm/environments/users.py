"""Connectors whose processes run in an environment of the plugin directory, as this machine's processes show them.

A process holds a lock on its environment (`overlay.hold`), and its title names its connector or task. Where the system has
no /proc, or the processes are another user's, only the lock tells that somebody is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from klamm.environments.overlay import IN_USE

TITLE: Final = b"klamm connect: "
NAMELESS: Final = "a process of an unknown connector"


WORKERS: Final = "workers"
_SLOTS: Final = 1_000


class NamedPackages:
    """A file in the plugin directory that says which packages the connectors of a running worker name, stopped connectors
    too. It counts while the worker holds its lock. Each worker takes the first file that no other worker holds.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / WORKERS
        self._file: int | None = None
        self._written: Mapping[str, Sequence[str]] = {}

    def write(self, connectors: Mapping[str, Sequence[str]]) -> None:
        """Writes the connectors by package (`acme==1`). Raises OSError."""
        if connectors == self._written:
            return
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = self._held()
        data = json.dumps(connectors).encode()
        os.pwrite(self._file, data, 0)
        os.ftruncate(self._file, len(data))
        self._written = connectors

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file, self._written = None, {}

    def _held(self) -> int:
        for slot in range(_SLOTS):
            file = os.open(self._folder / f"{slot}.json", os.O_CREAT | os.O_RDWR, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
            else:
                return file
        raise OSError(f"{self._folder} has files of {_SLOTS} running workers")


def connectors_naming(directory: Path, root: str) -> list[str]:
    """Returns the connectors of running workers that name a package."""
    found: set[str] = set()
    for path in (directory / WORKERS).glob("*.json"):
        with contextlib.suppress(OSError, ValueError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                # A shorter list that is just being written may have the end of the former one behind it.
                found |= set(json.JSONDecoder().raw_decode(file.read())[0].get(root, ()))
    return sorted(found)


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
