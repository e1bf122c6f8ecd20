"""Wheels that no index has, kept by their sha256: `wheels/SHA256/FILE.whl`. A file is there whole or not at all."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterable, Set
from pathlib import Path

from klamm.environments.files import write_whole
from klamm.environments.lock import Lock, LockedPackage, wheel_path

# A wheel is there before the package that needs it is noted: another process must not take it for left over.
REST_S = 3600.0


class WheelHouse:
    """See the module."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, package: LockedPackage) -> Path:
        """Returns the path of a package's wheel that came from a file."""
        return wheel_path(self.directory, package)

    def keep(self, file: str, data: bytes) -> str:
        """Keep a wheel; returns its sha256."""
        digest = hashlib.sha256(data).hexdigest()
        path = self.directory / digest / Path(file).name
        if not path.is_file() or _sha256(path) != digest:  # a disk that was full, a power loss
            write_whole(path, data)
        return digest

    def take(self, path: Path) -> str:
        """Keep the wheel in a file; returns its sha256. A wheel that is here already is not read again: its folder has its hash,
        which the installer checks.
        """
        if path.parent.parent == self.directory:
            return path.parent.name
        return self.keep(path.name, path.read_bytes())

    def find(self, lock: Lock, folders: Iterable[Path]) -> None:
        """Keep those wheels of a lock that lie in one of these folders and are not here."""
        for package in self.missing(lock):
            for folder in folders:
                path = folder / (package.file or "")
                if path.is_file() and _sha256(path) == package.hashes[0]:
                    self.take(path)
                    break

    def missing(self, lock: Lock) -> list[LockedPackage]:
        """Returns the packages of a lock whose wheels are neither here nor in an index."""
        return [p for p in lock.packages if p.file is not None and not wheel_path(self.directory, p).exists()]

    def collect(self, kept: Set[str]) -> None:
        """Remove wheels that have been there for a while and whose sha256 is not in `kept`."""
        if not self.directory.is_dir():
            return
        for folder in self.directory.iterdir():
            if folder.name not in kept and time.time() - folder.stat().st_mtime > REST_S:
                shutil.rmtree(folder, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
