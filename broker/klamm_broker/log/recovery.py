"""Finds the bytes of a segment that can be trusted: a pure function of the bytes.

The valid part ends before the first batch that is torn, fails its checksum, or contradicts the batches before it.
The checksum does not cover a batch's base offset and leader epoch (the broker writes them), so these must fit
their neighbours: offsets and epochs never decrease, and in the last segment, which no cleaner has touched,
offsets have no gaps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from klamm_broker.log.segment import MAX_RELATIVE_OFFSET
from klamm_kafka.wire.batch import BatchHeader, check_crc, read_header
from klamm_kafka.wire.errors import ProtocolError

OnBatch = Callable[[int, BatchHeader], None]


class Valid(NamedTuple):
    """The trusted prefix of a segment: its length, the offset after it, and why it ends there (None: intact)."""

    size: int
    next_offset: int
    reason: str | None


@dataclass(slots=True, kw_only=True)
class _Expected:
    """The values that the next batch has to fit."""

    offset: int
    epoch: int
    max_epoch: int | None
    max_offset: int


def scan(
    data: memoryview,
    *,
    base_offset: int,
    contiguous: bool,
    on_batch: OnBatch,
    last_epoch: int = -1,
    max_epoch: int | None = None,
    end_offset: int | None = None,
) -> Valid:
    """Check the batches of a segment in order and call `on_batch` with each trusted one.

    `contiguous`: a gap in the offsets is damage. Otherwise the batch after a gap is trusted unless the intact
    batch behind it contradicts it. `max_epoch` is the highest leader epoch so far, `end_offset` the
    base offset of the next segment.
    """
    max_offset = base_offset + MAX_RELATIVE_OFFSET if end_offset is None else end_offset - 1
    expected = _Expected(offset=base_offset, epoch=last_epoch, max_epoch=max_epoch, max_offset=max_offset)
    position = 0
    while position < len(data):
        found = _intact(data, position)
        reason = found if isinstance(found, str) else _misfit(found, expected)
        if reason is None and isinstance(found, BatchHeader) and found.base_offset != expected.offset:
            gap = f"offset {found.base_offset} where {expected.offset} is expected"
            reason = gap if contiguous or _contradicted(data, position, found) else None
        if reason is not None or isinstance(found, str):
            return Valid(size=position, next_offset=expected.offset, reason=reason)
        on_batch(position, found)
        position += found.size
        expected.offset, expected.epoch = found.next_offset, found.leader_epoch
    return Valid(size=position, next_offset=expected.offset, reason=None)


def _intact(data: memoryview, position: int) -> BatchHeader | str:
    """Returns the header of a batch that is complete and passes its checksum, or what is wrong."""
    try:
        header = read_header(data, position)
        check_crc(data, position, header)
    except ProtocolError as e:
        return str(e)
    return header


def _misfit(header: BatchHeader, expected: _Expected) -> str | None:
    """Returns why an intact batch cannot follow the batches before it; None if it can."""
    first, last, epoch = header.base_offset, header.last_offset, header.leader_epoch
    if not expected.offset <= first <= last <= expected.max_offset:
        return f"offsets {first} to {last} where {expected.offset} is expected"
    if epoch < expected.epoch or (expected.max_epoch is not None and epoch > expected.max_epoch):
        return f"leader epoch {epoch} after {expected.epoch}, highest known {expected.max_epoch}"
    return None


def _contradicted(data: memoryview, position: int, header: BatchHeader) -> bool:
    """Decides whether the batch behind this one is intact and has a smaller offset: then this one's is wrong."""
    following = _intact(data, position + header.size)
    return isinstance(following, BatchHeader) and following.base_offset <= header.last_offset
