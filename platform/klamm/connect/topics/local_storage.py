"""The storage of a standalone worker: configs and statuses in memory, source offsets in a file.

The file is Java's (`java_map`), so that either worker goes on where the other one stopped. It is replaced as a whole and
forced to the disk before a write counts: a crash leaves the old offsets or the new ones. It keeps its mode, as Java's
worker may be another user.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from klamm.connect.config import WorkerConfig
from klamm.connect.topics.java_map import MalformedMap, decode, encode
from klamm.connect.topics.kafka_log import ADMIN_TIMEOUT_S, LogError, OnRecord
from klamm.connect.topics.storage import Which
from klamm_base.files import PRIVATE_FILE, exposed, write_atomically

log = logging.getLogger(__name__)

RECORD_MAX: Final = 1 << 30
"""Nothing limits a record here but memory."""


class LocalLog:
    """A log in memory: what is written is handed over at once."""

    def __init__(self, topic: str, on_record: OnRecord) -> None:
        self.topic = topic
        self.consumed = -1
        self.caught_up = False
        self._on_record = on_record

    async def start(self) -> None:
        self.caught_up = True

    async def stop(self) -> None:
        """Does nothing, as nothing is open."""

    async def read_to_end(self, timeout_s: float = ADMIN_TIMEOUT_S, *, past_open: bool = True) -> None:
        """Returns at once, as every record is handed over when it is written."""

    async def write(self, key: str, value: bytes | None) -> None:
        self.consumed = max(self.consumed, 0) + 1
        self._on_record(key, value, time.time_ns() // 1_000_000)


class FileLog(LocalLog):
    """Source offsets, the newest per key in a file."""

    def __init__(self, path: Path, on_record: OnRecord) -> None:
        super().__init__(str(path), on_record)
        self._path = path
        self._entries: dict[bytes, bytes | None] = {}
        self._news: list[asyncio.Future[None]] = []
        self._saving: asyncio.Task[None] | None = None
        self._lock = -1

    async def start(self) -> None:
        """Read the file, if there is one. Raises LogError, also when another worker uses it."""
        self._lock = _locked(self._path)
        if (said := exposed(self._path, mode="600")) is not None:
            log.warning("%s", said)
        try:
            data = await asyncio.to_thread(self._path.read_bytes)
        except FileNotFoundError:
            log.info("%s does not exist yet: no source has offsets", self._path)
            data = b""
        except OSError as e:
            raise LogError(
                f"offset.storage.file.filename={self._path} cannot be read: {e.strerror}"
            ) from None
        try:
            entries = decode(data) if data else {}
        except MalformedMap as e:
            raise LogError(
                f"offset.storage.file.filename={self._path} is no file of source offsets: {e}. Name another file, or "
                "move this one away to begin without offsets"
            ) from None
        for key, value in entries.items():
            await super().write(key.decode(errors="replace"), value)
        self._entries = entries
        await super().start()

    async def write(self, key: str, value: bytes | None) -> None:
        """Write a record; returns when the file has it. Writes that come meanwhile are saved together. Raises
        LogError.
        """
        if value is None:
            self._entries.pop(key.encode(), None)
        else:
            self._entries[key.encode()] = value
        saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news.append(saved)
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save(), name="offset file")
        await saved
        await super().write(key, value)

    async def stop(self) -> None:
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def _save(self) -> None:
        while self._news:
            waiting, self._news = self._news, []
            data = encode(self._entries)
            try:
                await asyncio.to_thread(write_atomically, self._path, data, keep_mode=True)
            except OSError as e:
                error = LogError(f"offset.storage.file.filename={self._path} cannot be written: {e.strerror}")
                for each in waiting:
                    if not each.done():
                        each.set_exception(error)
            else:
                for each in waiting:
                    if not each.done():
                        each.set_result(None)


class LocalWriter:
    """Writes to the logs by name."""

    record_max = RECORD_MAX

    def __init__(self, logs: dict[str, LocalLog]) -> None:
        self._logs = logs

    def send(self, topic: str, key: str, value: bytes | None) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._logs[topic].write(key, value))

    async def close(self) -> None:
        """Does nothing, as the caller has waited for each write."""


class LocalStorage:
    """See the module."""

    def __init__(self, offsets: Path) -> None:
        self._offsets = offsets
        self._logs: dict[str, LocalLog] = {}
        self.writer = LocalWriter(self._logs)

    def log(self, which: Which, on_record: OnRecord) -> LocalLog:
        made = FileLog(self._offsets, on_record) if which == "offset" else LocalLog(which, on_record)
        self._logs[made.topic] = made
        return made

    async def ensure(self, admin: AdminClient, config: WorkerConfig) -> None:
        """Does nothing, as there are no topics."""

    def check(self) -> None:
        """Does nothing, as there is a single order of records."""


def _locked(path: Path) -> int:
    """Hold the file against other workers for as long as the returned descriptor is open. The lock is a file
    beside it, because the file itself is replaced.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as e:
        raise LogError(f"offset.storage.file.filename={path}: {lock} cannot be made: {e.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise LogError(f"offset.storage.file.filename={path} is used by another standalone worker") from None
    return fd
