"""Checks that a record set may enter the log: first the cheapest checks of batch headers; no I/O, no clock.

Batches are passed on unchanged: their records are looked at only where a rule needs them (keys of compacted
topics, a lower bound on timestamps, another codec than the producer's). `docs/differences.md` lists the checks that
Kafka does for every record and that are left out here.
"""

from __future__ import annotations

from typing import Final

from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import (
    CorruptMessage,
    InvalidRecordBatch,
    InvalidTimestamp,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnsupportedMessageFormat,
)
from klamm_kafka.wire.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    check_crc,
    decode_records,
    read_header,
    recompressed,
)
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.errors import CorruptRecord, InvalidRecord, UnsupportedCompression

Buffer = bytearray | memoryview
Batch = tuple[int, BatchHeader]

_MAGIC_AT: Final = 16
_UNBOUNDED: Final = 2**63 - 1
RECORD_BYTES_MIN: Final = 7  # length, attributes, two deltas, no key, no value, no headers: a byte each
EXPANSION_MAX: Final[dict[int, int]] = {
    Compression.NONE: 1,
    Compression.GZIP: 1032,  # 258 bytes by a length and a distance of a bit each
    Compression.SNAPPY: 64,  # a copy of 64 bytes takes 3
    Compression.LZ4: 255,  # what a byte adds to a length
    Compression.ZSTD: 43_691,  # a block of 128 KiB has a header of 3 bytes
}
_CODECS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def check_record_set(
    data: Buffer, config: LogConfig, *, now_ms: int, from_client: bool, where: str
) -> list[Batch]:
    """Returns (position, header) of the batches, if all may be appended. Raises a LogError."""
    batches: list[Batch] = []
    position, end = 0, len(data)
    if end > config.segment_bytes:
        raise RecordBatchTooLarge(
            f"{where}: a record set of {end} bytes exceeds segment.bytes={config.segment_bytes}"
        )
    while position < end:
        header = _read(data, position, where)
        _check_header(header, config, from_client=from_client, where=where)
        try:
            check_crc(data, position, header)
        except CorruptRecord as e:
            raise CorruptMessage(f"{where}: {e}") from e
        if not config.log_append_time:
            limit = now_ms + config.message_timestamp_after_max_ms
            if header.max_timestamp > limit or header.base_timestamp > limit:
                _refuse_timestamps(data, position, header, limit, where)
        if from_client and (config.compact or config.message_timestamp_before_max_ms != _UNBOUNDED):
            _check_records(data, position, config, now_ms, where)
        batches.append((position, header))
        position += header.length + 12
    if not batches:
        raise InvalidRecordBatch(f"{where}: an empty record set")
    return batches


def _read(data: Buffer, position: int, where: str) -> BatchHeader:
    if position + _MAGIC_AT < len(data) and data[position + _MAGIC_AT] in (0, 1):
        raise UnsupportedMessageFormat(
            f"{where}: message format {data[position + _MAGIC_AT]}; only format 2 (record batches, which "
            "clients send since 0.11) is supported"
        )
    try:
        return read_header(data, position)
    except CorruptRecord as e:
        raise CorruptMessage(f"{where}: {e}") from e


def _check_header(header: BatchHeader, config: LogConfig, *, from_client: bool, where: str) -> None:
    attributes = header.attributes
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecordBatch(
            f"{where}: inconsistent batch: last offset delta {header.last_offset_delta} with "
            f"{header.record_count} records"
        )
    if attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise InvalidRecordBatch(f"{where}: unknown compression type {attributes & COMPRESSION_MASK}")
    body = header.length + 12 - HEADER_BYTES
    if header.record_count * RECORD_BYTES_MIN > body * EXPANSION_MAX[attributes & COMPRESSION_MASK]:
        raise InvalidRecordBatch(
            f"{where}: {header.record_count} records do not fit into {body} bytes of "
            f"{Compression(attributes & COMPRESSION_MASK).name.lower()} compression: a record has at least "
            f"{RECORD_BYTES_MIN}"
        )
    if not from_client:
        return
    _check_size(header.length + 12, config, where)
    if header.base_offset != 0:
        raise InvalidRecordBatch(f"{where}: base offset {header.base_offset} where 0 is required")
    if attributes & (CONTROL_FLAG | LOG_APPEND_TIME_FLAG):
        what = (
            "write control records" if attributes & CONTROL_FLAG else "set the timestamp type LogAppendTime"
        )
        raise InvalidRecordBatch(f"{where}: clients may not {what}")
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise InvalidRecordBatch(
                f"{where}: producer {header.producer_id} with epoch {header.producer_epoch} and sequence "
                f"number {header.base_sequence}; neither may be negative"
            )
    elif attributes & TRANSACTIONAL_FLAG:
        raise InvalidRecordBatch(f"{where}: a transactional batch without a producer id")


def _check_size(size: int, config: LogConfig, where: str) -> None:
    if size > config.max_message_bytes:
        raise RecordTooLarge(
            f"{where}: a batch of {size} bytes exceeds max.message.bytes={config.max_message_bytes}"
        )


def _refuse_timestamps(data: Buffer, position: int, header: BatchHeader, limit: int, where: str) -> None:
    """Raise the error for a batch with timestamps in the future, by its header, and name its records with such timestamps."""
    error = InvalidTimestamp(
        f"{where}: timestamp {max(header.max_timestamp, header.base_timestamp)} is after {limit}, the broker's clock "
        "and message.timestamp.after.max.ms"
    )
    late = [r for r in _decode(data, position, where) if r.timestamp > limit]
    error.records = tuple((r.offset, f"timestamp {r.timestamp} is after {limit}") for r in late)
    raise error


def _check_records(data: Buffer, position: int, config: LogConfig, now_ms: int, where: str) -> None:
    records = _decode(data, position, where)
    if config.compact:
        keyless = [r.offset for r in records if r.key is None]
        if keyless:
            refused = InvalidRecordBatch(
                f"{where}: compacted topic cannot accept message without key (record {keyless[0]})"
            )
            why = f"{where}: compacted topic cannot accept message without key"
            refused.records = tuple((index, why) for index in keyless)
            raise refused
    if config.log_append_time:
        return
    oldest = now_ms - config.message_timestamp_before_max_ms
    early = [r for r in records if NO_TIMESTAMP < r.timestamp < oldest]
    if early:
        error = InvalidTimestamp(
            f"{where}: timestamp {early[0].timestamp} is behind the broker's clock ({now_ms}) by more than "
            f"message.timestamp.before.max.ms={config.message_timestamp_before_max_ms}"
        )
        error.records = tuple((r.offset, f"timestamp {r.timestamp} is before {oldest}") for r in early)
        raise error


def _decode(data: Buffer, position: int, where: str) -> list[Record]:
    try:
        return decode_records(data, position)
    except CorruptRecord as e:
        raise CorruptMessage(f"{where}: {e}") from e
    except (InvalidRecord, UnsupportedCompression) as e:
        raise InvalidRecordBatch(f"{where}: {e}") from e


def codec_of(config: LogConfig) -> Compression | None:
    """Returns the topic's own codec; None where batches keep their producer's."""
    return _CODECS.get(config.compression_type)


def needs_recompression(batches: list[Batch], config: LogConfig) -> bool:
    """Decides whether the topic wants another codec than a batch has."""
    codec = codec_of(config)
    return codec is not None and any(h.attributes & COMPRESSION_MASK != codec for _, h in batches)


def recompress(
    data: Buffer, batches: list[Batch], config: LogConfig, where: str
) -> tuple[bytearray, list[Batch]]:
    """Returns the same batches in the topic's codec at the topic's level. Raises a LogError."""
    codec = _CODECS[config.compression_type]
    result = bytearray()
    rewritten: list[Batch] = []
    for position, header in batches:
        start = len(result)
        if header.attributes & CONTROL_FLAG or header.attributes & COMPRESSION_MASK == codec:
            result += data[position : position + header.size]
        else:
            try:
                batch = recompressed(data, position, header, codec, config.compression_level(codec))
            except CorruptRecord as e:
                raise CorruptMessage(f"{where}: {e}") from e
            _check_size(len(batch), config, f"{where}: in {codec.name.lower()}")
            result += batch
        rewritten.append((start, read_header(result, start)))
    return result, rewritten


__all__ = [
    "HEADER_BYTES",
    "Batch",
    "Buffer",
    "check_record_set",
    "codec_of",
    "needs_recompression",
    "recompress",
]
