"""Many records in columns: what a fast source returns, and a fast sink takes, instead of a list of records.

Lines of a file, rows of one table or records of one partition share nearly everything. A batch holds the shared
parts once and the others as lists, and is a sequence of records for code that wants records. The runtime converts
and moves its lists without ever making a record, at a fraction of the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import Any, overload

from klamm_plugins.columns import Repeated
from klamm_plugins.raw_values import JSON, TEXT, RawValues, ValueColumn, decode_texts, raw_texts
from klamm_plugins.records import NO_HEADERS, Headers, SinkRecord, SourceRecord, TopicPartition
from klamm_plugins.schema import Schema

__all__ = [
    "JSON", "TEXT", "Batch", "RawValues", "SinkBatch", "SourceBatch", "SourceBatches", "Timestamp",
    "batches_like", "batches_of", "decode_texts", "raw_texts",
]  # fmt: skip

Timestamp = tuple[str, int | None]
"""A record's `timestamp_type` and `timestamp`."""


class SourceBatch(ValueColumn, Sequence[SourceRecord]):
    """Records of one source partition and one topic, in columns. Nobody changes its lists.

    `positions[i]` is the task's position once record `i` is acknowledged; `offset_of` makes a source offset of it, by default
    `{offset_name: position}`. The runtime asks for few of the offsets. `keys` None: no record has a key; `headers` None: no record
    has headers. `timestamp` is that of all records, in epoch milliseconds, or a list with that of each; None: the time of
    sending. Keys and values that are structs may be a `klamm_plugins.columns.StructColumn`, and values may be raw.
    """

    __slots__ = (
        "headers", "key_schema", "keys", "offset_of", "partition", "positions",
        "source_partition", "timestamps", "topic", "value_schema",
    )  # fmt: skip

    def __init__(
        self,
        source_partition: dict[str, Any],
        topic: str,
        values: Sequence[Any] | RawValues,
        positions: Sequence[Any],
        *,
        offset_name: str = "position",
        offset_of: Callable[[Any], dict[str, Any]] | None = None,
        value_schema: Schema | None = None,
        keys: Sequence[Any] | None = None,
        key_schema: Schema | None = None,
        partition: int | None = None,
        timestamp: int | Sequence[int | None] | None = None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        count = len(values)
        each = Repeated(timestamp, count) if timestamp is None or isinstance(timestamp, int) else timestamp
        if any(len(column) != count for column in (positions, each, keys, headers) if column is not None):
            raise ValueError(
                f"{count} values need as many positions, and keys, headers and timestamps if there are any"
            )
        self.source_partition = source_partition
        self.topic = topic
        self._column = values
        self.positions = positions
        self.offset_of = offset_of or (lambda position: {offset_name: position})
        self.value_schema = value_schema
        self.keys = keys
        self.key_schema = key_schema
        self.partition = partition
        self.headers = headers
        self.timestamps: Sequence[int | None] = each  # None for records without one

    def records(self) -> list[SourceRecord]:
        """Returns new records."""
        return list(self)

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[SourceRecord]:
        return map(
            SourceRecord,
            repeat(self.source_partition),
            map(self.offset_of, self.positions),
            repeat(self.topic),
            repeat(self.partition),
            repeat(self.key_schema),
            repeat(None) if self.keys is None else self.keys,
            repeat(self.value_schema),
            self.values,
            self.timestamps,
            repeat(NO_HEADERS) if self.headers is None else self.headers,
        )

    @overload
    def __getitem__(self, index: int) -> SourceRecord: ...
    @overload
    def __getitem__(self, index: slice) -> SourceBatch: ...
    def __getitem__(self, index: int | slice) -> SourceRecord | SourceBatch:
        if isinstance(index, slice):
            return self._part(itemgetter(index))
        return next(iter(self.select([range(len(self))[index]])))

    def select(self, rows: Sequence[int]) -> SourceBatch:
        """Returns the records of these numbers, which ascend; at least one."""
        return self._part(_picker(rows))

    def replace(self, **changes: Any) -> SourceBatch:
        """Returns a batch with other parts: those that the constructor takes, but for the source partition."""
        same: dict[str, Any] = {
            "topic": self.topic,
            "positions": self.positions,
            "offset_of": self.offset_of,
            "partition": self.partition,
            "key_schema": self.key_schema,
            "keys": self.keys,
            "value_schema": self.value_schema,
            "values": self._column,
            "timestamp": self.timestamps,
            "headers": self.headers,
        }
        return SourceBatch(self.source_partition, **(same | changes))

    def _part(self, pick: Callable[[Any], Sequence[Any]]) -> SourceBatch:
        """Returns a batch of what `pick` takes out of each column."""
        return self.replace(
            positions=pick(self.positions),
            keys=None if self.keys is None else pick(self.keys),
            values=self._picked(pick),
            timestamp=pick(self.timestamps),
            headers=None if self.headers is None else pick(self.headers),
        )

    def offset(self, index: int) -> dict[str, Any]:
        """Returns the source offset of one record."""
        return self.offset_of(self.positions[index])


class SourceBatches(Sequence[SourceRecord]):
    """Batches and lists of records, one after the other: records that do not fit into one batch. None of them is empty."""

    __slots__ = ("_count", "parts")

    def __init__(self, parts: Iterable[Sequence[SourceRecord]] = ()) -> None:
        self.parts: list[SourceBatch | list[SourceRecord]] = []
        self._count = 0
        for part in parts:
            self.add(part)

    def add(self, part: Sequence[SourceRecord]) -> None:
        """Puts more records behind the others."""
        self._count += len(part)
        if isinstance(part, SourceBatches):
            self.parts += part.parts
        elif isinstance(part, SourceBatch):
            self.parts += [part] if part else []
        elif part and self.parts and isinstance(self.parts[-1], list):
            self.parts[-1].extend(part)
        elif part:
            self.parts.append(list(part))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[SourceRecord]:
        return chain.from_iterable(self.parts)

    @overload
    def __getitem__(self, index: int) -> SourceRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SourceRecord]: ...
    def __getitem__(self, index: int | slice) -> SourceRecord | Sequence[SourceRecord]:
        if isinstance(index, slice):
            return list(self)[index]
        place = range(self._count)[index]
        for part in self.parts:
            if place < len(part):
                return part[place]
            place -= len(part)
        raise IndexError(index)


class SinkBatch(ValueColumn, Sequence[SinkRecord]):
    """Consecutive records of one partition with the same schemas, in columns. Nobody changes its lists.

    `origin` is the partition that the records were read from, and `offsets` are theirs in it; `topic` and `partition` are as
    transforms left them. `keys` None: no record has a key; `headers` None: no record has headers. `times` may be a function,
    which makes them at the first look.
    """

    __slots__ = (
        "_kept", "_new", "_records", "_times", "headers", "key_schema", "keys",
        "offsets", "origin", "partition", "topic", "value_schema",
    )  # fmt: skip

    def __init__(
        self,
        origin: TopicPartition,
        offsets: Sequence[int],
        values: Sequence[Any] | RawValues,
        *,
        topic: str | None = None,
        partition: int | None = None,
        key_schema: Schema | None = None,
        keys: Sequence[Any] | None = None,
        value_schema: Schema | None = None,
        times: Sequence[Timestamp] | Callable[[], Sequence[Timestamp]] | None = None,
        headers: Sequence[Headers] | None = None,
        new: Callable[..., SinkRecord] = SinkRecord,
        kept: Sequence[Any] | None = None,
    ) -> None:
        self.origin = origin
        self.topic = origin.topic if topic is None else topic
        self.partition = origin.partition if partition is None else partition
        self.offsets = offsets
        self.key_schema = key_schema
        self.keys = keys
        self.value_schema = value_schema
        self.headers = headers
        self._column = values
        self._times = times
        self._new = new
        self._kept = kept  # one object for each record, which `new` gets as its last argument
        self._records: list[SinkRecord] | None = None

    @property
    def times(self) -> Sequence[Timestamp]:
        """For each record, its `timestamp_type` and `timestamp`."""
        times = self._times  # another thread may make them meanwhile
        if times is None:
            times = [("NoTimestampType", None)] * len(self.offsets)
        elif callable(times):
            times = times()
        self._times = times
        return times

    @property
    def timestamps(self) -> list[int | None]:
        """The timestamps in epoch milliseconds, None for records without one."""
        return [timestamp for _, timestamp in self.times]

    def records(self) -> list[SinkRecord]:
        """Returns the records, which the first call makes."""
        if self._records is None:
            kinds, timestamps = zip(*self.times, strict=True) if len(self) else ((), ())
            origins = zip(repeat(self.origin.topic), repeat(self.origin.partition), self.offsets)
            self._records = list(
                map(
                    self._new,
                    repeat(self.topic),
                    repeat(self.partition),
                    repeat(self.key_schema),
                    repeat(None) if self.keys is None else self.keys,
                    repeat(self.value_schema),
                    self.values,
                    self.offsets,
                    timestamps,
                    kinds,
                    repeat(NO_HEADERS) if self.headers is None else self.headers,
                    repeat(None) if (self.topic, self.partition) == self.origin else origins,
                    *(() if self._kept is None else (self._kept,)),
                )
            )
        return self._records

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[SinkRecord]:
        return iter(self.records())

    @overload
    def __getitem__(self, index: int) -> SinkRecord: ...
    @overload
    def __getitem__(self, index: slice) -> SinkBatch: ...
    def __getitem__(self, index: int | slice) -> SinkRecord | SinkBatch:
        if isinstance(index, slice):
            return self._part(itemgetter(index))
        if self._records is not None:
            return self._records[index]
        return self.select([range(len(self))[index]]).records()[0]

    def select(self, rows: Sequence[int]) -> SinkBatch:
        """Returns the records of these numbers, which ascend; at least one."""
        return self._part(_picker(rows))

    def replace(self, **changes: Any) -> SinkBatch:
        """Returns a batch with other parts: `topic`, `partition`, `key_schema`, `keys`, `value_schema`, `values`,
        `headers`, `timestamp` (a list). Values that are replaced have no raw bytes.
        """
        if "timestamp" in changes:
            kinds = (kind for kind, _ in self.times)
            changes["times"] = list(zip(kinds, changes.pop("timestamp"), strict=True))
        same: dict[str, Any] = {
            "topic": self.topic,
            "partition": self.partition,
            "key_schema": self.key_schema,
            "keys": self.keys,
            "value_schema": self.value_schema,
            "values": self._column,
            "times": self._times,
            "headers": self.headers,
            "new": self._new,
            "kept": self._kept,
        }
        return SinkBatch(self.origin, self.offsets, **(same | changes))

    def _part(self, pick: Callable[[Any], Sequence[Any]]) -> SinkBatch:
        """Returns a batch of what `pick` takes out of each column."""

        def some(column: Any) -> Any:
            return None if column is None else pick(column)

        times = self._times
        part = SinkBatch(
            self.origin,
            pick(self.offsets),
            self._picked(pick),
            topic=self.topic,
            partition=self.partition,
            key_schema=self.key_schema,
            keys=some(self.keys),
            value_schema=self.value_schema,
            times=(lambda: pick(self.times)) if callable(times) else some(times),
            headers=some(self.headers),
            new=self._new,
            kept=some(self._kept),
        )
        if self._records is not None:
            part._records = list(pick(self._records))
        return part


Batch = SinkBatch | SourceBatch
"""A batch as transforms take it."""


def _picker(rows: Sequence[int]) -> Callable[[Any], Sequence[Any]]:
    """Returns a function from a column to what it has at these places."""
    return itemgetter(*rows) if len(rows) > 1 else itemgetter(slice(rows[0], rows[0] + 1))


def batches_like(batch: Batch, made: Sequence[Any]) -> Sequence[Batch]:
    """Returns batches of the kind of `batch`. `made` has, for each of its records, the one in its place; None: it is dropped."""
    if isinstance(batch, SinkBatch):
        return batches_of(record for record in made if record is not None)
    places = ((row, record) for row, record in enumerate(made) if record is not None)
    runs = groupby(places, lambda p: (id(p[1].key_schema), id(p[1].value_schema), p[1].topic, p[1].partition))
    return [_source_batch(batch, *zip(*run, strict=True)) for _, run in runs]


def _source_batch(batch: SourceBatch, rows: Sequence[int], records: Sequence[SourceRecord]) -> SourceBatch:
    first = records[0]
    keys, headers = [r.key for r in records], [r.headers for r in records]
    return batch.replace(
        topic=first.topic,
        partition=first.partition,
        positions=_picker(rows)(batch.positions),
        key_schema=first.key_schema,
        keys=None if all(key is None for key in keys) else keys,
        value_schema=first.value_schema,
        values=[r.value for r in records],
        headers=headers if any(headers) else None,
        timestamp=[r.timestamp for r in records],
    )


def batches_of(records: Iterable[SinkRecord]) -> list[SinkBatch]:
    """Returns records as batches, one for each run of records that can share one. The batches give out these same
    records.
    """
    return [_batch(list(run)) for _, run in groupby(records, _shared)]


def _shared(record: SinkRecord) -> tuple[Any, ...]:
    schemas = id(record.key_schema), id(record.value_schema)
    return *schemas, record.topic, record.partition, record.original_topic, record.original_kafka_partition


def _batch(records: list[SinkRecord]) -> SinkBatch:
    first = records[0]
    keys = [r.key for r in records]
    headers = [r.headers for r in records]
    batch = SinkBatch(
        first.original_topic_partition,
        [r.original_kafka_offset for r in records],
        [r.value for r in records],
        topic=first.topic,
        partition=first.partition,
        key_schema=first.key_schema,
        keys=None if all(key is None for key in keys) else keys,
        value_schema=first.value_schema,
        times=[(r.timestamp_type, r.timestamp) for r in records],
        headers=headers if any(headers) else None,
        new=_copy,
        kept=records,
    )
    batch._records = records  # noqa: SLF001
    return batch


def _copy(*parts: Any) -> SinkRecord:
    """Returns a copy of the last of these, which has the others as its parts: what else it holds, it keeps."""
    *fields, record = parts
    made: SinkRecord = record.copy()
    (
        made.topic,
        made.partition,
        made.key_schema,
        made.key,
        made.value_schema,
        made.value,
        made.offset,
        made.timestamp,
        made.timestamp_type,
        made.headers,
        made.origin,
    ) = fields
    return made
