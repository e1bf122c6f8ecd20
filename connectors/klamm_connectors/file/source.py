"""FileStreamSource: each line of a file becomes a record; more lines come as the file grows.

Offsets are Kafka's: partition {"filename": path}, offset {"position": bytes read}, so the position of a record
is the byte after its line's end. Only complete lines are given out. How the file is followed through truncation and
rotation is in `follow`; a file that is taken up anew begins at small positions again, under the same partition.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm_base.configdef import ConfigDef, ConfigValue, Importance, Type, between, invalid
from klamm_base.version import __version__
from klamm_connectors.file.follow import FollowedFile
from klamm_connectors.file.lines import NONE, Lines
from klamm_connectors.file.positions import unusable
from klamm_plugins.batch import SourceBatch
from klamm_plugins.connector import SourceConnector, SourceOffset, SourcePartition, SourceTask
from klamm_plugins.errors import ConfigError, ConnectError
from klamm_plugins.schema import STRING

log = logging.getLogger(__name__)

FILENAME: Final = "filename"
POSITION: Final = "position"

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
    def exactly_once_support(cls, props: Mapping[str, str]) -> bool:
        """A position is the byte behind a line: the next line is read once it is committed, and only then."""
        return True

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Partitions of files that were configured before may be altered too, and anything be removed, as with Kafka.

        A position in the configured file must be one at which the task would go on: anywhere else it would read the
        file from its beginning.
        """
        path = _parse(props)["file"]
        for partition, offset in offsets:
            if offset is None:
                continue
            _check_offset(offset)
            if FILENAME not in partition:
                raise ConnectError(f"Partition objects should contain the key '{FILENAME}'")
            why = unusable(path, offset[POSITION]) if partition[FILENAME] == path else None
            if why is not None:
                raise ConnectError(
                    f"The position {offset[POSITION]} cannot be used: {why}. Give the byte at which a line begins (0 is "
                    "the first)"
                )
        return True


class FileStreamSourceTask(SourceTask):
    """Reads chunks and hands their lines over in batches; `_lines` are read, those from `_next` on not yet handed over."""

    kafka_name = "org.apache.kafka.connect.file.FileStreamSourceTask"

    def __init__(self) -> None:
        self._topic = ""
        self._batch_size = 0
        self._partition: dict[str, Any] = {}
        self._file = FollowedFile("", 0)
        self._lines = NONE
        self._next = 0
        self._stamps = False

    def start(self, props: Mapping[str, str]) -> None:
        parsed = _parse(props)
        path = parsed["file"]
        self._topic = parsed["topic"]
        self._batch_size = parsed["batch.size"]
        self._partition = {FILENAME: path}
        # What only the producer sees is stamped when it is sent; transforms may look at it before.
        self._stamps = bool(props.get("transforms", "").strip())
        position = 0
        offset = self.context.offset(self._partition)
        if offset is not None:
            _check_offset(offset)
            position = offset[POSITION]
            log.info("%s: going on at byte %d", path, position)
        self._file = FollowedFile(path, position)

    def poll(self) -> SourceBatch | None:
        if self._next >= len(self._lines.texts):
            self._next = 0
            self._lines = self._read_lines()
            if not self._lines.texts:
                return None
        return self._batch()

    def stop(self) -> None:
        self._file.close()

    def lag(self) -> int | None:
        """Bytes of the file that are not handed over."""
        size = self._file.size()
        if size is None:
            return None
        done = self._file.done
        if 0 < self._next < len(self._lines.texts):
            done = self._lines.ends[self._next - 1]
        return max(size - done, 0)

    def _batch(self) -> SourceBatch:
        part = slice(self._next, self._next + self._batch_size)
        texts = self._lines.texts[part]
        self._next += len(texts)
        return SourceBatch(
            self._partition,
            self._topic,
            texts,
            self._lines.ends[part],
            offset_name=POSITION,
            value_schema=STRING,
            timestamp=time.time_ns() // 1_000_000 if self._stamps else None,
        )

    def _read_lines(self) -> Lines:
        """Lines of the next chunk; when there is nothing, wait a little and look once more."""
        lines = self._file.read_lines()
        if lines is None and not self.context.stopping.wait(_WAIT_S):
            lines = self._file.read_lines()
        return lines or NONE


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
