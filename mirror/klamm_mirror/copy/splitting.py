"""Splits batches that the target refuses as they are: too large, or with some records that it does not take. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from klamm_kafka.wire.batch import decode_records, encode_batch, read_header
from klamm_mirror.raw import Batch, runs_of


def smaller(batch: Batch, refused_bytes: int) -> list[Batch]:
    """Returns parts of some half of `refused_bytes`, with equal numbers of records. None for a batch of one record."""
    parts = min(-(-2 * len(batch.data) // refused_bytes), batch.count)
    return _cut(batch, [batch.count * i // parts for i in range(1, parts)])


def apart(batch: Batch, bad: Collection[int]) -> list[Batch]:
    """Returns parts that hold either only bad records or none, by the records' indices. None where all or none are bad."""
    return _cut(batch, [i for i in range(1, batch.count) if (i in bad) is not (i - 1 in bad)])


def _cut(batch: Batch, at: Sequence[int]) -> list[Batch]:
    """Cuts before the records with these indices, which rise. Compression is the batch's."""
    if not at:
        return []
    header, records = read_header(batch.data), decode_records(batch.data)
    offsets = list(_offsets(batch))
    parts = []
    for start, end in pairwise([0, *at, batch.count]):
        rows, own = records[start:end], offsets[start:end]
        parts.append(Batch(
            encode_batch(rows, compression=header.compression), own[0], own[-1], own[-1] + 1, len(rows),
            max(r.timestamp for r in rows), first_timestamp=rows[0].timestamp, origin=batch.origin,
            runs=tuple(runs_of(own)), epoch=batch.epoch,
        ))  # fmt: skip
    parts[-1].next_offset = batch.next_offset
    return parts


def _offsets(batch: Batch) -> Iterator[int]:
    for first, count in batch.runs:
        yield from range(first, first + count)
