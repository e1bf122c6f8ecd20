"""Kafka's `.snapshot` files: a partition's producer state as of the offset in the file's name.

Version 1: int16 version, uint32 CRC-32C of the rest, int32 count, then one fixed entry per producer with
its last batch only. A snapshot with a wrong checksum is removed, the next older one is used, and the log after
it is replayed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import Final

import google_crc32c

from klamm_base.files import write_atomically
from klamm_broker.log.errors import CorruptFile
from klamm_broker.log.files import SNAPSHOT, offset_name, parse_offset_name, read_small
from klamm_broker.log.producer_state import BatchMetadata, ProducerEntry

VERSION: Final = 1
_HEADER: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")


def snapshot_path(directory: Path, offset: int) -> Path:
    return directory / offset_name(offset, SNAPSHOT)


def encode(entries: Iterable[ProducerEntry]) -> bytes:
    """Returns the content of a snapshot file."""
    rows = [_ENTRY.pack(*_row(entry)) for entry in entries]
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEADER.pack(VERSION, google_crc32c.value(body)) + body


def _row(entry: ProducerEntry) -> tuple[int, ...]:
    last = entry.batches[-1] if entry.batches else BatchMetadata(-1, -1, 0, -1)
    first_offset = entry.current_txn_first_offset
    return (
        entry.producer_id, entry.epoch, last.last_sequence, last.last_offset, last.offset_delta,
        entry.last_timestamp, entry.coordinator_epoch, -1 if first_offset is None else first_offset,
    )  # fmt: skip


def decode(data: bytes, path: Path) -> list[ProducerEntry]:
    """Returns the producers of a snapshot file. Raises CorruptFile."""
    try:
        version, crc = _HEADER.unpack_from(data)
        (count,) = _COUNT.unpack_from(data, _HEADER.size)
    except struct.error as e:
        raise CorruptFile(f"{path}: {len(data)} bytes is too short for a snapshot") from e
    if version != VERSION:
        raise CorruptFile(f"{path}: snapshot version {version}, only {VERSION} is known")
    body = data[_HEADER.size :]
    if google_crc32c.value(body) != crc:
        raise CorruptFile(f"{path}: the checksum does not match the content")
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptFile(f"{path}: {count} producers do not fit {len(data)} bytes")
    return [_entry(row) for row in _ENTRY.iter_unpack(body[_COUNT.size :])]


def _entry(row: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, txn_first = (
        row
    )
    batches = [BatchMetadata(last_sequence, last_offset, offset_delta, timestamp)] if last_offset >= 0 else []
    return ProducerEntry(
        producer_id,
        epoch,
        batches,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=timestamp,
        current_txn_first_offset=None if txn_first < 0 else txn_first,
    )


def write(directory: Path, offset: int, entries: Iterable[ProducerEntry]) -> None:
    """Write the snapshot of the state before `offset`. A power loss may damage it; its checksum shows that."""
    write_atomically(snapshot_path(directory, offset), encode(entries), sync=False)


def read(directory: Path, offset: int) -> list[ProducerEntry]:
    path = snapshot_path(directory, offset)
    return decode(read_small(path), path)


def offsets(names: Iterable[str]) -> list[int]:
    """Returns the offsets of the snapshots among these file names, ascending."""
    parsed = (parse_offset_name(name) for name in names if name.endswith(SNAPSHOT))
    return sorted(p[0] for p in parsed if p is not None)
