"""The meeting place of a mirror's processes on one machine: for each flow of a file a lock and a socket.

They are in a folder of the user that nobody else may enter, named by file and flow. The kernel gives up the lock of
a process that is killed, and nobody answers at its socket. So a file that a dead process left behind fools nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

LOOK_S: Final = 0.1
LOCK_PATIENCE_S: Final = 30.0
"""The time that a start waits for a predecessor that is about to end (its supervisor was killed)."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one flow of one file. `identity` is a short name of both."""

    flow: str
    identity: str
    folder: Path

    @property
    def socket(self) -> Path:
        """The socket that the flow's process serves. Short, because a socket's path may have a hundred bytes."""
        return self.folder / f"{self.identity}.sock"

    @property
    def rest(self) -> Path:
        """The socket of the flow's REST, where the file switches it on."""
        return self.folder / f"{self.identity}.rest"

    @property
    def orders(self) -> Path:
        """The socket at which the flow's process takes orders."""
        return self.folder / f"{self.identity}.order"

    @property
    def altering(self) -> Path:
        """A file that is there while the flow's source connector is stopped for a change of its offsets."""
        return self.folder / f"{self.identity}.altering"

    @property
    def lock(self) -> Path:
        """The lock of the process that runs the flow."""
        return self.folder / f"{self.identity}.lock"

    @property
    def kept(self) -> Path:
        """The lock of the processes that start the flow again when it dies; they share it."""
        return self.folder / f"{self.identity}.kept"


def place_of(path: Path, flow: str) -> Place:
    """Returns the place of a flow. Raises KlammError where the folder is somebody else's."""
    identity = hashlib.sha256(f"{path.resolve()}\0{flow}".encode()).hexdigest()[:16]
    return Place(flow, identity, _folder())


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"klamm-mirror-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise KlammError(f"{folder} must be a folder of this user with mode 0700: remove it, or set TMPDIR")
    return folder


@contextlib.contextmanager
def claimed(place: Place) -> Iterator[None]:
    """Holds the flow on this machine. Raises KlammError when another process holds it."""
    fd = _open(place.lock)
    try:
        _take(fd, place.flow)
        _sign(fd)
        yield
    finally:
        os.close(fd)  # gives the lock up; the file stays, as removing it would race with the next holder


@contextlib.contextmanager
def keeping(places: list[Place]) -> Iterator[None]:
    """Says that this process starts the flows again when they die."""
    with contextlib.ExitStack() as stack:
        for place in places:
            fd = _open(place.kept)
            stack.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_SH)
            _sign(fd)
        yield


def holder(lock: Path) -> int | None:
    """Returns the process that holds a lock, 0 when it did not say its number yet; None when nobody holds it."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        said = os.pread(fd, 32, 0).strip()
        return int(said) if said.isdigit() else 0
    finally:
        os.close(fd)
    return None


def _open(lock: Path) -> int:
    return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _sign(fd: int) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)


def _take(fd: int, flow: str) -> None:
    deadline = time.monotonic() + LOCK_PATIENCE_S
    said = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            if time.monotonic() >= deadline:
                raise KlammError(f"{flow} of this file is run by another process (pid {pid})") from None
            if not said:
                log.warning("%s is still run by process %s; waiting for its end", flow, pid)
                said = True
            time.sleep(LOOK_S)
        else:
            return
