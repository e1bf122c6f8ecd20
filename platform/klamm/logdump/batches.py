"""Batches of a `.log` file, one at a time.

The end is the file's size at its opening. An incomplete batch ends the iteration; the caller reports the bytes behind
the last whole batch. An impossible size field raises DumpError.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import google_crc32c

from klamm.logdump.errors import DumpError
from klamm_kafka.wire.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Record,
    decode_records,
    read_header,
)
from klamm_kafka.wire.errors import ProtocolError

_PREFIX: Final = struct.Struct(">qi")
_UP_TO_MAGIC: Final = 17
_LEAST_RECORD: Final = 14  # Kafka: the overhead of a record of format 0
_CRC_FROM: Final = 21  # attributes: where the checksum begins
_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch where it lies. Its records are read when asked for."""

    file: LogFile
    position: int
    header: BatchHeader

    def checksum_holds(self) -> bool:
        """Return whether the CRC is that of the content; reads the batch piece by piece."""
        crc, left = 0, self.header.size - _CRC_FROM
        self.file.seek(self.position + _CRC_FROM)
        while left > 0:
            piece = self.file.read(min(left, _PIECE))
            if not piece:
                return False
            crc = google_crc32c.extend(crc, piece)
            left -= len(piece)
        return crc == self.header.crc

    def records(self) -> list[Record]:
        """Return the records, decompressed. Raises DumpError."""
        self.file.seek(self.position)
        data = self.file.read(self.header.size)
        try:
            return decode_records(data)
        except ProtocolError as e:
            raise DumpError(
                f"{self.file.path}: the batch at position {self.position} cannot be read: {e}"
            ) from None


class LogFile:
    """An open `.log` file. Use in `with`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as e:
            raise DumpError(f"{path} cannot be read: {e.strerror}") from None
        self.size = os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def batch_at(self, position: int, end: int) -> Batch | None:
        """Return the batch at a position, None where it is not complete before `end`. Raises DumpError."""
        if position < 0 or position + _UP_TO_MAGIC > end:
            return None
        self.seek(position)
        head = self.read(HEADER_BYTES)
        if len(head) < _UP_TO_MAGIC:
            return None  # the file became shorter meanwhile
        _, length = _PREFIX.unpack_from(head)
        if length < _LEAST_RECORD:
            raise DumpError(
                f"{self.path}: no batch at position {position}: its size field says {length}, at least"
                f" {_LEAST_RECORD} bytes are needed"
            )
        if position + LENGTH_PREFIX_BYTES + length > end:
            return None
        magic = head[_UP_TO_MAGIC - 1]
        if magic in (0, 1):
            raise DumpError(
                f"{self.path}: the batch at position {position} has the record format {magic} of Kafka before 0.11;"
                " only format 2 can be shown"
            )
        try:
            return Batch(self, position, read_header(head))
        except ProtocolError as e:
            raise DumpError(f"{self.path}: position {position}: {e}") from None

    def batches(self, start: int = 0, end: int | None = None) -> Iterator[Batch]:
        """Yield whole batches from `start` to `end` (by default the file's). Raises DumpError."""
        limit = self.size if end is None else min(end, self.size)
        position = start
        while (batch := self.batch_at(position, limit)) is not None:
            yield batch
            position += batch.header.size
