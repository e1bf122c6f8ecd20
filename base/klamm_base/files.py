"""Files that are replaced whole, and folders that only their owner may enter.

All functions block and raise OSError.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700


def make_private_folder(path: Path) -> None:
    """Makes a folder that only its owner may enter. An existing folder keeps its mode; missing parents get the usual mode."""
    path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)


def exposed(path: Path, *, mode: str = "700") -> str | None:
    """Returns a sentence for the log when every user of this machine can get at a folder or file; None when they cannot.

    Data made by earlier releases has the modes of the umask then. We change no modes, because they may be meant.
    """
    try:
        place = path.resolve()
        wanted = stat.S_IXOTH if place.is_dir() else stat.S_IROTH
        open_to_all = place.stat().st_mode & wanted
        reachable = all(folder.stat().st_mode & stat.S_IXOTH for folder in place.parents)
    except OSError:
        return None
    if not (open_to_all and reachable):
        return None
    return f"every user of this machine can read {path}; to keep it private: chmod {mode} {shlex.quote(str(path))}"


class NotSynced(OSError):
    """A file has its new content, but its name may not be on the disk: after a crash of the machine it may have the old one."""


def write_and_take(path: Path, data: bytes, take: Callable[[], None]) -> None:
    """Replaces a file as `write_atomically` does, and calls `take` once readers see the new content. Raises OSError.

    `take` is also called before NotSynced is raised: what holds in memory is what the file says.
    """
    try:
        write_atomically(path, data)
    except NotSynced:
        take()
        raise
    take()


def write_atomically(
    path: Path,
    data: bytes,
    *,
    sync: bool = True,
    mode: int = PRIVATE_FILE,
    keep_mode: bool = False,
    shared: bool = False,
) -> None:
    """Replaces the content of a file. Readers and crashes see the old or the new content, never a mixture.

    The new content goes to a new temporary file beside it, which is removed on failure. With `sync`, content and name are
    on the disk when this returns; NotSynced says that the content is new, and that this is not sure. The file gets `mode`, whatever the umask, where the file system has modes; with
    `keep_mode` a file that exists keeps the mode that it has. `shared` means that several threads or processes may
    write the file at the same time: each then has a temporary file of its own.
    """
    if keep_mode:
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.stat().st_mode)
    with replacing(path, sync=sync, mode=mode, shared=shared) as fd:
        write_all(fd, data)


@contextlib.contextmanager
def replacing(
    path: Path, *, sync: bool = True, mode: int = PRIVATE_FILE, shared: bool = False
) -> Iterator[int]:
    """Gives a new file to write to, which takes the place of `path` at the end, as in `write_atomically`."""
    temporary, fd = _create_temporary(path, shared=shared)
    try:
        try:
            _set_mode(fd, mode)
            yield fd
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            temporary.unlink()
        raise
    if sync:
        try:
            sync_directory(path.parent)
        except OSError as e:
            why = f"it has changed, but a crash of the machine may bring the old content back: {e.strerror}"
            raise NotSynced(e.errno, why, str(path)) from e


def _create_temporary(path: Path, *, shared: bool) -> tuple[Path, int]:
    """Creates a file beside `path` and opens it. Never opens an existing one, which may have another owner, mode or target.

    Removes the file that a killed writer left. Takes another name when it belongs to somebody else and has to stay.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    if not shared:
        temporary = path.with_name(f"{path.name}.tmp")
        with contextlib.suppress(OSError):
            temporary.unlink()
        with contextlib.suppress(FileExistsError):
            return temporary, os.open(temporary, flags, PRIVATE_FILE)
    temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
    return temporary, os.open(temporary, flags, PRIVATE_FILE)


def _set_mode(fd: int, mode: int) -> None:
    """Sets a file's mode, where the file system has modes (vfat and CIFS have none)."""
    try:
        os.fchmod(fd, mode)
    except OSError as e:
        if not isinstance(e, PermissionError) and e.errno != errno.ENOTSUP:
            raise


def sync_directory(path: Path) -> None:
    """Makes the created, renamed and removed names of a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Writes all of `data` at the file position. A disk that takes only a part raises on the next call."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
