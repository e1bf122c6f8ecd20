"""Turns a source task's records into what a producer takes: transforms, then converters, list by list.

A chunk holds records that can be converted, sent and tracked together: consecutive records of one source
partition whose transformed records share topic, partition and schemas; tombstones may be among them. A record that a transform drops, or
that is bad and tolerated, stays in its chunk as an original, so that its offset is done together with those
before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

from klamm.connect.child.plugins import Converters
from klamm.connect.child.tolerance import Stage, Tolerance
from klamm.connect.child.transform_chain import TransformChain
from klamm_plugins.batch import SourceBatch, SourceBatches
from klamm_plugins.records import Headers, SourceRecord
from klamm_plugins.schema import Schema

RawHeaders = list[tuple[str, bytes | None]]

# Offsets advance chunk by chunk: small chunks commit finer, large ones cost less.
CHUNK_RECORDS_MAX: Final = 500


@dataclass(slots=True, kw_only=True)
class Chunk:
    """A chunk. `originals` are all records, `sent` those of them that are sent, each beside its bytes.

    `keys`, `headers` and `timestamps` are None if no record has one.
    """

    topic: str
    partition: int | None
    source_partition: dict[str, Any]
    source_offset: dict[str, Any]
    values: Sequence[bytes | None]
    keys: list[bytes | None] | None = None
    headers: list[RawHeaders | None] | None = None
    timestamps: list[int] | None = None
    originals: Sequence[SourceRecord] = ()
    sent: Sequence[SourceRecord] = ()


Made = tuple[SourceRecord, SourceRecord | None]
"""A record as the task returned it, and the transformed record in its place."""


class SourceRecords:
    """Makes chunks of a task's records. `records`: chunks must have records also where they came in columns."""

    def __init__(
        self, *, converters: Converters, chain: TransformChain, tolerance: Tolerance, records: bool
    ) -> None:
        self._converters = converters
        self._chain = chain
        self._tolerance = tolerance
        self._records = records

    def chunks(self, records: Sequence[SourceRecord]) -> Iterator[Chunk]:
        """Yields the chunks of `records`, in order. Raises what the tolerance raises."""
        if self._records:
            yield from self._by_records(list(records))
            return
        for part in records.parts if isinstance(records, SourceBatches) else (records,):
            yield from self._of_columns(part) if isinstance(part, SourceBatch) else self._by_records(part)

    def _by_records(self, records: Sequence[SourceRecord]) -> Iterator[Chunk]:
        pairs: Sequence[Made] = list(zip(records, records, strict=True))
        if self._chain:
            pairs = self._chain.apply(records, self._tolerance)
        for part in _alike(pairs):
            yield self._of_records(part)

    def _of_columns(self, batch: SourceBatch) -> Iterator[Chunk]:
        for start in range(0, len(batch), CHUNK_RECORDS_MAX):
            part = batch[start : start + CHUNK_RECORDS_MAX]
            try:
                chunks = self._transformed(part)
            except Exception:
                chunks = None
            # Going record by record finds the bad ones and judges each. Outside of `except`, as in `_fill`.
            yield from self._by_records(list(part)) if chunks is None else chunks

    def _transformed(self, batch: SourceBatch) -> list[Chunk] | None:
        """Returns the chunks of a batch; None if the chain must have records. Raises for a record that is bad."""
        if not self._chain:
            return [self._of_batch(batch, batch, batch)]
        # As positions, the numbers of its records go through the chain: they tell which are left.
        made = self._chain.in_columns(batch.replace(positions=range(len(batch)), offset_of=batch.offset))
        if made is None:
            return None
        chunks = []
        done = 0
        for i, part in enumerate(made):
            end = part.positions[-1] + 1 if i < len(made) - 1 else len(batch)
            originals = batch[done:end]
            whole = len(part) == len(originals)
            sent = originals if whole else _Rows(originals, [row - done for row in part.positions])
            chunks.append(self._of_batch(originals, part, sent))
            done = end
        return chunks or [_of_none(batch)]

    def _of_batch(self, originals: SourceBatch, made: SourceBatch, sent: Sequence[SourceRecord]) -> Chunk:
        chunk = _of_none(originals)
        chunk.topic, chunk.partition, chunk.sent = made.topic, made.partition, sent
        chunk.keys = self._key_bytes(made.topic, made.key_schema, made.keys, len(made))
        chunk.values = self._value_bytes(made)
        chunk.headers = self._all_headers(made.topic, made.headers)
        chunk.timestamps = _times(made.timestamps)
        return chunk

    def _of_records(self, pairs: Sequence[Made]) -> Chunk:
        last = pairs[-1][0]
        originals = [original for original, _ in pairs]
        made = [record for _, record in pairs if record is not None]
        first = made[0] if made else last
        kept = originals if len(made) == len(pairs) else [o for o, record in pairs if record is not None]
        chunk = Chunk(
            topic=first.topic,
            partition=first.partition,
            source_partition=last.source_partition,
            source_offset=last.source_offset,
            values=[],
            originals=originals,
            sent=kept,
        )
        if made:
            self._fill(chunk, made)
        return chunk

    def _fill(self, chunk: Chunk, made: list[SourceRecord]) -> None:
        first, failed = made[0], False
        try:
            chunk.keys = self._key_bytes(
                first.topic,
                first.key_schema,
                [r.key for r in made] if any(r.key is not None for r in made) else None,
                len(made),
            )
            chunk.values = self._values_among_tombstones(first.topic, first.value_schema, made)
            chunk.headers = self._all_headers(first.topic, [r.headers for r in made])
        except Exception:
            failed = True
        if failed:
            # Converting one by one finds the bad records and judges each. Outside of `except`: their errors must not
            # have the error of the bulk as their context, which says the same.
            made = self._one_by_one(chunk, made)
        chunk.timestamps = _times([r.timestamp for r in made])

    def _values_among_tombstones(
        self, topic: str, schema: Schema | None, made: list[SourceRecord]
    ) -> list[bytes | None]:
        convert = self._converters.value.from_connect_data_many
        if schema is None or not any(map(_is_tombstone, made)):
            return convert(topic, schema, [r.value for r in made])
        none = self._converters.value.from_connect_data(topic, None, None)
        values = iter(convert(topic, schema, [r.value for r in made if not _is_tombstone(r)]))
        return [none if _is_tombstone(r) else next(values) for r in made]

    def _value_bytes(self, batch: SourceBatch) -> Sequence[bytes | None]:
        converter, raw = self._converters.value, batch.raw_values
        if raw is not None:
            found = converter.from_raw_values(batch.topic, batch.value_schema, raw)
            if found is not None:
                return found
        return converter.from_connect_data_many(batch.topic, batch.value_schema, batch.values)

    def _key_bytes(
        self, topic: str, schema: Schema | None, keys: Sequence[Any] | None, count: int
    ) -> list[bytes | None] | None:
        if keys is not None:
            return self._converters.key.from_connect_data_many(topic, schema, keys)
        # All keys are None, so one conversion serves all (JSON with schemas makes bytes of None).
        none = self._converters.key.from_connect_data(topic, schema, None)
        return None if none is None else [none] * count

    def _one_by_one(self, chunk: Chunk, made: list[SourceRecord]) -> list[SourceRecord]:
        """Fills `chunk` with the records that can be converted, and returns them."""
        good: list[SourceRecord] = []
        sent: list[SourceRecord] = []
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        headers: list[RawHeaders | None] = []
        for original, record in zip(chunk.sent, made, strict=True):
            raw = self._convert(original, record)
            if raw is not None:
                good.append(record)
                sent.append(original)
                keys.append(raw[0])
                values.append(raw[1])
                headers.append(raw[2])
        chunk.sent, chunk.values = sent, values
        chunk.keys = keys if any(key is not None for key in keys) else None
        chunk.headers = headers if any(headers) else None
        return good

    def _convert(
        self, original: SourceRecord, record: SourceRecord
    ) -> tuple[bytes | None, bytes | None, RawHeaders | None] | None:
        topic, converters, call = record.topic, self._converters, self._tolerance.retry.call
        stage = Stage.HEADER_CONVERTER
        try:
            headers = call(stage, lambda: self._headers(topic, record.headers)) if record.headers else None
            stage = Stage.KEY_CONVERTER
            key = call(stage, lambda: converters.key.from_connect_data(topic, record.key_schema, record.key))
            stage = Stage.VALUE_CONVERTER
            value = call(
                stage, lambda: converters.value.from_connect_data(topic, record.value_schema, record.value)
            )
        except Exception as e:
            self._tolerance.failed(original, e, stage=stage, executing=converters.class_name(stage))
            return None
        return key, value, headers

    def _all_headers(self, topic: str, headers: Sequence[Headers] | None) -> list[RawHeaders | None] | None:
        if headers is None or not any(headers):
            return None
        return [self._headers(topic, each) if each else None for each in headers]

    def _headers(self, topic: str, headers: Headers) -> RawHeaders:
        convert = self._converters.header.from_connect_header
        return [(h.name, convert(topic, h.name, h.schema, h.value)) for h in headers]


def _times(timestamps: Sequence[int | None]) -> list[int] | None:
    """Returns timestamps as the producer takes them; None if no record has one.

    0 is librdkafka's "none": it takes the time of sending. So a record cannot have the epoch itself as its time (differences.md).
    """
    return [timestamp or 0 for timestamp in timestamps] if any(timestamps) else None


def _of_none(batch: SourceBatch) -> Chunk:
    """Returns a chunk that sends none of the batch's records."""
    return Chunk(
        topic=batch.topic,
        partition=batch.partition,
        source_partition=batch.source_partition,
        source_offset=batch.offset(len(batch) - 1),
        values=[],
        originals=batch,
    )


class _Rows(Sequence[SourceRecord]):
    """Some records of a batch, which are made when somebody asks for them."""

    def __init__(self, batch: SourceBatch, rows: Sequence[int]) -> None:
        self._batch = batch
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> SourceRecord: ...
    @overload
    def __getitem__(self, index: slice) -> _Rows: ...
    def __getitem__(self, index: int | slice) -> SourceRecord | _Rows:
        if isinstance(index, slice):
            return _Rows(self._batch, self._rows[index])
        return self._batch[self._rows[index]]


def dropped(chunk: Chunk) -> list[SourceRecord]:
    """Returns the originals that are not sent."""
    if len(chunk.originals) == len(chunk.sent):
        return []
    sent = set(map(id, chunk.sent))
    return [record for record in chunk.originals if id(record) not in sent]


def _is_tombstone(record: SourceRecord) -> bool:
    return record.value is None and record.value_schema is None


def _alike(pairs: Sequence[Made]) -> Iterator[Sequence[Made]]:
    """Yields the records in parts, one for each chunk."""
    start = 0
    source_partition = pairs[0][0].source_partition
    like: SourceRecord | None = None
    for i, (original, record) in enumerate(pairs):
        theirs = original.source_partition
        same = theirs is source_partition or theirs == source_partition
        if like is not None and record is not None and same:
            same = (
                (record.value_schema is like.value_schema or _is_tombstone(record))
                and record.key_schema is like.key_schema
                and record.topic == like.topic
                and record.partition == like.partition
            )
        if not same or i - start == CHUNK_RECORDS_MAX:
            yield pairs[start:i]
            start, source_partition, like = i, theirs, None
        if like is None:
            like = record
    yield pairs[start:]
