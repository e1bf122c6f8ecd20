"""The task of FileStreamSource: each line of a file becomes a record, and more follow as the file grows.

Offsets are Kafka's: partition {"filename": path}, offset {"position": bytes read}. A record's position is
the byte after its line's end. Only complete lines become records. `follow` handles truncation and rotation:
after either, positions begin small again, under the same partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from klamm_connectors.file.source.config import parse
from klamm_connectors.file.source.follow import FollowedFile
from klamm_connectors.file.source.lines import NONE, Lines
from klamm_connectors.file.source.positions import FILENAME, POSITION, check_offset
from klamm_plugins.batch import TEXT, RawValues, SourceBatch, decode_texts
from klamm_plugins.connector import SourceTask
from klamm_plugins.schema import STRING

log = logging.getLogger(__name__)

_WAIT_S: Final = 0.1  # between two looks at a file that does not grow


class FileStreamSourceTask(SourceTask):
    """A task that reads chunks and returns their lines in batches. Lines from `_next` on are read but not yet
    returned.
    """

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
        settings = parse(props)
        path = settings.path
        self._topic = settings.topic
        self._batch_size = settings.batch_size
        self._partition = {FILENAME: path}
        # Without transforms the producer sets the timestamp; transforms may look at it earlier.
        self._stamps = bool(props.get("transforms", "").strip())
        position = 0
        offset = self.context.offset(self._partition)
        if offset is not None:
            check_offset(offset)
            position = offset[POSITION]
            log.info("%s: going on at byte %d", path, position)
        self._file = FollowedFile(path, position)

    def poll(self) -> SourceBatch | None:
        if self._next >= len(self._lines.data):
            self._next = 0
            self._lines = self._read_lines()
            if not self._lines.data:
                return None
        return self._batch()

    def stop(self) -> None:
        self._file.close()

    def lag(self) -> int | None:
        """Returns the number of bytes of the file that are not returned yet."""
        size = self._file.size()
        if size is None:
            return None
        done = self._file.done
        if 0 < self._next < len(self._lines.data):
            done = self._lines.ends[self._next - 1]
        return max(size - done, 0)

    def _batch(self) -> SourceBatch:
        part = slice(self._next, self._next + self._batch_size)
        lines = self._lines.data[part]
        self._next += len(lines)
        return SourceBatch(
            self._partition,
            self._topic,
            RawValues(TEXT, lines, decode_texts),
            self._lines.ends[part],
            offset_name=POSITION,
            value_schema=STRING,
            timestamp=time.time_ns() // 1_000_000 if self._stamps else None,
        )

    def _read_lines(self) -> Lines:
        """Returns lines of the next chunk. When there is nothing, waits a little and looks once more."""
        lines = self._file.read_lines()
        if lines is None and not self.context.stopping.wait(_WAIT_S):
            lines = self._file.read_lines()
        return lines or NONE
