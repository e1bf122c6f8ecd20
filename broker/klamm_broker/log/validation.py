"""Checks that a record set may enter the log: first the cheapest checks of batch headers; no I/O, no clock.

Batches are passed on unchanged: their records are looked at only where a rule needs them (keys of compacted
topics, a lower bound on timestamps, another codec than the producer's). `docs/differences.md` lists the checks that
Kafka does for every record and that are left out here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm_broker.log import record_rules
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import (
    CorruptMessage,
    InvalidRecordBatch,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnsupportedMessageFormat,
)
from klamm_broker.log.record_rules import SMALL_BYTES, Rules
from klamm_broker.log.steps import Steps
from klamm_kafka.wire.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    read_header,
    recompressed,
)
from klamm_kafka.wire.compression import DECOMPRESSED_BYTES_MAX, Compression
from klamm_kafka.wire.errors import CorruptRecord, UnpackedTooLarge

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


class Prepared(NamedTuple):
    """A record set that may be appended: checked by the rules of `config`, and in its codec.

    `data` is the caller's buffer unless it got another codec; `received` is the size of what came. `stopped`: others were served in between.
    `looked_inside`: that took some time.
    """

    data: Buffer
    batches: list[Batch]
    config: LogConfig
    received: int
    stopped: bool
    looked_inside: bool


def preparing(
    received: Buffer, config: LogConfig, *, now_ms: int, from_client: bool, where: str
) -> Steps[Prepared]:
    """Checks a record set, and gives it the topic's codec. Raises a LogError if not all of it may be appended.

    Cheap work has no steps. The buffer must stay as it is until the last one. Jobs unpack or pack much: codecs release the interpreter.
    """
    data, stopped, looked_inside = received, False, False
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
        rules = _rules(header, config, now_ms, from_client=from_client, where=where)
        if rules is not None:
            done, body = (False, None) if looked_inside else record_rules.check(data, position, header, rules)
            if not done:
                stopped = True
                yield None
                yield from record_rules.checking(data, position, header, rules, body)
            looked_inside = True
        batches.append((position, header))
        position += header.length + 12
    if not batches:
        raise InvalidRecordBatch(f"{where}: an empty record set")
    if needs_recompression(batches, config):
        looked_inside = True
        if _is_much(batches, config, end):
            stopped = True
            data, batches = yield from _recompressing(data, batches, config, where)
        else:
            data, batches = recompress(data, batches, config, where)
    return Prepared(data, batches, config, end, stopped, looked_inside)


def _rules(
    header: BatchHeader, config: LogConfig, now_ms: int, *, from_client: bool, where: str
) -> Rules | None:
    """Returns the rules for which the records must be looked at; None, as nearly always, if there are none."""
    latest: int | None = None
    if not config.log_append_time:
        limit = now_ms + config.message_timestamp_after_max_ms
        if header.max_timestamp > limit or header.base_timestamp > limit:
            latest = limit
    if latest is None and not (
        from_client and (config.compact or config.message_timestamp_before_max_ms != _UNBOUNDED)
    ):
        return None
    return Rules(config, now_ms, latest, where)


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
        raise _too_large(str(size), config, where)


def _too_large(size: str, config: LogConfig, where: str) -> RecordTooLarge:
    return RecordTooLarge(
        f"{where}: a batch of {size} bytes exceeds max.message.bytes={config.max_message_bytes}"
    )


def codec_of(config: LogConfig) -> Compression | None:
    """Returns the topic's own codec; None where batches keep their producer's."""
    return _CODECS.get(config.compression_type)


def needs_recompression(batches: list[Batch], config: LogConfig) -> bool:
    """Decides whether the topic wants another codec than a batch has."""
    codec = codec_of(config)
    return codec is not None and any(h.attributes & COMPRESSION_MASK != codec for _, h in batches)


def _is_much(batches: list[Batch], config: LogConfig, size: int) -> bool:
    """Decides whether it could take long to recompress these batches: gzip takes 45 ms for 1 MiB, and 6 KB of a compressed batch can be 60 MB."""
    unpacked = {Compression.NONE, codec_of(config)}
    return size > SMALL_BYTES or any(h.attributes & COMPRESSION_MASK not in unpacked for _, h in batches)


def _recompressing(
    data: Buffer, batches: list[Batch], config: LogConfig, where: str
) -> Steps[tuple[Buffer, list[Batch]]]:
    done: list[tuple[Buffer, list[Batch]]] = []
    yield lambda: done.append(recompress(data, batches, config, where))
    return done.pop()


def recompress(
    data: Buffer, batches: list[Batch], config: LogConfig, where: str
) -> tuple[bytearray, list[Batch]]:
    """Returns the same batches in the topic's codec at the topic's level. Raises a LogError."""
    codec = _CODECS[config.compression_type]
    limit = DECOMPRESSED_BYTES_MAX
    if codec is Compression.NONE:  # to copy what is refused would hold everybody up
        limit = min(limit, config.max_message_bytes)
    result = bytearray()
    rewritten: list[Batch] = []
    for position, header in batches:
        start = len(result)
        if header.attributes & CONTROL_FLAG or header.attributes & COMPRESSION_MASK == codec:
            result += data[position : position + header.size]
        else:
            try:
                batch = recompressed(
                    data, position, header, codec, config.compression_level(codec), limit=limit
                )
            except CorruptRecord as e:
                if isinstance(e, UnpackedTooLarge) and codec is Compression.NONE:
                    raise _too_large(f"more than {limit}", config, f"{where}: in none") from e
                raise CorruptMessage(f"{where}: {e}") from e
            _check_size(len(batch), config, f"{where}: in {codec.name.lower()}")
            result += batch
        rewritten.append((start, read_header(result, start)))
    return result, rewritten


__all__ = [
    "HEADER_BYTES",
    "Batch",
    "Buffer",
    "Prepared",
    "needs_recompression",
    "preparing",
    "recompress",
]
