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

from dataclasses import dataclass
from typing import Self

from klamm_mirror.topics.fields import (
    VERSION,
    FieldReader,
    int16_field,
    int32_field,
    int64_field,
    string_field,
)


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """A record's offset upstream and downstream. `topic` is the topic's upstream name."""

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int

    def encode(self) -> tuple[bytes, bytes]:
        """Returns key and value."""
        key = string_field("topic", self.topic) + int32_field("partition", self.partition)
        upstream, downstream = self.upstream_offset, self.downstream_offset
        return key, int64_field("upstreamOffset", upstream) + int64_field("offset", downstream)

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Decodes key and value. Raises MalformedRecord."""
        keys, values = FieldReader("offset sync key", key), FieldReader("offset sync value", value)
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
            (
                string_field("group", self.group),
                string_field("topic", self.topic),
                int32_field("partition", self.partition),
            )
        )
        value = b"".join(
            (
                int16_field("version", VERSION),
                int64_field("upstreamOffset", self.upstream_offset),
                int64_field("offset", self.downstream_offset),
                string_field("metadata", self.metadata),
            )
        )
        return key, value

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Decodes key and value. Raises MalformedRecord, UnsupportedVersion."""
        keys, values = FieldReader("checkpoint key", key), FieldReader("checkpoint value", value)
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
        key = string_field("sourceClusterAlias", self.source) + string_field(
            "targetClusterAlias", self.target
        )
        return key, int16_field("version", VERSION) + int64_field("timestamp", self.timestamp)

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Decodes key and value. Raises MalformedRecord, UnsupportedVersion."""
        keys, values = FieldReader("heartbeat key", key), FieldReader("heartbeat value", value)
        source, target = keys.string("sourceClusterAlias"), keys.string("targetClusterAlias")
        values.version()
        return cls(source, target, values.int64("timestamp"))
