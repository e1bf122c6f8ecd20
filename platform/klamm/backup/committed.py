"""Selects the batches of a fetched answer that a backup keeps: pure.

A backup holds committed records only: control batches and batches of aborted transactions are left out, and reading ends at
the last stable offset. So nothing of an aborted transaction can come back, and a restored topic needs no coordinator's state.
Kept batches are the broker's bytes; nobody looks at their records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from klamm_kafka.wire.batch import check_crc, decode_records
from klamm_kafka.wire.varint import Buffer
from klamm_mirror.raw import Aborted, whole_batches


@dataclass(slots=True)
class Selected:
    """Batches of one answer, as ranges of its buffer. `position` is the offset to fetch next."""

    position: int
    pieces: list[memoryview] = field(default_factory=list)
    first: int = -1
    """The first offset of the first kept batch; -1: none is kept."""
    records: int = 0
    max_timestamp: int = -1
    epoch: int = -1
    left_out: int = 0
    """Records of aborted transactions."""
    size: int = 0


def select(buffer: Buffer, position: int, end: int, aborted: Sequence[tuple[int, int]] = ()) -> Selected:
    """Return the batches from `position` up to `end` that hold committed records. `aborted` lists producer ids and first offsets.

    Raises CorruptRecord for a batch whose checksum does not hold, InvalidRecord for one that cannot be read.
    """
    view = memoryview(buffer)
    found = Selected(position)
    hidden = Aborted.of(aborted)
    for pos, header in whole_batches(view):
        if header.base_offset >= end:
            found.position = max(found.position, min(header.base_offset, end))
            break
        if header.next_offset <= position:
            continue
        check_crc(view, pos, header)
        found.position, found.epoch = header.next_offset, header.leader_epoch
        if header.is_control:
            hidden.end(header, decode_records(view, pos))
        elif hidden.hides(header):
            found.left_out += header.record_count
        elif header.record_count:
            _keep(found, view[pos : pos + header.size])
            found.first = header.base_offset if found.first < 0 else found.first
            found.records += header.record_count
            found.max_timestamp = max(found.max_timestamp, header.max_timestamp)
    return found


def _keep(found: Selected, piece: memoryview) -> None:
    found.pieces.append(piece)
    found.size += len(piece)
