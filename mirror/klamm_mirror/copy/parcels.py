"""Takes whole batches out of a Fetch answer, as they are, for a copy that keeps offsets: pure.

Nothing is left out: batches of aborted and open transactions, transaction markers, and what compaction left of a batch
go along, because readers of the copy judge them as readers of the source do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from klamm_kafka.wire.batch import BatchHeader, check_crc
from klamm_kafka.wire.varint import Buffer
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.raw import Batch, Counts, whole_batches

PARCEL_BYTES: Final = 4 << 20
"""A parcel ends before it is larger, unless one batch is: as much as a fetch brings of a partition."""


def parcels(buf: Buffer, offset: int) -> Iterator[Batch]:
    """Yields the batches from `offset` on, several in a parcel. Raises CorruptRecord, InvalidRecord."""
    view = memoryview(buf)
    begin = end = 0
    held: list[BatchHeader] = []
    for pos, header in whole_batches(buf):
        check_crc(view, pos, header)
        if header.next_offset <= offset:
            continue
        if held and pos + header.size - begin > PARCEL_BYTES:
            yield _parcel(view[begin:end], held)
            held = []
        begin = begin if held else pos
        end = pos + header.size
        held.append(header)
    if held:
        yield _parcel(view[begin:end], held)


def _parcel(data: memoryview, headers: Sequence[BatchHeader]) -> Batch:
    records = [h for h in headers if not h.is_control and h.record_count]
    first = records[0] if records else None
    return Batch(
        bytearray(data),
        headers[0].base_offset,
        headers[-1].last_offset,
        headers[-1].next_offset,
        sum(h.record_count for h in records),
        max((h.max_timestamp for h in records), default=-1),
        first_timestamp=-1 if first is None or first.has_delete_horizon else first.base_timestamp,
        epoch=headers[-1].leader_epoch,
    )


class Unchanged:
    """Takes the place of `Rewriter` where nothing is rewritten."""

    filtered = 0
    pipeline = None

    async def convert(
        self,
        partition: MirrorPartition,
        records: Buffer,
        counts: Counts,
        aborted: Sequence[tuple[int, int]] | None,
        lens: object,
    ) -> tuple[list[Batch], int]:
        """Returns parcels for the target, and the offset to fetch next. See `Rewriter.convert`."""
        found = list(parcels(records, partition.position))
        counts.passed += sum(1 for _ in whole_batches(records))
        return found, found[-1].next_offset if found else partition.position
