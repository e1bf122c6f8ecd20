"""The three records that MirrorMaker 2 keeps about its work, in exactly its bytes.

| record | topic | key | value |
|---|---|---|---|
| `OffsetSync` | `mm2-offset-syncs.<target>.internal` | topic, partition | upstream, downstream (no version) |
| `Checkpoint` | `<source>.checkpoints.internal` | group, topic, partition | version 0, upstream, downstream, metadata |
| `Heartbeat` | `heartbeats` | source alias, target alias | version 0, timestamp |

Strings are UTF-8 behind an int16 length, partitions int32, offsets and timestamps (ms) int64, versions
int16, all big-endian. A later version may append fields to a value; MirrorMaker ignores them, and so do we.
Names and meanings: `org.apache.kafka.connect.mirror.{OffsetSync,Checkpoint,Heartbeat}`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Self

from klamm_plugins.errors import DataError

VERSION: Final = 0
STRING_MAX: Final = 0x7FFF
"""The maximum of a string's bytes: its length is an int16."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class MalformedRecord(DataError):
    """Bytes that are not such a record. The message names the record, the field and the byte."""


class UnsupportedVersion(MalformedRecord):
    """A record of an unknown version."""


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """A record's offset upstream and downstream. `topic` is the topic's upstream name."""

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int

    def encode(self) -> tuple[bytes, bytes]:
        """Returns key and value."""
        key = _string("topic", self.topic) + _int32("partition", self.partition)
        upstream, downstream = self.upstream_offset, self.downstream_offset
        return key, _int64("upstreamOffset", upstream) + _int64("offset", downstream)

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Decodes key and value. Raises MalformedRecord."""
        keys, values = _Reader("offset sync key", key), _Reader("offset sync value", value)
        topic, partition = keys.string("topic"), keys.int32("partition")
        return cls(topic, partition, values.int64("upstreamOffset"), values.int64("offset"))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A group's committed offset upstream, and its translation downstream.

    `topic` is the topic's downstream name. Offsets are those of the next record to read.
    """

    group: str
    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""

    def encode(self) -> tuple[bytes, bytes]:
        """Returns key and value."""
        key = b"".join(
            (_string("group", self.group), _string("topic", self.topic), _int32("partition", self.partition))
        )
        value = b"".join(
            (
                _INT16.pack(VERSION),
                _int64("upstreamOffset", self.upstream_offset),
                _int64("offset", self.downstream_offset),
                _string("metadata", self.metadata),
            )
        )
        return key, value

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Decodes key and value. Raises MalformedRecord, UnsupportedVersion."""
        keys, values = _Reader("checkpoint key", key), _Reader("checkpoint value", value)
        group, topic, partition = keys.string("group"), keys.string("topic"), keys.int32("partition")
        values.version()
        upstream, downstream = values.int64("upstreamOffset"), values.int64("offset")
        return cls(group, topic, partition, upstream, downstream, values.string("metadata"))


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life of the flow from one cluster to another. `timestamp` is in ms since 1970."""

    source: str
    target: str
    timestamp: int

    def encode(self) -> tuple[bytes, bytes]:
        """Returns key and value."""
        key = _string("sourceClusterAlias", self.source) + _string("targetClusterAlias", self.target)
        return key, _INT16.pack(VERSION) + _int64("timestamp", self.timestamp)

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Decodes key and value. Raises MalformedRecord, UnsupportedVersion."""
        keys, values = _Reader("heartbeat key", key), _Reader("heartbeat value", value)
        source, target = keys.string("sourceClusterAlias"), keys.string("targetClusterAlias")
        values.version()
        return cls(source, target, values.int64("timestamp"))


def _string(field: str, text: str) -> bytes:
    data = text.encode()
    if len(data) > STRING_MAX:
        raise DataError(f"{field}: {len(data)} bytes, more than the {STRING_MAX} that its record can hold")
    return _INT16.pack(len(data)) + data


def _int32(field: str, number: int) -> bytes:
    return _number(_INT32, field, number)


def _int64(field: str, number: int) -> bytes:
    return _number(_INT64, field, number)


def _number(layout: struct.Struct, field: str, number: int) -> bytes:
    try:
        return layout.pack(number)
    except struct.error:
        raise DataError(f"{field}: {number!r} is no integer of {layout.size * 8} bits") from None


class _Reader:
    """Reads fields one after the other. Its errors name the record, the field and the field's first byte."""

    def __init__(self, what: str, data: bytes | None) -> None:
        if data is None:
            raise MalformedRecord(f"{what}: there is none")
        self._what = what
        self._data = data
        self._pos = 0

    def version(self) -> None:
        number = self._number(_INT16, "version")
        if number != VERSION:
            raise UnsupportedVersion(f"{self._what}: version {number}, only {VERSION} is known")

    def int32(self, field: str) -> int:
        return self._number(_INT32, field)

    def int64(self, field: str) -> int:
        return self._number(_INT64, field)

    def string(self, field: str) -> str:
        start = self._pos
        size = self._number(_INT16, field)
        data = self._data[self._pos : self._pos + size] if size >= 0 else b""
        if size < 0 or len(data) < size:
            left = len(self._data) - self._pos
            raise MalformedRecord(
                f"{self._what}: {field} at byte {start} has length {size}, {left} bytes follow"
            )
        self._pos += size
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise MalformedRecord(f"{self._what}: {field} at byte {start} is no UTF-8") from None

    def _number(self, layout: struct.Struct, field: str) -> int:
        left = len(self._data) - self._pos
        if left < layout.size:
            raise MalformedRecord(
                f"{self._what}: {field} at byte {self._pos} needs {layout.size} bytes, {max(left, 0)} follow"
            )
        (number,) = layout.unpack_from(self._data, self._pos)
        self._pos += layout.size
        return int(number)
