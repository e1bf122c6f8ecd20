"""Selects the records of a batch that stay when a log is compacted: a pure function of the batch and earlier facts.

A record stays if it is the last of its key, or lies above the part that the map covers. A tombstone or a useless
transaction marker stays until its batch's delete horizon (KIP-534): the first cleaning that meets it writes the time of
its removal into the batch, in the place of the base timestamp. Records of aborted transactions go, and so do records
without a key. A batch that loses records keeps its header's offsets and sequence numbers. A batch that loses all stays as
a header if it is the last that an active producer wrote, or the last that this round looks at.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from klamm_broker.log.cleaner.offset_map import OffsetMap
from klamm_broker.log.cleaner.record_slices import RecordSlice, slice_records, with_timestamp
from klamm_broker.log.cleaner.transactions import CleanedTransactions
from klamm_kafka.wire.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
)
from klamm_kafka.wire.compression import compress
from klamm_kafka.wire.crc import crc32c

_HEADER: Final = Struct(">qiibIhiqqqhii")
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_EMPTY_FLAGS: Final = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG
_KEPT_FLAGS: Final = COMPRESSION_MASK | DELETE_HORIZON_FLAG | _EMPTY_FLAGS


class LastRecord(NamedTuple):
    """An active producer: the last offset of its last data batch (None: it has only markers) and its epoch."""

    data_offset: int | None
    epoch: int


class Kept(NamedTuple):
    """The rest of a batch: its bytes, and the facts for the indexes."""

    data: bytes | bytearray | memoryview
    last_offset: int
    max_timestamp: int


class BatchFilter:
    """The filter of one log. It must see every batch from the log's start, in order."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastRecord],
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.records_read = 0
        self.records_written = 0
        self.records_without_key = 0

    def keep(self, buf: bytes, pos: int, header: BatchHeader) -> Kept | None:
        """Returns the rest of the batch at `pos`, None if nothing stays. Raises CorruptRecord, InvalidRecord.

        Checks the old checksum first: a new one must not make damaged records look intact.
        """
        check_crc(buf, pos, header)
        keeps_header = self._must_keep_header(header)
        if header.is_control:
            data, records = slice_records(buf, pos, header)
            useless = self._transactions.on_control(header, (records[0].key or b"") if records else None)
            discard = useless and header.has_delete_horizon and header.base_timestamp <= self._now_ms
        else:
            useless, discard = False, self._transactions.on_data(header)
        if discard and not keeps_header:
            return None
        if not header.is_control:
            data, records = slice_records(buf, pos, header)
        self.records_read += len(records)
        kept = [] if discard else records if header.is_control else self._kept(header, records)
        self.records_written += len(kept)
        if not kept:
            return _without_records(header) if keeps_header else None
        sets_horizon = not header.has_delete_horizon and (useless or any(record.tombstone for record in kept))
        if len(kept) == len(records) and not sets_horizon:
            return Kept(memoryview(buf)[pos : pos + header.size], header.last_offset, header.max_timestamp)
        horizon = self._now_ms + self._delete_retention_ms if sets_horizon else None
        return _with_records(header, data, kept, horizon)

    def _must_keep_header(self, header: BatchHeader) -> bool:
        """Decides whether the header must stay: it tells a producer's last sequence number or epoch, or the round's last offset."""
        if header.next_offset == self._end_offset:
            return True
        last = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.data_offset is not None:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _kept(self, header: BatchHeader, records: list[RecordSlice]) -> list[RecordSlice]:
        latest, last_offset_of = self._offsets.latest_offset, self._offsets.get
        keeps_tombstones = not header.has_delete_horizon or self._now_ms < header.base_timestamp
        kept = []
        for record in records:
            if record.offset > latest:
                kept.append(record)
            elif record.key is None:
                self.records_without_key += 1
            elif record.offset >= last_offset_of(record.key) and (keeps_tombstones or not record.tombstone):
                kept.append(record)
        return kept


def _without_records(header: BatchHeader) -> Kept:
    empty = header._replace(
        attributes=header.attributes & _EMPTY_FLAGS, base_timestamp=NO_TIMESTAMP, record_count=0
    )
    return Kept(_encode(empty, b""), header.last_offset, header.max_timestamp)


def _with_records(header: BatchHeader, data: bytes, kept: list[RecordSlice], horizon: int | None) -> Kept:
    """Returns the batch with these records, and with a delete horizon if one is given."""
    largest = header.max_timestamp if header.timestamp_type else max(record.timestamp for record in kept)
    attributes, base = header.attributes & _KEPT_FLAGS, header.base_timestamp
    if horizon is None:
        body = b"".join([data[record.start : record.end] for record in kept])
    else:
        attributes, base = attributes | DELETE_HORIZON_FLAG, horizon
        body = b"".join([with_timestamp(data, record, record.timestamp - base) for record in kept])
    rewritten = header._replace(
        attributes=attributes, base_timestamp=base, max_timestamp=largest, record_count=len(kept)
    )
    return Kept(_encode(rewritten, compress(header.compression, body)), header.last_offset, largest)


def _encode(header: BatchHeader, body: bytes) -> bytearray:
    batch = bytearray(HEADER_BYTES)
    batch += body
    _HEADER.pack_into(batch, 0, *header._replace(length=len(batch) - LENGTH_PREFIX_BYTES, crc=0))
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))
    return batch
