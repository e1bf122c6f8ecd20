"""Converts fetched record batches for the target: pure.

A batch passes unchanged with its compressed records; only its header is rewritten (no control, transaction
and delete-horizon flags, no leader epoch, our own producer id and sequence, see `wire.batch.stamp`). A
batch is decoded when a broker would refuse it or a reader would see something else. `Counts.decoded` counts
these cases:
* it begins before the requested offset (a fetch returns whole batches);
* it has holes, as compaction leaves them: a producer's batch must have none;
* its timestamps are the source broker's (LogAppendTime), which a producer may not set: they become
  CreateTime;
* the flow changes some of its records (`Rewrite.change`).

A flow with a compression of its own compresses a batch anew without a look at its records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm_kafka.wire.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Record,
    check_crc,
    decode_records,
    encode_batch,
    read_end_txn_marker,
    read_header,
    recompressed,
)
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.varint import Buffer
from klamm_mirror.origins import LeftOut, Origin, Verdict

_OFFSET_LENGTH_EPOCH: Final = struct.Struct(">qii")
_LENGTH_EPOCH: Final = struct.Struct(">8xii")
_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_AT: Final = 21
_PRODUCER_ID: Final = struct.Struct(">q")
_PRODUCER_ID_AT: Final = 43


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The changes of a flow. `compression` None keeps the source's; `level` None is the codec's own. `change` gets records
    with their source offsets, and returns those for the target, in order and with the same offsets.
    """

    compression: Compression | None = None
    level: int | None = None
    change: Callable[[list[Record]], list[Record]] | None = None

    def wants(self, header: BatchHeader) -> bool:
        """Returns True when a batch must be compressed anew."""
        return self.compression is not None and header.compression != self.compression


NO_REWRITE: Final = Rewrite()


@dataclass(slots=True)
class Counts:
    """Counts since the start: batches that passed unchanged or were compressed anew, batches and records that were decoded
    and rewritten, records left out because their transaction was aborted, batches left out because of their origin.
    """

    passed: int = 0
    recompressed: int = 0
    reencoded: int = 0
    decoded: int = 0
    aborted: int = 0
    left_out: dict[LeftOut, int] = field(default_factory=lambda: dict.fromkeys(LeftOut, 0))

    def add(self, other: Counts) -> None:
        """Adds what another thread has counted."""
        self.passed += other.passed
        self.recompressed += other.recompressed
        self.reencoded += other.reencoded
        self.decoded += other.decoded
        self.aborted += other.aborted
        for why, count in other.left_out.items():
            self.left_out[why] += count


@dataclass(slots=True)
class Batch:
    """One batch for the target. Offsets are the source's: of its first and last record, and the next one to fetch.

    `runs` are the rows of offsets without a hole, as (first, count). `base` is the target's offset of the first record,
    once it is known. `data` is complete except for the fields that `wire.batch.stamp` sets. `max_timestamp` and `first_timestamp`
    (of the first record; -1: not known without decoding) are in ms.
    """

    data: bytearray
    first: int
    last: int
    next_offset: int
    count: int
    max_timestamp: int
    sequence: int = -1
    acked: bool = False
    first_timestamp: int = -1
    origin: Origin | None = None
    """The cluster where the records first were; None: the source."""
    runs: tuple[tuple[int, int], ...] = ()
    base: int = -1
    epoch: int = -1
    """The leader epoch of the last record before `next_offset`."""


@dataclass(slots=True)
class Aborted:
    """The aborted transactions that a read_committed fetch lists: producer id and first offset of each."""

    waiting: list[tuple[int, int]]
    active: set[int]

    @classmethod
    def of(cls, transactions: Sequence[tuple[int, int]]) -> Aborted:
        return cls(sorted(transactions, key=lambda t: t[1]), set())

    def hides(self, header: BatchHeader) -> bool:
        """Returns True when a batch of records belongs to an aborted transaction. Batches must come in order."""
        while self.waiting and self.waiting[0][1] <= header.last_offset:
            self.active.add(self.waiting.pop(0)[0])
        return header.is_transactional and header.producer_id in self.active

    def end(self, header: BatchHeader, records: Sequence[Record]) -> None:
        """Takes a control batch: an abort marker ends its producer's hidden records."""
        self.hides(header)
        marker = read_end_txn_marker(records[0]) if records else None
        if marker is not None and not marker.committed:
            self.active.discard(header.producer_id)


def last_epoch(buf: Buffer, epoch: int) -> int:
    """Returns the leader epoch of the last whole batch; `epoch` when there is none."""
    last = max(_whole(buf), default=None)
    return epoch if last is None else int(_LENGTH_EPOCH.unpack_from(buf, last)[1])


def producer_ids(buf: Buffer) -> set[int]:
    """Returns the producer ids of the whole batches of a Fetch answer, without that of no producer (-1)."""
    return {_PRODUCER_ID.unpack_from(buf, pos + _PRODUCER_ID_AT)[0] for pos in _whole(buf)} - {-1}


def _whole(buf: Buffer) -> Iterator[int]:
    """Yields the positions of whole batches, without a look at the rest of their headers."""
    pos, end = 0, len(buf)
    while end - pos >= HEADER_BYTES:
        size = max(_LENGTH_EPOCH.unpack_from(buf, pos)[0], 0) + LENGTH_PREFIX_BYTES
        if pos + size > end:
            return
        yield pos
        pos += size


def whole_batches(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of each batch, without a last batch that the answer's size limit cut off."""
    pos, end = 0, len(buf)
    while end - pos >= HEADER_BYTES:
        header = read_header(buf, pos)
        if pos + header.size > end:
            return
        yield pos, header
        pos += header.size


def convert(
    buf: Buffer, offset: int, counts: Counts, aborted: Sequence[tuple[int, int]] | None = None,
    lens: Callable[[BatchHeader], Verdict] | None = None, *, rewrite: Rewrite = NO_REWRITE,
) -> tuple[list[Batch], int]:  # fmt: skip
    """Returns batches for the target from a Fetch answer's records, and the offset to fetch next.

    `aborted` is the list in a read_committed answer (producer id, first offset); None reads uncommitted
    records. `lens` decides about a batch by its header (see `Provenance.lens`); None copies all.
    Raises what `rewrite.change` raises, CorruptRecord (a checksum does not hold), InvalidRecord.
    """
    view = memoryview(buf)
    found: list[Batch] = []
    hidden = None if aborted is None else Aborted.of(aborted)
    for pos, header in whole_batches(buf):
        if header.next_offset <= offset:
            continue
        check_crc(view, pos, header)
        if _is_data(view, pos, header, counts, hidden):
            origin = lens(header) if lens is not None else None
            if isinstance(origin, LeftOut):
                counts.left_out[origin] += 1
            elif (
                batch := _convert_one(view, pos, header, offset, counts=counts, rewrite=rewrite)
            ) is not None:
                batch.origin = origin
                found.append(batch)
        offset = header.next_offset
    return found, offset


def _is_data(view: memoryview, pos: int, header: BatchHeader, counts: Counts, hidden: Aborted | None) -> bool:
    """Returns True when a batch holds records for readers. Follows transactions where they matter."""
    if header.is_control:
        if hidden is not None:
            hidden.end(header, decode_records(view, pos))
        return False
    if hidden is not None and hidden.hides(header):
        counts.aborted += header.record_count
        return False
    return header.record_count > 0


def _convert_one(
    view: memoryview, pos: int, header: BatchHeader, offset: int, *, counts: Counts, rewrite: Rewrite
) -> Batch | None:
    whole = header.record_count == header.last_offset_delta + 1
    if not whole or header.base_offset < offset or header.timestamp_type:
        return _anew(view, pos, header, offset, counts=counts, rewrite=rewrite)
    if rewrite.change is not None:
        records = decode_records(view, pos)
        changed = rewrite.change(records)
        if changed is not records:
            counts.decoded += len(records)
            return _encoded(changed, header, counts=counts, rewrite=rewrite)
    if rewrite.wants(header):
        assert rewrite.compression is not None, "wanted"
        counts.recompressed += 1
        data = recompressed(view, pos, header, rewrite.compression, rewrite.level)
        return _as_it_is(memoryview(data), 0, read_header(data))
    counts.passed += 1
    return _as_it_is(view, pos, header)


def _as_it_is(view: memoryview, pos: int, header: BatchHeader) -> Batch:
    data = bytearray(view[pos : pos + header.size])
    _OFFSET_LENGTH_EPOCH.pack_into(data, 0, 0, header.length, -1)
    _ATTRIBUTES.pack_into(data, _ATTRIBUTES_AT, header.attributes & COMPRESSION_MASK)
    return Batch(
        data, header.base_offset, header.last_offset, header.next_offset,
        header.record_count, header.max_timestamp, epoch=header.leader_epoch,
        # With this flag, the field holds the time when the batch's tombstones may be deleted.
        first_timestamp=-1 if header.has_delete_horizon else header.base_timestamp,
        runs=((header.base_offset, header.record_count),),
    )  # fmt: skip


def _anew(
    view: memoryview, pos: int, header: BatchHeader, offset: int, *, counts: Counts, rewrite: Rewrite
) -> Batch | None:
    records = decode_records(view, pos)
    counts.decoded += len(records)
    kept = [r for r in records if r.offset >= offset]
    if rewrite.change is not None and kept:
        kept = rewrite.change(kept)
    return _encoded(kept, header, counts=counts, rewrite=rewrite)


def _encoded(
    kept: Sequence[Record], header: BatchHeader, *, counts: Counts, rewrite: Rewrite
) -> Batch | None:
    counts.reencoded += 1
    if not kept:
        return None
    codec = header.compression if rewrite.compression is None else rewrite.compression
    data = encode_batch(kept, compression=codec, level=rewrite.level)
    latest = max(r.timestamp for r in kept)
    return Batch(
        data, kept[0].offset, kept[-1].offset, header.next_offset, len(kept), latest,
        first_timestamp=kept[0].timestamp, epoch=header.leader_epoch,
        runs=tuple(runs_of([r.offset for r in kept])),
    )  # fmt: skip


def runs_of(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields the rows of ascending offsets without a hole, as (first, count)."""
    start = 0
    for i in range(1, len(offsets) + 1):
        if i == len(offsets) or offsets[i] != offsets[i - 1] + 1:
            yield offsets[start], i - start
            start = i
