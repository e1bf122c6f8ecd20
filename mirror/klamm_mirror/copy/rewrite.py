"""The changes that a flow makes to its records: ids of schemas, transforms, converters, another compression. Everything else
passes raw.

Transforms see the records that MirrorMaker 2 gives them: the remote topic, the source's partition, key, value and headers
as bytes, the source's timestamp.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from klamm_kafka.wire.batch import BatchHeader, Record
from klamm_kafka.wire.varint import Buffer
from klamm_mirror.clients import ProducerSettings
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.schema_rewrite import Change, SchemaRewriter
from klamm_mirror.copy.source_offsets import source_partition
from klamm_mirror.origins import Verdict
from klamm_mirror.raw import Batch, Counts, Rewrite, convert
from klamm_plugins.errors import DataError
from klamm_plugins.record_pipeline import RawRecord, RecordPipeline
from klamm_plugins.records import NO_HEADERS, Header, Headers, SourceRecord
from klamm_plugins.schema import BYTES, OPTIONAL_BYTES

THREAD_BYTES: Final = 64 << 10
"""Records from which compressing them in a thread pays off."""


class Rewriter:
    """The changes of one task. `pipeline` None: neither transforms nor converters. `schemas` None: ids stay."""

    def __init__(
        self, alias: str, producer: ProducerSettings, pipeline: RecordPipeline | None = None,
        schemas: SchemaRewriter | None = None,
    ) -> None:  # fmt: skip
        self.filtered = 0
        """The number of records that transforms dropped, or that were bad and tolerated."""
        self._alias = alias
        self._producer = producer
        self.pipeline = pipeline
        self._schemas = schemas

    def take(self, schemas: SchemaRewriter | None) -> None:
        """Changes ids by `schemas` from now on, and closes what did so before."""
        if self._schemas is not None:
            self._schemas.close()
        self._schemas = schemas

    def close(self) -> None:
        self.take(None)
        if self.pipeline is not None:
            self.pipeline.close()

    def of(self, partition: MirrorPartition, first: Change | None = None) -> Rewrite:
        """Returns the changes to a partition's batches, after the change `first`."""
        change = first
        if self.pipeline is not None:
            change = partial(self._change, self.pipeline, partition, first)
        return Rewrite(self._producer.compression, self._producer.level, change)

    async def convert(
        self,
        partition: MirrorPartition,
        records: Buffer,
        counts: Counts,
        aborted: Sequence[tuple[int, int]] | None,
        lens: Callable[[BatchHeader], Verdict] | None,
    ) -> tuple[list[Batch], int]:
        """Does what `raw.convert` does. Compresses much in a thread, because codecs release the interpreter; transforms
        stay in this one. Raises what `SchemaRewriter.prepare` raises.
        """
        found = None
        if self._schemas is not None:
            found = await self._schemas.prepare(partition, records, aborted, lens)
        rewrite = self.of(partition, None if found is None else found.change)
        batches, position = await _converted(
            records, partition.position, counts, aborted, lens, rewrite=rewrite
        )
        return batches, position if found is None or found.end is None else found.end

    def _change(
        self,
        pipeline: RecordPipeline,
        partition: MirrorPartition,
        first: Change | None,
        records: list[Record],
    ) -> list[Record]:
        records = records if first is None else first(records)
        origin = source_partition(self._alias, partition.topic, partition.partition)
        made = pipeline.convert([_connect_record(origin, partition, record) for record in records])
        kept = [
            _with(record, raw, partition)
            for record, raw in zip(records, made, strict=True)
            if raw is not None
        ]
        self.filtered += len(records) - len(kept)
        return kept


async def _converted(
    records: Buffer, at: int, counts: Counts, aborted: Sequence[tuple[int, int]] | None,
    lens: Callable[[BatchHeader], Verdict] | None, *, rewrite: Rewrite,
) -> tuple[list[Batch], int]:  # fmt: skip
    if rewrite.change is not None:
        # A partition's records may take long. Answers of the target come in between.
        await asyncio.sleep(0)
    if rewrite.compression is None or rewrite.change is not None or len(records) < THREAD_BYTES:
        return convert(records, at, counts, aborted, lens, rewrite=rewrite)
    own = Counts()
    result = await asyncio.to_thread(convert, records, at, own, aborted, lens, rewrite=rewrite)
    counts.add(own)
    return result


def _connect_record(origin: dict[str, object], partition: MirrorPartition, record: Record) -> SourceRecord:
    return SourceRecord(
        origin, {"offset": record.offset}, partition.remote, partition.partition,
        OPTIONAL_BYTES, record.key, BYTES, record.value, record.timestamp,
        Headers(Header(name, value, BYTES) for name, value in record.headers) if record.headers else NO_HEADERS,
    )  # fmt: skip


def _with(record: Record, raw: RawRecord, partition: MirrorPartition) -> Record:
    """Returns the record with the parts that the transforms made. Raises DataError for another place."""
    if raw.topic != partition.remote or raw.partition != partition.partition:
        there = raw.topic if raw.partition is None else f"{raw.topic}-{raw.partition}"
        raise DataError(
            f"{partition} at offset {record.offset}: a transform moved the record from {partition.remote}-"
            f"{partition.partition} to {there}. The mirror keeps topics and partitions: name remote topics by "
            "replication.policy.class and replication.policy.separator instead"
        )
    timestamp = record.timestamp if raw.timestamp is None else raw.timestamp
    return Record(record.offset, timestamp, raw.key, raw.value, raw.headers)
