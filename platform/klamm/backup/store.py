"""The places where backups lie: a folder, or what fsspec reaches by a URL. A file is never changed.

Methods block; the commands call them in threads. Errors are BackupErrors that name the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from klamm.backup.errors import BackupError
from klamm_base.extras import how_to_install
from klamm_base.files import PRIVATE_FILE, make_private_folder, replacing, write_all
from klamm_kafka.wire.varint import Buffer

log = logging.getLogger(__name__)
T = TypeVar("T")

TEMPORARY: Final = ".tmp"
"""The end of the names of files that are being written."""

PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0)
"""Before a remote place is asked again."""
_FINAL: Final = (
    PermissionError,
    NotADirectoryError,
    IsADirectoryError,
    NotImplementedError,
    ImportError,
    TypeError,
    ValueError,
)
"""Errors that another attempt would meet again."""


class Store(Protocol):
    """Files by names with slashes."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None where there is none."""
        ...

    def write(self, name: str, pieces: Sequence[Buffer], *, at_once: bool = True) -> None:
        """Write a file that is not there. When this returns, the content is safe.

        `at_once`: readers see the whole file or none. Without it, no reader may look for the file yet.
        """
        ...

    def names(self, folder: str) -> list[str]:
        """Return all files below a folder, as names for `read`, sorted; also those half written, which end with TEMPORARY."""
        ...

    def remove(self, name: str) -> None: ...

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Keep other commands from writing, where the place can do that. Raises BackupError when one writes."""
        ...


def open_store(place: str) -> Store:
    """Return the store of a folder or URL. Raises BackupError."""
    scheme, colon, rest = place.partition("://")
    if not colon:
        return Folder(Path(place))
    return Folder(Path(rest)) if scheme == "file" else Remote(place)


class Folder:
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as e:
            raise BackupError(f"cannot read {self._path / name}: {e.strerror}") from None

    def write(self, name: str, pieces: Sequence[Buffer], *, at_once: bool = True) -> None:
        path = self._path / name
        try:
            for folder in reversed(Path(name).parents):
                make_private_folder(self._path / folder)
            with replacing(path, mode=PRIVATE_FILE) as fd:
                for piece in pieces:
                    write_all(fd, memoryview(piece))
        except OSError as e:
            raise BackupError(f"cannot write {path}: {e.strerror}") from None

    def names(self, folder: str) -> list[str]:
        root = self._path / folder
        return sorted(str(p.relative_to(self._path)) for p in root.rglob("*") if p.is_file())

    def remove(self, name: str) -> None:
        path = self._path / name
        try:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty yet
                path.parent.rmdir()
        except OSError as e:
            raise BackupError(f"cannot remove {path}: {e.strerror}") from None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        try:
            make_private_folder(self._path)
            fd = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        except OSError as e:
            raise BackupError(f"cannot write to {self._path}: {e.strerror}") from None
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackupError(f"another klamm backup is writing to {self._path}") from None
            yield
        finally:
            os.close(fd)

    def __str__(self) -> str:
        return str(self._path)


class Remote:
    """A place that fsspec reaches by a URL. A rename makes files appear at once; object stores copy for that, so chunks go without it."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise BackupError(f"{url} needs fsspec: {how_to_install('backup')}") from None
        self._url = url
        try:
            found: tuple[Any, str] = url_to_fs(url)
        except (ImportError, ValueError) as e:
            raise BackupError(f"{url}: {e}") from None
        self._fs, root = found
        self._root = root.rstrip("/")

    def read(self, name: str) -> bytes | None:
        def work() -> bytes:
            data: bytes = self._fs.cat_file(self._at(name))
            return data

        with contextlib.suppress(FileNotFoundError):
            return self._patiently("read", name, work)
        return None

    def write(self, name: str, pieces: Sequence[Buffer], *, at_once: bool = True) -> None:
        path, data = self._at(name), b"".join(pieces)

        def work() -> None:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            first = f"{path}{TEMPORARY}" if at_once else path
            self._fs.pipe_file(first, data)
            if at_once:
                self._fs.mv(first, path)

        try:
            self._patiently("write", name, work)
        except FileNotFoundError as e:  # a bucket that is not there
            raise BackupError(f"cannot write {self._url}/{name}: {e or 'the place is not there'}") from None

    def names(self, folder: str) -> list[str]:
        def work() -> list[str]:
            self._fs.invalidate_cache()
            found: list[str] = self._fs.find(self._at(folder))
            return found

        start, found = len(self._root) + 1, list[str]()
        with contextlib.suppress(FileNotFoundError):
            found = self._patiently("list", folder, work)
        return sorted(n[start:] for n in found)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._patiently("remove", name, lambda: self._fs.rm_file(self._at(name)))

    def lock(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def __str__(self) -> str:
        return self._url

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _patiently(self, doing: str, name: str, work: Callable[[], T]) -> T:
        """Do what may be done twice, again after errors that may pass. Whatever a file system of fsspec raises becomes a sentence."""
        for pause in (*PAUSES_S, None):
            try:
                return work()
            except FileNotFoundError:
                raise
            except Exception as e:
                why = f"cannot {doing} {self._url}/{name}: {type(e).__name__}: {e}"
                if pause is None or isinstance(e, _FINAL):
                    raise BackupError(why) from e
                log.warning("%s; tried again in %g s", why, pause)
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")
