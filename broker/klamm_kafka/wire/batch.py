"""Record batches of format 2: headers, checksums, patching in place, and the records themselves.

A batch is 61 bytes of header and its records, compressed as a whole. Its CRC covers everything from the
attributes on, so base offset and leader epoch can be patched without touching the rest. Most callers
need only `iter_headers`, `check_crc` and `patch`; records are decoded only where a caller must look at
them. Buffers are read in place: nothing here keeps a view after it returns, and nothing does I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from klamm_kafka.wire.compression import DECOMPRESSED_BYTES_MAX, Compression, compress, decompress
from klamm_kafka.wire.crc import crc32c
from klamm_kafka.wire.errors import CorruptRecord, InvalidRecord, UnsupportedCompression
from klamm_kafka.wire.record_codec import Sight, read_records, scan_records, write_records
from klamm_kafka.wire.varint import Buffer

MAGIC: Final = 2
HEADER_BYTES: Final = 61
LENGTH_PREFIX_BYTES: Final = 12  # base offset and length, which the length does not count
NO_TIMESTAMP: Final = -1

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_LENGTH_AT: Final = 8
_EPOCH_AT: Final = 12
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
CRC_FROM: Final = _ATTRIBUTES_AT  # the CRC covers everything from here on
_MAX_TIMESTAMP_AT: Final = 35
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40


class BatchHeader(NamedTuple):
    """The header, in the order of the wire. `length` counts the bytes behind it, `size` the whole batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """Raises UnsupportedCompression for a number that Kafka does not define."""
        number = self.attributes & COMPRESSION_MASK
        try:
            return Compression(number)
        except ValueError:
            raise UnsupportedCompression(
                f"batch at offset {self.base_offset}: compression type {number}"
            ) from None

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def timestamp_type(self) -> int:
        """0: the producer's CreateTime. 1: LogAppendTime; the header's `max_timestamp` holds for all records."""
        return 1 if self.attributes & LOG_APPEND_TIME_FLAG else 0

    @property
    def has_delete_horizon(self) -> bool:
        """True if the cleaner replaced the base timestamp by the time at which tombstones are removed."""
        return bool(self.attributes & DELETE_HORIZON_FLAG)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, wrapping from 2**31-1 to 0; -1 without a sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


RecordHeaders = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record. `offset` is absolute; header keys that are not UTF-8 survive through surrogate escapes."""

    offset: int = 0
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: RecordHeaders = ()


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Returns the header at `pos`. Raises CorruptRecord or InvalidRecord unless it is one.

    Checks that there are enough bytes, magic 2 and a possible length. Does not check the CRC, nor that the batch is
    complete: `size` may reach past the end of `buf`.
    """
    try:
        header = BatchHeader._make(HEADER.unpack_from(buf, pos))
    except struct.error:
        raise CorruptRecord(
            f"batch header at {pos} is cut: {max(len(buf) - pos, 0)} of {HEADER_BYTES} bytes"
        ) from None
    if header.magic != MAGIC:
        if header.magic in (0, 1):
            raise InvalidRecord(
                f"batch at {pos} has the old format {header.magic}: only format 2 is supported"
            )
        raise CorruptRecord(f"batch at {pos} has magic {header.magic}, not {MAGIC}")
    if header.length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
        raise CorruptRecord(f"batch at {pos} has length {header.length}, less than its own header")
    return header


def check_crc(buf: Buffer, pos: int, header: BatchHeader) -> None:
    """Raises CorruptRecord unless the batch is complete and its checksum is right."""
    end = pos + header.length + LENGTH_PREFIX_BYTES
    if end > len(buf):
        raise CorruptRecord(f"batch at {pos} is cut: {len(buf) - pos} of {header.size} bytes")
    actual = crc32c(memoryview(buf)[pos + _ATTRIBUTES_AT : end])
    if actual != header.crc:
        raise CorruptRecord(
            f"batch at {pos} (base offset {header.base_offset}): its CRC is {actual:08x}, its header says {header.crc:08x}"
        )


def iter_headers(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of each batch, back to back. Raises CorruptRecord where the last one is cut."""
    pos, end = 0, len(buf)
    while pos < end:
        header = read_header(buf, pos)
        if pos + header.size > end:
            raise CorruptRecord(f"batch at {pos} is cut: {end - pos} of {header.size} bytes")
        yield pos, header
        pos += header.size


def patch(buf: bytearray | memoryview, pos: int, *, base_offset: int, leader_epoch: int) -> None:
    """Sets base offset and leader epoch in place. The CRC covers neither."""
    _OFFSET.pack_into(buf, pos, base_offset)
    _EPOCH.pack_into(buf, pos + _EPOCH_AT, leader_epoch)


def patch_log_append_time(buf: bytearray | memoryview, pos: int, header: BatchHeader, timestamp: int) -> None:
    """Gives all records of the batch the broker's time: the flag, the maximum timestamp, and a new CRC."""
    _ATTRIBUTES.pack_into(buf, pos + _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_FLAG)
    _OFFSET.pack_into(buf, pos + _MAX_TIMESTAMP_AT, timestamp)
    _set_crc(buf, pos, pos + header.size)


def stamp(
    batch: bytearray, producer_id: int, epoch: int, sequence: int, *, transactional: bool = False
) -> None:
    """Writes producer id, epoch, first sequence and checksum into a whole batch. May be done again.

    `transactional` marks the batch as part of a transaction; without it, the flag stays as it is.
    """
    if transactional:
        (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
        _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes | TRANSACTIONAL_FLAG)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, epoch, sequence)
    _set_crc(batch, 0, len(batch))


def _set_crc(buf: bytearray | memoryview, pos: int, end: int) -> None:
    _CRC.pack_into(buf, pos + _CRC_AT, crc32c(memoryview(buf)[pos + _ATTRIBUTES_AT : end]))


def recompressed(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    compression: Compression,
    level: int | None = None,
    *,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """Returns the batch at `pos` with its records in another codec. Nothing else changes, and no record is looked at.

    Raises UnpackedTooLarge if they are more than `limit`, CorruptRecord where they cannot be decompressed.
    """
    body = unpacked(buf, pos, header, limit=limit)
    batch = bytearray(memoryview(buf)[pos : pos + HEADER_BYTES])
    batch += compress(compression, body, level)
    attributes = header.attributes & ~COMPRESSION_MASK | compression
    _LENGTH.pack_into(batch, _LENGTH_AT, len(batch) - LENGTH_PREFIX_BYTES)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes)
    _set_crc(batch, 0, len(batch))
    return batch


def unpacked(buf: Buffer, pos: int, header: BatchHeader, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Returns the decompressed records of the batch at `pos`: its own bytes, if they are not compressed.

    Raises UnpackedTooLarge if that is more than `limit`, CorruptRecord where they cannot be decompressed.
    """
    end = pos + header.size
    if end > len(buf):
        raise CorruptRecord(f"batch at {pos} is cut: {len(buf) - pos} of {header.size} bytes")
    return decompress(header.compression, memoryview(buf)[pos + HEADER_BYTES : end], limit=limit)


def sights(body: Buffer, header: BatchHeader) -> Iterator[list[Sight]]:
    """Yields offset, timestamp and whether there is a key of each record in an `unpacked` body, some hundred at a time.

    Raises InvalidRecord where the content is not what the header announces. Copies nothing.
    """
    found = scan_records(
        body, count=header.record_count, base_offset=header.base_offset, base_timestamp=header.base_timestamp
    )
    for seen in found:
        if header.timestamp_type:
            yield [(offset, header.max_timestamp, keyed) for offset, _, keyed in seen]
        else:
            yield seen


def decode_records(buf: Buffer, pos: int = 0, *, limit: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """Returns the records of the batch at `pos`, control batches included. Does not check the CRC.

    `limit` bounds the decompressed size. Raises InvalidRecord where the content is not what the header announces,
    CorruptRecord where it cannot be decompressed.
    """
    header = read_header(buf, pos)
    rows = read_records(
        unpacked(buf, pos, header, limit=limit),
        count=header.record_count,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
    )
    new = tuple.__new__  # Record's own constructor takes its arguments apart and packs them again
    records = [new(Record, row) for row in rows]
    if header.timestamp_type:
        return [record._replace(timestamp=header.max_timestamp) for record in records]
    return records


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = -1,
    keep_offsets: bool = False,
    last_offset: int | None = None,
    log_append_time: int | None = None,
) -> bytearray:
    """Returns one batch of at least one record.

    Records are numbered from `base_offset` in their order. With `keep_offsets` each keeps its own offset (rising, with
    holes), as in a compacted log, and `last_offset` may lie behind the last of them.
    """
    rows = list(records)
    if not rows:
        raise ValueError("a batch needs at least one record")
    body = write_records(rows, base_offset if keep_offsets else None)
    delta = rows[-1].offset - base_offset if keep_offsets else len(rows) - 1
    attributes = int(compression)
    attributes |= TRANSACTIONAL_FLAG if is_transactional else 0
    attributes |= CONTROL_FLAG if is_control else 0
    attributes |= LOG_APPEND_TIME_FLAG if log_append_time is not None else 0
    batch = bytearray(HEADER_BYTES)
    batch += compress(compression, body, level)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_PREFIX_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        delta if last_offset is None else last_offset - base_offset,
        rows[0].timestamp,
        max(row.timestamp for row in rows) if log_append_time is None else log_append_time,
        producer_id,
        producer_epoch,
        base_sequence,
        len(rows),
    )
    _set_crc(batch, 0, len(batch))
    return batch


_CONTROL_KEY: Final = struct.Struct(">hh")  # version, type
_CONTROL_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch


class EndTxnMarker(NamedTuple):
    """A control record that ends a transaction."""

    committed: bool
    coordinator_epoch: int


def encode_end_txn_marker(
    *,
    committed: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Returns the control batch that a partition gets when a transaction commits or aborts."""
    key = _CONTROL_KEY.pack(0, int(committed))
    value = _CONTROL_VALUE.pack(0, coordinator_epoch)
    return encode_batch(
        [Record(timestamp=timestamp, key=key, value=value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )


def read_end_txn_marker(record: Record) -> EndTxnMarker | None:
    """Returns the marker in a record of a control batch; None for control records of other types.

    Raises InvalidRecord for a key or value that cannot be read; newer versions may have more bytes.
    """
    try:
        _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        if kind not in (0, 1):
            return None
        _, epoch = _CONTROL_VALUE.unpack_from(record.value or b"")
    except struct.error as error:
        raise InvalidRecord(f"control record at offset {record.offset}: {error}") from None
    return EndTxnMarker(bool(kind), epoch)
