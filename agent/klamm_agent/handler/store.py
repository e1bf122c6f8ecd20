"""A shipper's spool: numbered folders below `spool/TOPIC`, each locked by the process that uses it.

A process writes to the first free folder, and sends what it finds in folders whose process is gone. Batches are in Kafka's segment
format, with checksums: `klamm log dump` reads them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from klamm_agent.delivery.batches import Origin, Share
from klamm_agent.delivery.spool.segment import Damaged
from klamm_agent.delivery.spool.spool import Spool, SpoolError
from klamm_agent.handler.client import Returned
from klamm_base.errors import ConfigError
from klamm_base.files import make_private_folder
from klamm_kafka.wire.batch import Record, decode_records, encode_batch
from klamm_kafka.wire.compression import Compression

_FOLDERS: Final = 1000  # processes that spool the same topic at the same time
_BATCH: Final = 512 * 1024  # about the bytes of one batch; less for a small spool
_BATCHES: Final = 16
_LOOK_S: Final = 60.0  # between two looks for records that other processes left
_READ_RECORDS: Final = 10_000  # sent at a time; a kill may repeat so many
_READ_BYTES: Final = 2 * 1024 * 1024


class Found(NamedTuple):
    """Records read from the spool, up to offset `end`. Of damaged batches it has only the reason and the number of their records."""

    records: list[Record]
    end: int
    damaged: str
    lost: int


class Store:
    """The spool of one process, for one thread; any thread may read `records`. Raises ConfigError when it cannot use the folder."""

    def __init__(self, path: Path, topic: str, max_bytes: int, *, fsync: bool) -> None:
        self._path, self._topic, self._max, self._fsync = path / topic, topic, max_bytes, fsync
        try:
            make_private_folder(path)
            make_private_folder(self._path)
        except OSError as e:
            raise ConfigError(f"KafkaHandler: spool {path} cannot be used: {e.strerror}", key="spool") from e
        if not os.access(self._path, os.W_OK | os.X_OK):
            raise ConfigError(f"KafkaHandler: spool {path} cannot be written to", key="spool")
        self._batch = min(_BATCH, max_bytes // _BATCHES)
        self._spool: Spool | None = None
        self._looked_at = float("-inf")

    @property
    def records(self) -> int:
        """The records in the open folder that are not delivered."""
        return 0 if self._spool is None else self._spool.records

    def add(self, records: Sequence[Returned], *, drop: str) -> int:
        """Writes records; returns how many were dropped for want of room. Raises SpoolError; a full disk is one."""
        spool = self._spool or self._open_free()
        dropped, done = 0, 0
        for batch in _cut(records, self._batch):
            lost = self._append(spool, batch, drop)
            dropped += lost
            done += len(batch)
            if lost and drop == "newest":  # the records behind are newer
                dropped += len(records) - done
                break
        spool.sync()
        return dropped

    def _append(self, spool: Spool, batch: list[Record], drop: str) -> int:
        data = encode_batch(batch, compression=Compression.LZ4)
        given_up: list[int] = []

        def note(_topic: str, shares: list[Share]) -> bool:
            given_up.append(sum(share.records for share in shares))
            return True

        while not spool.has_room(len(data)):
            if drop != "oldest" or not spool.drop_oldest(note):
                return sum(given_up) + len(batch)
        origin = Origin(self._topic, (0, 0), 0, 0)
        spool.append(self._topic, data, len(batch), (Share(origin, len(batch)),), None)
        return sum(given_up)

    def read(self) -> Found | None:
        """Reads the oldest batches, as many as are sent at a time (an outage writes small ones); None when there are none."""
        if self._spool is None:
            return None
        records: list[Record] = []
        size, end, damaged, lost = 0, -1, "", 0
        while len(records) < _READ_RECORDS and size < _READ_BYTES:
            found = self._spool.read(self._topic)
            if found is None:
                break
            end = found.end
            if isinstance(found, Damaged):
                damaged = found.why
                lost += sum(share.records for share in found.shares)
                continue
            more = decode_records(found.data)
            records += more
            size += sum(len(record.value or b"") for record in more)
        return None if end < 0 else Found(records, end, damaged, lost)

    def delivered(self, end: int) -> None:
        """Takes note that everything before `end` is delivered. Raises SpoolError."""
        assert self._spool is not None, "read by the caller"
        self._spool.acknowledged(self._topic, end)
        self._spool.save()

    def rewind(self) -> None:
        """Begins again at the first undelivered record. Raises SpoolError."""
        if self._spool is not None:
            path = self._spool.path
            self._spool.close()
            self._spool = None
            self._spool = Spool(path, self._max, fsync=self._fsync)

    def look(self) -> bool:
        """Tells whether there is something to send: in the open folder, or left by a process that is gone."""
        if self.records:
            return True
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return False
        self._looked_at = now
        own = self._spool.path if self._spool is not None else None
        for folder in sorted(self._path.iterdir()):
            if folder == own or not any(folder.glob("*/*.log")):
                continue
            if (spool := self._try(folder)) is None:
                continue
            if spool.records:
                self.close()
                self._spool = spool
                self._looked_at = float("-inf")  # there may be more
                return True
            spool.close()
        return False

    def _open_free(self) -> Spool:
        for number in range(_FOLDERS):
            if (found := self._try(self._path / f"{number:03d}")) is not None:
                self._spool = found
                return found
        raise SpoolError(f"spool {self._path}: {_FOLDERS} folders are in use")

    def _try(self, folder: Path) -> Spool | None:
        try:
            return Spool(folder, self._max, fsync=self._fsync)
        except SpoolError as e:
            if e.__cause__ is not None:
                raise
            return None  # another process uses it

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def leave_behind(self) -> None:
        """Closes the spool in a forked child, and writes nothing: the folder stays the parent's."""
        if self._spool is not None:
            self._spool.abandon()
            self._spool = None


def _cut(records: Sequence[Returned], size: int) -> Iterator[list[Record]]:
    """Cuts records into batches of about `size` bytes."""
    batch, held = [], 0
    for record in records:
        batch.append(Record(timestamp=record.timestamp, value=record.value))
        held += len(record.value)
        if held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
