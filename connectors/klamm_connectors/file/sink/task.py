"""The task of FileStreamSink: appends one line per record to a file.

Each `put` is one write, and offsets are committed only after an fsync, so committed records are in the
file. Delivery is at least once: after a kill, lines written since the last commit are written again. A
write that fails half-way is cut off again. At its start the task ends a half line that a killed task left
behind, so that no record is appended to it.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from klamm_connectors.file.sink.config import parse
from klamm_plugins.batch import TEXT, SinkBatch
from klamm_plugins.connector import SinkTask
from klamm_plugins.errors import ConnectError, DataError, RetriableError
from klamm_plugins.records import SinkRecord, TopicPartition
from klamm_plugins.text import text_of

log = logging.getLogger(__name__)

_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EINTR, errno.EAGAIN})
"""Errors that may disappear a moment later, for example when somebody has freed space."""


class FileStreamSinkTask(SinkTask):
    """A task that writes unbuffered: the lines of a finished `put` survive the death of the process."""

    kafka_name = "org.apache.kafka.connect.file.FileStreamSinkTask"
    raw_formats = (TEXT,)

    def __init__(self) -> None:
        self._fd: int | None = None
        self._path: str | None = None
        self._regular = False

    def start(self, props: Mapping[str, str]) -> None:
        self._path = parse(props).path
        if self._path is None:
            return
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._regular = stat.S_ISREG(os.fstat(self._fd).st_mode)
            self._end_half_line(self._fd)
        except OSError as e:
            raise ConnectError(f"file {self._path} cannot be opened for appending: {e.strerror}") from e

    def put(self, records: list[SinkRecord]) -> None:
        if records:
            self._append(_lines([r.value for r in records], records))

    def put_batches(self, batches: Sequence[SinkBatch]) -> None:
        if batches:
            self._append(b"".join(map(_lines_of, batches)))

    def _append(self, data: bytes) -> None:
        if self._fd is None:
            for line in data[:-1].decode("utf-8", "replace").split("\n"):
                log.info("%s", line)
            return
        self._write(self._fd, data)

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._fd is None or not self._regular:
            return
        try:
            os.fsync(self._fd)
        except OSError as e:
            raise ConnectError(f"file {self._path} cannot be synced: {e.strerror}") from e

    def stop(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, fd: int, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(fd, data[written:] if written else data)
        except OSError as e:
            self._cut_off(fd, written)
            message = f"file {self._path} cannot be written: {e.strerror}"
            if e.errno in _PASSING:
                raise RetriableError(message) from e
            raise ConnectError(message) from e

    def _cut_off(self, fd: int, written: int) -> None:
        """Removes the rest of a failed write, unless another task has appended behind it."""
        if not written or not self._regular:
            return
        end = os.lseek(fd, 0, os.SEEK_CUR)
        if os.fstat(fd).st_size == end:
            os.ftruncate(fd, end - written)
        else:
            log.warning("%s: a failed write has left %d bytes before byte %d", self._path, written, end)

    def _end_half_line(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        if self._regular and size and os.pread(fd, 1, size - 1) != b"\n":
            log.warning("%s: ends in the middle of a line; ending it", self._path)
            os.write(fd, b"\n")


def _lines_of(batch: SinkBatch) -> bytes:
    """Returns one line per record, of the bytes in the topic where these are the text."""
    raw = batch.raw(TEXT)
    if raw is not None:
        with suppress(TypeError):  # a null is a line, too
            return b"\n".join([*raw, b""])  # type: ignore[list-item]
    return _lines(batch.values, batch)


def _lines(values: Sequence[Any], records: Sequence[SinkRecord]) -> bytes:
    """Returns one line per record. Raises DataError, which names the record that has no text."""
    try:
        return ("\n".join(values) + "\n").encode()
    except (TypeError, UnicodeEncodeError):
        return b"".join(map(_line, records))


def _line(record: SinkRecord) -> bytes:
    value: Any = record.value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value) + b"\n"
    try:
        return text_of(value, record.value_schema).encode() + b"\n"
    except (DataError, UnicodeEncodeError) as e:
        raise DataError(f"{record.where}: {e}") from e
