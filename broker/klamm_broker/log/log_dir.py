"""A log directory's own files: `.lock`, `meta.properties`, `.kafka_cleanshutdown`.

The lock is a POSIX record lock, as Apache Kafka's: the second broker on a directory is refused, and a crashed broker's
lock is gone with its process. Forked children do not inherit it.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import sys
import uuid
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from klamm_base.files import sync_directory, write_atomically
from klamm_broker.log.errors import DirectoryError, UnusableDirectory
from klamm_broker.log.files import OpenFile

LOCK_FILE: Final = ".lock"
META_FILE: Final = "meta.properties"
CLEAN_FILE: Final = ".kafka_cleanshutdown"
META_VERSION: Final = "1"

_locked_here: set[str] = set()  # a process cannot see its own POSIX locks


def new_uuid() -> str:
    """Returns a random id in Kafka's form: 22 characters of URL-safe base64, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def uuid_to_bytes(text: str) -> bytes:
    """Returns the 16 bytes of an id in Kafka's form. Raises ValueError."""
    raw = base64.urlsafe_b64decode(text + "==")
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a base64 id of 16 bytes")
    return raw


def uuid_to_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class DirectoryLock:
    """Holds `.lock` of a directory until `release`."""

    def __init__(self, directory: Path) -> None:
        self._key = str(directory.resolve())
        path = directory / LOCK_FILE
        if self._key in _locked_here:
            raise DirectoryError(_locked(directory, os.getpid()))
        try:
            self._file: OpenFile | None = OpenFile(path, os.O_RDWR | os.O_CREAT)
        except OSError as e:
            raise UnusableDirectory(f"log directory {directory} cannot be written to: {e}") from e
        try:
            fcntl.lockf(self._file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno not in (errno.EACCES, errno.EAGAIN):
                raise UnusableDirectory(f"{path} cannot be locked: {e}") from e
            raise DirectoryError(_locked(directory, _holder(self._file.fd))) from e
        _locked_here.add(self._key)

    def release(self) -> None:
        if self._file is not None:
            self._file = None  # closing it gives the lock back
            _locked_here.discard(self._key)


def _locked(directory: Path, pid: int | None) -> str:
    who = f"process {pid}" if pid else "another process"
    return (
        f"log directory {directory} is in use by {who} (it holds {directory / LOCK_FILE}). Stop that broker, "
        "or give this one another directory with log.dirs"
    )


def _holder(fd: int) -> int | None:
    """Returns the id of the process that holds the lock, if the system tells it."""
    if not sys.platform.startswith("linux"):
        return None
    layout = Struct("@hhqqi4x")  # struct flock: type, whence, start, length, pid
    with contextlib.suppress(OSError):
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, layout.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return int(layout.unpack(answer)[4]) or None
    return None


class MetaProperties(NamedTuple):
    """The owner of a log directory."""

    cluster_id: str
    node_id: int
    directory_id: str


def read_meta(directory: Path) -> MetaProperties | None:
    """Returns the content of `meta.properties`; None when the directory is new. Raises DirectoryError."""
    path = directory / META_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "!"))]
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    if values.get("version") != META_VERSION:
        raise DirectoryError(f"{path}: version={values.get('version')} where {META_VERSION} is expected")
    try:
        return MetaProperties(
            cluster_id=values["cluster.id"],
            node_id=int(values["node.id"]),
            directory_id=values.get("directory.id") or "",
        )
    except (KeyError, ValueError) as e:
        raise DirectoryError(f"{path}: missing or bad value: {e}") from e


def write_meta(directory: Path, meta: MetaProperties) -> None:
    lines = (
        f"cluster.id={meta.cluster_id}\ndirectory.id={meta.directory_id}\n"
        f"node.id={meta.node_id}\nversion={META_VERSION}\n"
    )
    write_atomically(directory / META_FILE, lines.encode())


def claim(directory: Path, *, node_id: int, cluster_id: str | None) -> MetaProperties:
    """Returns the directory's identity, made up if it is new. Raises DirectoryError if it contradicts the broker's settings."""
    meta = read_meta(directory)
    if meta is None:
        meta = MetaProperties(cluster_id=cluster_id or new_uuid(), node_id=node_id, directory_id=new_uuid())
        write_meta(directory, meta)
        return meta
    path = directory / META_FILE
    if meta.node_id != node_id:
        raise DirectoryError(
            f"{path}: the directory belongs to node.id={meta.node_id}, this broker is node.id={node_id}. Set "
            "node.id to the directory's, or give this broker another directory with log.dirs"
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise DirectoryError(
            f"{path}: the directory belongs to cluster {meta.cluster_id}, this broker to {cluster_id}. Give "
            "this broker another directory with log.dirs"
        )
    if not meta.directory_id:
        meta = MetaProperties(cluster_id=meta.cluster_id, node_id=node_id, directory_id=new_uuid())
        write_meta(directory, meta)
    return meta


def write_clean_shutdown(directory: Path, broker_epoch: int) -> None:
    """Note that everything was flushed and closed: the next start need not check the logs."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomically(directory / CLEAN_FILE, content.encode())


def take_clean_shutdown(directory: Path) -> bool:
    """Returns whether the last shutdown was clean. Removes the marker, as it says nothing of the run that begins."""
    path = directory / CLEAN_FILE
    if not path.exists():
        return False
    path.unlink()
    sync_directory(directory)
    return True
