"""FileStreamSource: each line of a file becomes a record; more lines come as the file grows.

Offsets are Kafka's: partition {"filename": path}, offset {"position": bytes read}, so the position of a record
is the byte after its line's end. Only complete lines are given out. A file that has become shorter than the
position is read from its beginning, which is logged. The file is followed as it was opened: a file that was
renamed and replaced is left for the next start (rotation is the log agent's work).
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from klamm_base.configdef import ConfigDef, ConfigValue, Importance, Type, between, invalid
from klamm_base.version import __version__
from klamm_connectors.file.lines import LineSplitter
from klamm_plugins.connector import SourceConnector, SourceOffset, SourcePartition, SourceTask
from klamm_plugins.errors import ConfigError, ConnectError
from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import STRING

log = logging.getLogger(__name__)

FILENAME: Final = "filename"
POSITION: Final = "position"

_CHUNK: Final = 256 * 1024  # about two batches of 2000 lines of a usual log
_LINE_MAX: Final = 64 * 1024 * 1024  # no broker takes a record of this size
_WAIT_S: Final = 0.1  # between two looks at a file that does not grow
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def _legal_topic(name: str, value: Any) -> None:
    if value is None or not _TOPIC.fullmatch(value) or value in {".", ".."}:
        raise invalid(
            name,
            value,
            "The name of one topic: up to 249 letters, digits, '.', '_' and '-', but not '.' or '..'",
        )


def _config() -> ConfigDef:
    return (
        ConfigDef()
        .define(
            "file",
            Type.STRING,
            None,
            importance=Importance.HIGH,
            documentation=(
                "Path of the file to read. It need not exist yet. Required in fact: a task has no standard input "
                "to read instead."
            ),
        )
        .define(
            "topic",
            Type.STRING,
            validator=_legal_topic,
            importance=Importance.HIGH,
            documentation="The topic that takes the lines.",
        )
        .define(
            "batch.size",
            Type.INT,
            2000,
            validator=between(1),
            importance=Importance.LOW,
            documentation="How many lines the task hands over at once, at most.",
        )
    )


class FileStreamSourceConnector(SourceConnector):
    """One task that reads one file."""

    kafka_name = "org.apache.kafka.connect.file.FileStreamSourceConnector"

    def __init__(self) -> None:
        self._props: dict[str, str] = {}

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return _config()

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        values = super().validate(props)
        for value in values:
            if value.name == "file" and not value.errors and not value.value:
                value.errors.append(_file_missing(value.value))
        return values

    @classmethod
    def task_class(cls) -> type[FileStreamSourceTask]:
        return FileStreamSourceTask

    def start(self, props: Mapping[str, str]) -> None:
        _parse(props)
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self._props)]

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Partitions of files that were configured before may be altered too."""
        _parse(props)
        for partition, offset in offsets:
            if offset is not None:
                _check_offset(offset)
            if FILENAME not in partition:
                raise ConnectError(f"Partition objects should contain the key '{FILENAME}'")
        return True


class FileStreamSourceTask(SourceTask):
    """Reads chunks and hands their lines over in batches; `_lines` are read and not yet handed over."""

    kafka_name = "org.apache.kafka.connect.file.FileStreamSourceTask"

    def __init__(self) -> None:
        self._fd: int | None = None
        self._path = ""
        self._topic = ""
        self._batch_size = 0
        self._partition: dict[str, Any] = {}
        self._splitter = LineSplitter(0)
        self._lines: list[tuple[str, int]] = []
        self._next = 0
        self._missing_logged = False
        self._replaced_logged = False

    def start(self, props: Mapping[str, str]) -> None:
        parsed = _parse(props)
        self._path = parsed["file"]
        self._topic = parsed["topic"]
        self._batch_size = parsed["batch.size"]
        self._partition = {FILENAME: self._path}
        offset = self.context.offset(self._partition)
        if offset is not None:
            _check_offset(offset)
            self._splitter = LineSplitter(offset[POSITION])
            log.info("%s: going on at byte %d", self._path, offset[POSITION])

    def poll(self) -> list[SourceRecord] | None:
        if self._next >= len(self._lines):
            self._next = 0
            self._lines = self._read_lines()
            if not self._lines:
                return None
        return self._records()

    def stop(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def lag(self) -> int | None:
        """Bytes of the file that are not handed over."""
        if self._fd is None:
            return None
        done = self._splitter.position - self._splitter.pending
        if 0 < self._next < len(self._lines):
            done = self._lines[self._next - 1][1]
        return max(os.fstat(self._fd).st_size - done, 0)

    def _records(self) -> list[SourceRecord]:
        batch = self._lines[self._next : self._next + self._batch_size]
        self._next += len(batch)
        partition, topic, schema, new = self._partition, self._topic, STRING, SourceRecord
        now = time.time_ns() // 1_000_000
        return [
            new(partition, {POSITION: position}, topic, None, None, None, schema, text, now)
            for text, position in batch
        ]

    def _read_lines(self) -> list[tuple[str, int]]:
        """Lines of the next chunk; when there is nothing, wait a little and look once more."""
        for attempt in range(2):
            if self._fd is None and not self._open():
                self.context.stopping.wait(_WAIT_S)
                continue
            chunk = self._read()
            if chunk:
                lines = self._splitter.feed(chunk)
                self._check_line_length()
                return lines
            self._notice_replacement()
            if attempt or self.context.stopping.wait(_WAIT_S):
                break
        return []

    def _open(self) -> bool:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if not self._missing_logged:
                log.warning("%s: no such file yet; waiting for it", self._path)
                self._missing_logged = True
            return False
        except OSError as e:
            raise ConnectError(f"file {self._path} cannot be opened: {e.strerror}") from e
        self._missing_logged = False
        return True

    def _read(self) -> bytes:
        assert self._fd is not None, "opened by the caller"
        try:
            chunk = os.pread(self._fd, _CHUNK, self._splitter.position)
            if not chunk and os.fstat(self._fd).st_size < self._splitter.position:
                self._start_over()
                chunk = os.pread(self._fd, _CHUNK, 0)
        except OSError as e:
            raise ConnectError(
                f"file {self._path} cannot be read at byte {self._splitter.position}: {e.strerror}"
            ) from e
        return chunk

    def _notice_replacement(self) -> None:
        """Say once that the path names another file now: what that holds is not read before the next start."""
        assert self._fd is not None, "opened by the caller"
        try:
            there = Path(self._path).stat()
        except OSError:
            return  # renamed or removed, and nothing in its place yet
        here = os.fstat(self._fd)
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
            self._replaced_logged = False
        elif not self._replaced_logged:
            log.warning(
                "%s: was replaced by another file; following the old one until the next start", self._path
            )
            self._replaced_logged = True

    def _start_over(self) -> None:
        log.warning(
            "%s: is shorter than the %d bytes read so far, so it was truncated: reading from its beginning "
            "(an unfinished line of %d bytes is gone)",
            self._path,
            self._splitter.position,
            self._splitter.pending,
        )
        self._splitter = LineSplitter(0)

    def _check_line_length(self) -> None:
        if self._splitter.pending > _LINE_MAX:
            start = self._splitter.position - self._splitter.pending
            raise ConnectError(
                f"file {self._path}: the line that begins at byte {start} is longer than {_LINE_MAX} bytes"
            )


def _parse(props: Mapping[str, str]) -> dict[str, Any]:
    parsed = _config().parse(props)
    if not parsed["file"]:
        raise ConfigError(_file_missing(parsed["file"]), key="file")
    return parsed


def _file_missing(value: str | None) -> str:
    why = "Name a file: a task runs in a process of its own, which has no standard input to read"
    return str(invalid("file", value, why))


def _check_offset(offset: SourceOffset) -> None:
    """Raise what Kafka raises for an offset that cannot be a position in a file."""
    if POSITION not in offset:
        raise ConnectError(f"Offset objects should either be null or contain the key '{POSITION}'")
    position = offset[POSITION]
    if not isinstance(position, int) or isinstance(position, bool):
        raise ConnectError(f"The value for the '{POSITION}' key in the offset is expected to be a Long value")
    if position < 0:
        raise ConnectError(f"The value for the '{POSITION}' key in the offset should be a non-negative value")
