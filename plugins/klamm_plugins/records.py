"""The records that pass between connectors and the runtime, with their headers.

Connectors work on lists of records, so a record is one slotted object and no more: its constructor checks
nothing, and records without headers share one empty `Headers`. A record's parts belong to its maker; the runtime
reads records and does not change them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from klamm_plugins.schema import Schema


class TopicPartition(NamedTuple):
    """One partition of a topic. Prints as `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class RecordMetadata(NamedTuple):
    """A record's place in the broker. `timestamp` is in epoch milliseconds, None when the broker gave none."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None = None


class Header(NamedTuple):
    """One header: a name, a value, and the value's schema (None: no schema)."""

    name: str
    value: Any
    schema: Schema | None = None


class Headers(tuple[Header, ...]):
    """The headers of one record, in order; a name may come more than once.

    Immutable: `with_header` and `without` return new headers, so records may share them.

    >>> h = Headers.of(("trace", "a1"), ("trace", "b2"))
    >>> h.last("trace").value, len(h.without("trace"))
    ('b2', 0)
    """

    __slots__ = ()

    @classmethod
    def of(cls, *headers: tuple[str, Any] | tuple[str, Any, Schema | None]) -> Headers:
        """Makes headers from pairs (name, value) or triples (name, value, schema)."""
        return cls(Header(*h) for h in headers)

    def with_header(self, name: str, value: Any, schema: Schema | None = None) -> Headers:
        """Returns these headers and one more at the end."""
        return Headers((*self, Header(name, value, schema)))

    def with_all(self, more: Iterable[Header]) -> Headers:
        """Returns these headers followed by `more`."""
        return Headers((*self, *more))

    def without(self, name: str) -> Headers:
        """Returns these headers without those called `name`."""
        return Headers(h for h in self if h.name != name)

    def all(self, name: str) -> list[Header]:
        """Returns the headers called `name`, in order."""
        return [h for h in self if h.name == name]

    def last(self, name: str) -> Header | None:
        """Returns the last header called `name`, which is the one that counts."""
        return next((h for h in reversed(self) if h.name == name), None)


NO_HEADERS: Final = Headers()


@dataclass(slots=True)
class SourceRecord:
    """A record on its way from a source task to a topic.

    `source_partition` names its origin ({"filename": "/var/log/app"}), `source_offset` the task's position once this
    record is acknowledged ({"position": 1024}): the next task begins there. Both are flat dicts of JSON values. All
    records of one source partition must come in the order in which they may be committed. `partition` None lets the
    key (murmur2, as in Java) or the producer choose. `timestamp` is epoch milliseconds; None means the time of
    sending.
    """

    source_partition: dict[str, Any]
    source_offset: dict[str, Any]
    topic: str
    partition: int | None = None
    key_schema: Schema | None = None
    key: Any = None
    value_schema: Schema | None = None
    value: Any = None
    timestamp: int | None = None
    headers: Headers = NO_HEADERS

    def copy(self) -> SourceRecord:
        """Returns a new record with the same parts, for transforms, which change the copy."""
        return SourceRecord(
            self.source_partition,
            self.source_offset,
            self.topic,
            self.partition,
            self.key_schema,
            self.key,
            self.value_schema,
            self.value,
            self.timestamp,
            self.headers,
        )


@dataclass(slots=True)
class SinkRecord:
    """A record on its way from a topic to a sink task.

    `offset` is the record's offset in `topic`-`partition`. `timestamp` is epoch milliseconds or None;
    `timestamp_type` is "CreateTime", "LogAppendTime" or "NoTimestampType". A transform may have given it another
    topic or partition. `original_topic`, `original_kafka_partition` and `original_kafka_offset` (KIP-793) keep the
    place that it was read from, by which offsets are kept.
    """

    topic: str
    partition: int
    key_schema: Schema | None
    key: Any
    value_schema: Schema | None
    value: Any
    offset: int
    timestamp: int | None = None
    timestamp_type: str = "NoTimestampType"
    headers: Headers = NO_HEADERS
    origin: tuple[str, int, int] | None = field(default=None, repr=False, compare=False)
    """The topic, partition and offset of its reading, where a transform may have changed these. `copy` sets it."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def original_topic(self) -> str:
        return self.topic if self.origin is None else self.origin[0]

    @property
    def original_kafka_partition(self) -> int:
        return self.partition if self.origin is None else self.origin[1]

    @property
    def original_kafka_offset(self) -> int:
        return self.offset if self.origin is None else self.origin[2]

    @property
    def original_topic_partition(self) -> TopicPartition:
        """The partition that it was read from. Tasks keep offsets by it."""
        origin = self.origin
        return TopicPartition(self.topic, self.partition) if origin is None else TopicPartition(*origin[:2])

    @property
    def where(self) -> str:
        """The record as it was read, for sentences about it: `record orders-3@17` (topic, partition, offset)."""
        topic, partition, offset = self.origin or (self.topic, self.partition, self.offset)
        return f"record {topic}-{partition}@{offset}"

    def copy(self) -> SinkRecord:
        """Returns a new record with the same parts, for transforms, which change the copy."""
        return SinkRecord(
            self.topic,
            self.partition,
            self.key_schema,
            self.key,
            self.value_schema,
            self.value,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.headers,
            self.origin or (self.topic, self.partition, self.offset),
        )
