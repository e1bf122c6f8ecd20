"""Reads what readers have committed from records of a topic of commits, such as `__consumer_offsets`. Pure.

Commits of a transaction count once it is committed; until then they wait here, and a restart has to read them again:
`unfinished` says from where.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from klamm.admin.model import TopicPartition
from klamm_kafka.wire.batch import BatchHeader, Record, decode_records, iter_headers
from klamm_kafka.wire.errors import ProtocolError
from klamm_kafka.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue

_INT16: Final = struct.Struct(">h")
_COMMIT_KEYS: Final = (0, 1)
"""The versions of an OffsetCommitKey. Other versions are keys of other records of groups."""
_COMMITTED: Final = 1
"""The type of a control record that ends a transaction well."""
_MARKER: Final = re.compile(r'\{"rows":\d+,"bytes":\d+,"writer":"[^"]*","run":"[^"]*"\}\0?')
"""The metadata beside the batch number that a task of an exactly-once output of Spark commits. Python's librdkafka sends C's final NUL, too."""
_VALUE_VERSION_MAX: Final = OffsetCommitValue.MAX_VERSION


class Seen(NamedTuple):
    """A commit of a group, or with offset None the end of one: it was deleted or has expired."""

    group: str
    partition: TopicPartition
    offset: int | None
    timestamp: int
    order: int


@dataclass(slots=True)
class _Open:
    first: int
    seen: list[Seen]


class CommitReader:
    """Reads one partition of such a topic. `position` is the next offset to be read. `seen` returns the commit in a record, None for a
    record of another kind; it raises ProtocolError or struct.error for one that it cannot read.
    """

    def __init__(self, position: int, seen: Callable[[Record], Seen | None] | None = None) -> None:
        self.position = position
        self._seen = seen or commit_of
        self._open: dict[int, _Open] = {}
        self.unreadable = 0
        """Records that look like commits and could not be read."""

    @property
    def unfinished(self) -> int:
        """The offset from which another reader has to read to know all that this one knows."""
        return min([self.position, *(t.first for t in self._open.values())])

    def read(self, data: bytes | memoryview) -> Iterator[Seen]:
        """Yields the commits of whole batches, in order. Raises ProtocolError for bytes that are no batches."""
        for at, header in iter_headers(data):
            if header.next_offset <= self.position:
                continue
            records = [r for r in decode_records(data, at) if r.offset >= self.position]
            if header.is_control:
                yield from self._ended(header, records)
            elif header.is_transactional:
                opened = self._open.setdefault(header.producer_id, _Open(header.base_offset, []))
                opened.seen += self._commits(records)
            else:
                yield from self._commits(records)
            self.position = header.next_offset

    def _ended(self, header: BatchHeader, records: list[Record]) -> list[Seen]:
        ended = self._open.pop(header.producer_id, None)
        if ended is None or not records or len(records[0].key or b"") < 4:
            return []
        (kind,) = _INT16.unpack_from(records[0].key or b"", 2)
        if kind != _COMMITTED:
            return []
        order = header.base_offset  # these commits are made now, whatever came between
        return [seen._replace(order=order) for seen in ended.seen]

    def _commits(self, records: list[Record]) -> Iterator[Seen]:
        for record in records:
            try:
                if (seen := self._seen(record)) is not None:
                    yield seen
            except (ProtocolError, struct.error):
                self.unreadable += 1


def commit_of(record: Record) -> Seen | None:
    """Returns the commit in a record; None for a record of another kind. Raises ProtocolError, struct.error."""
    key, value = record.key, record.value
    if key is None or len(key) < 2 or _INT16.unpack_from(key)[0] not in _COMMIT_KEYS:
        return None
    of, _ = OffsetCommitKey.decode(key, 0, 2)
    place = TopicPartition(of.topic, of.partition)
    if value is None:
        return Seen(of.group, place, None, record.timestamp, record.offset)
    (version,) = _INT16.unpack_from(value)
    said, _ = OffsetCommitValue.decode(value, min(version, _VALUE_VERSION_MAX), 2)
    offset = None if _MARKER.fullmatch(said.metadata or "") else said.offset  # a batch number is no position
    return Seen(of.group, place, offset, said.commit_timestamp, record.offset)
