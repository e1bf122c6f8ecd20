"""Mirror topics: logs that take whole batches of another cluster's log, with their offsets, until they are promoted.

A mirror topic is one from its creation on (`klamm.mirror.state=mirror`), and a promoted one stays promoted. Its batches
keep offsets, leader epochs, timestamps, and the producers and transaction markers of their own cluster, as those of a
follower do. `promotion_epoch` is the leader epoch from which on the log is this cluster's own: producers and transactions
from before belong to the other cluster, and none of ours may meet them. Pure, but for `written_before`, which reads a
header.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from klamm_broker.log.errors import (
    CorruptMessage,
    InvalidRecordBatch,
    PolicyViolation,
    RecordBatchTooLarge,
)
from klamm_broker.log.segment import MAX_RELATIVE_OFFSET
from klamm_kafka.wire.batch import HEADER_BYTES, BatchHeader, check_crc, encode_end_txn_marker, read_header
from klamm_kafka.wire.errors import CorruptRecord, InvalidRecord

if TYPE_CHECKING:
    from klamm_broker.log.answers import FileSlice
    from klamm_broker.log.leader_epoch import LeaderEpochCache
    from klamm_broker.log.producer_state import ProducerState

STATE: Final = "klamm.mirror.state"
MIRROR: Final = "mirror"
PROMOTED: Final = "promoted"
SOURCE: Final = "klamm.mirror.source"
"""The cluster that the topic is a copy of: its id and its alias. Whoever creates the topic says it."""
EPOCH: Final = "klamm.mirror.promotion.epoch"
"""The promotion epoch of a promoted topic, for clients that must tell both clusters' batches apart."""
KEYS: Final = frozenset({STATE, SOURCE, EPOCH})

Buffer = bytearray | memoryview
Batch = tuple[int, BatchHeader]


def why_not(before: Mapping[str, str] | None, after: Mapping[str, str]) -> str | None:
    """Returns why a topic's own properties may not change so; None if they may. `before` is None for a new topic."""
    old, new = (before or {}).get(STATE), after.get(STATE)
    if before is None and new == MIRROR and EPOCH not in after:
        return None
    for key in (SOURCE, EPOCH):
        if (before or {}).get(key) != after.get(key):
            return f"{key} is set when a mirror topic is created or promoted, and never changed"
    if old == new or (old, new) == (MIRROR, PROMOTED):
        return None
    if old is None:
        return f"{STATE}={new}: a topic is a mirror from its creation on, and promoted only after that"
    kept = "can only become promoted" if old == MIRROR else "stays as it is"
    return f"{STATE}={old} {kept}, not {'unset' if new is None else new}"


def refuse_ordinary(where: str) -> PolicyViolation:
    """Returns the error of an append to a mirror topic that does not come from its mirror."""
    return PolicyViolation(
        f"{where}: the topic is a mirror of another cluster's and read-only ({STATE}={MIRROR}) until it is promoted"
    )


def check_copied(data: Buffer, *, state: str | None, segment_bytes: int, where: str) -> list[Batch]:
    """Returns (position, header) of batches of another log, in order, with holes where that log has some. Raises a LogError."""
    if state != MIRROR:
        what = "was promoted" if state == PROMOTED else "is no mirror topic"
        raise PolicyViolation(
            f"{where}: {what} ({STATE}={state or ''}): it keeps no offsets of another cluster"
        )
    batches: list[Batch] = []
    position, next_offset, epoch = 0, 0, -1
    while position < len(data):
        try:
            header = read_header(data, position)
            check_crc(data, position, header)
        except CorruptRecord as e:
            raise CorruptMessage(f"{where}: {e}") from e
        except InvalidRecord as e:
            raise InvalidRecordBatch(f"{where}: {e}") from e
        if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
            raise InvalidRecordBatch(
                f"{where}: inconsistent batch: last offset delta {header.last_offset_delta} with "
                f"{header.record_count} records"
            )
        if header.size > segment_bytes:
            raise RecordBatchTooLarge(
                f"{where}: a batch of {header.size} bytes exceeds segment.bytes={segment_bytes}"
            )
        if header.base_offset < next_offset or header.leader_epoch < epoch:
            raise InvalidRecordBatch(
                f"{where}: offset {header.base_offset} of leader epoch {header.leader_epoch} after offset "
                f"{next_offset - 1} of epoch {epoch}"
            )
        batches.append((position, header))
        position, next_offset, epoch = position + header.size, header.next_offset, header.leader_epoch
    if not batches:
        raise InvalidRecordBatch(f"{where}: an empty record set")
    return batches


def runs(batches: Sequence[Batch], segment_bytes: int) -> Iterator[list[Batch]]:
    """Yields batches that follow each other, as many as fit into one segment: in bytes, and in the offsets that it can span."""
    run: list[Batch] = []
    size = 0
    for batch in batches:
        if run and (
            size + batch[1].size > segment_bytes
            or batch[1].last_offset - run[0][1].base_offset > MAX_RELATIVE_OFFSET
        ):
            yield run
            run, size = [], 0
        run.append(batch)
        size += batch[1].size
    yield run


def written_before(stored: FileSlice | None, header: BatchHeader) -> bool:
    """Decides whether the log has this very batch at the slice that was read for its first offset."""
    if stored is None:
        return False
    there = read_header(os.pread(stored.fd, HEADER_BYTES, stored.position))
    return (there.base_offset, there.length, there.leader_epoch, there.crc) == (
        header.base_offset,
        header.length,
        header.leader_epoch,
        header.crc,
    )


def refuse_others(header: BatchHeader, end: int, where: str) -> InvalidRecordBatch:
    """Returns the error of a batch for offsets at which the log has other records."""
    return InvalidRecordBatch(
        f"{where}: the log ends at {end} and has other records than the batch at offsets {header.base_offset} to "
        f"{header.last_offset} of leader epoch {header.leader_epoch}"
    )


def own_start(epochs: LeaderEpochCache, log_end_offset: int, promotion_epoch: int) -> int:
    """Returns the offset from which on a promoted log is this cluster's own."""
    return next((start for epoch, start in epochs.entries if epoch >= promotion_epoch), log_end_offset)


def abort_markers(producers: ProducerState, start: int, now_ms: int) -> bytearray:
    """Returns markers that abort the transactions which were open when the topic was promoted: nobody else will end them."""
    markers = bytearray()
    for entry in producers.entries.values():
        if entry.current_txn_first_offset is not None and entry.current_txn_first_offset < start:
            markers += encode_end_txn_marker(
                committed=False,
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                coordinator_epoch=max(entry.coordinator_epoch, 0),
                timestamp=now_ms,
            )
    return markers


def forget_foreign(producers: ProducerState, start: int) -> None:
    """Forgets the producers of the other cluster: the same ids are other producers here."""
    for entry in list(producers.entries.values()):
        entry.batches = [batch for batch in entry.batches if batch.last_offset >= start]
        if not entry.batches and entry.current_txn_first_offset is None:
            del producers.entries[entry.producer_id]
