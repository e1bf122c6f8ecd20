"""Lines for a `.log` file: one per batch, and one per record if asked for."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from klamm.logdump.batches import Batch, LogFile
from klamm.logdump.decoders import Decoder
from klamm.logdump.errors import DumpError
from klamm_kafka.wire.batch import Record, read_end_txn_marker
from klamm_kafka.wire.errors import ProtocolError

TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
_SEQUENCES: Final = 1 << 31
_CONTROL_TYPES: Final = {
    0: "ABORT", 1: "COMMIT", 2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION", 6: "KRAFT_VOTERS",
}  # fmt: skip
_CHECKPOINT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
WHOLE: Final = 2**31 - 1  # bytes: what --max-bytes is when it is not given
Gap = Callable[[int, int], None]
"""Called for each gap between offsets, with the offset before and the offset after it."""


def dump_log(
    path: Path, *, deep: bool, decoder: Decoder | None, skip_metadata: bool, max_bytes: int, gap: Gap
) -> Iterator[str]:
    """Yield lines without their ends. `decoder` prints keys and values; None leaves them out. Raises DumpError."""
    yield _title(path)
    with LogFile(path) as log:
        end = min(log.size, max_bytes)
        valid, last = 0, -1
        for batch in log.batches(end=end):
            yield batch_line(batch)
            if deep:
                for record in batch.records():
                    if record.offset != last + 1:
                        gap(last, record.offset)
                    last = record.offset
                    yield _record_line(batch, record, decoder, skip_metadata=skip_metadata)
            valid += batch.header.size
        if end > valid and max_bytes == WHOLE:
            yield f"Found {end - valid} invalid bytes at the end of {path.name}"


def _title(path: Path) -> str:
    if path.suffix == ".log":
        return f"Log starting offset: {base_offset(path)}"
    if path.name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot"
    found = _CHECKPOINT.fullmatch(path.name)
    if found is None:
        raise DumpError(f"{path}: a snapshot of the cluster's metadata is called OFFSET-EPOCH.checkpoint")
    return f"Snapshot end offset: {int(found[1])}, epoch: {int(found[2])}"


def base_offset(path: Path) -> int:
    """Return the offset in a file's name. Raises DumpError."""
    digits = path.name.split(".")[0]
    if not digits.isdecimal():
        raise DumpError(
            f"{path}: the name does not begin with an offset, as 00000000000000000042{path.suffix}"
        )
    return int(digits)


def batch_line(batch: Batch) -> str:
    h = batch.header
    horizon = f"OptionalLong[{h.base_timestamp}]" if h.has_delete_horizon else "OptionalLong.empty"
    try:
        codec = h.compression.name.lower()
    except ProtocolError as e:
        raise DumpError(f"{batch.file.path}: {e}") from None
    return (
        f"baseOffset: {h.base_offset} lastOffset: {h.last_offset} count: {h.record_count} baseSequence: {h.base_sequence}"
        f" lastSequence: {h.last_sequence} producerId: {h.producer_id} producerEpoch: {h.producer_epoch}"
        f" partitionLeaderEpoch: {h.leader_epoch} isTransactional: {_bool(h.is_transactional)}"
        f" isControl: {_bool(h.is_control)} deleteHorizonMs: {horizon} position: {batch.position}"
        f" {TIMESTAMP_TYPES[h.timestamp_type]}: {h.max_timestamp} size: {h.size} magic: {h.magic}"
        f" compresscodec: {codec} crc: {h.crc} isvalid: {_bool(batch.checksum_holds())}"
    )


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _record_line(batch: Batch, record: Record, decoder: Decoder | None, *, skip_metadata: bool) -> str:
    control = batch.header.is_control
    line = "" if skip_metadata else _metadata(batch, record) + (_control(record) if control else "")
    if decoder is None or control:
        return line
    key, value = decoder(record)
    prefix = "| " if skip_metadata else " "
    if key is not None:
        line += f"{prefix}key: {key}"
        prefix = " "
    return line if value is None else line + f"{prefix}payload: {value}"


def _metadata(batch: Batch, record: Record) -> str:
    h = batch.header
    sequence = -1 if h.base_sequence < 0 else (h.base_sequence + record.offset - h.base_offset) % _SEQUENCES
    names = ",".join(
        name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name, _ in record.headers
    )
    return (
        f"| offset: {record.offset} {TIMESTAMP_TYPES[h.timestamp_type]}: {record.timestamp}"
        f" keySize: {-1 if record.key is None else len(record.key)}"
        f" valueSize: {-1 if record.value is None else len(record.value)} sequence: {sequence} headerKeys: [{names}]"
    )


def _control(record: Record) -> str:
    try:
        marker = read_end_txn_marker(record)
        if marker is not None:
            kind = "COMMIT" if marker.committed else "ABORT"
            return f" endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}"
        _, number = struct.unpack_from(">hh", record.key or b"")
    except (ProtocolError, struct.error) as e:
        raise DumpError(f"the control record at offset {record.offset} cannot be read: {e}") from None
    return f" controlType: {_CONTROL_TYPES.get(number, 'UNKNOWN')}({number})"
