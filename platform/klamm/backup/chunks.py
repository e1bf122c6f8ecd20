"""Chunks as files: batches as they are, compressed where they were not, encrypted if the folder is. Pure.

The checksum is that of the file, so that a copy of the folder can be checked with `sha256sum` and without a key.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

from klamm.backup.errors import DamagedError
from klamm.backup.keys import FolderKey
from klamm.backup.model import Chunk
from klamm_kafka.wire.batch import BatchHeader, check_crc, iter_headers, read_header
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.errors import ProtocolError
from klamm_kafka.wire.varint import Buffer

CODECS: Final = ("zstd", "lz4", "none")
LEVELS: Final = {"zstd": (1, -3), "lz4": (1,)}
"""The levels to choose from, by a sample of the chunk. Level 1 of zstd makes JSON a third smaller than level -3 does; where it gains
nothing (bytes by chance, or short repetitions), it takes twice as long. Higher levels take two or three times as long, to no smaller result.
"""
SAMPLES: Final = 3
SAMPLE_BYTES: Final = 64 << 10
WORTH: Final = 0.97
"""A level must come to this part of what is there without it."""
_scratch: Final = threading.local()


def pack(
    pieces: Sequence[Buffer], *, file: str, codec: str, key: FolderKey | None
) -> tuple[list[Buffer], dict[str, Any]]:
    """Return the file's content, and what its `Chunk` says of it."""
    raw_bytes = sum(map(len, pieces))
    content: list[Buffer] = list(pieces)
    used = codec if codec != "none" and _worth_packing(pieces) else ""
    if used:
        packed = _packed(used, pieces, raw_bytes)
        if packed is not None:
            content = [packed]
        else:
            used = ""
    if key is not None:
        content = [key.encrypt(b"".join(content), file.encode())]
    digest = hashlib.sha256()
    for piece in content:
        digest.update(piece)
    return content, {
        "file": file, "sha256": digest.hexdigest(), "size": sum(map(len, content)),
        "raw_bytes": raw_bytes, "codec": used, "encrypted": key is not None,
    }  # fmt: skip


def _packed(codec: str, pieces: Sequence[Buffer], size: int) -> Buffer | None:
    """Return the pieces compressed, in memory that this thread's next chunk takes; None where that makes them no smaller.

    Fresh memory of some megabytes costs a page fault for each 4 KiB, several times over for each chunk.
    """
    joined = _memory("joined", size)
    at = 0
    for piece in pieces:
        joined[at : at + len(piece)] = piece
        at += len(piece)
    level = _level(codec, joined)
    if level is None:
        return None
    out = _memory("packed", size)
    try:
        end = _codec(codec).compress_into(joined, out, level=level)
    except RuntimeError:  # cramjam's CompressionError: it does not fit, so it would not be smaller
        return None
    return out[:end] if end < size else None


def _memory(name: str, size: int) -> memoryview:
    held = getattr(_scratch, name, b"")
    if len(held) < size:
        held = bytearray(size)
        setattr(_scratch, name, held)
    return memoryview(held)[:size]


def _level(codec: str, data: memoryview) -> int | None:
    """Return the level that is worth its time; None where none is."""
    step = max((len(data) - SAMPLE_BYTES) // (SAMPLES - 1), 1)
    sample = b"".join(data[i * step : i * step + SAMPLE_BYTES] for i in range(SAMPLES))
    best, smallest = None, float(len(sample))
    for level in reversed(LEVELS[codec]):  # the fastest one first
        size = len(_codec(codec).compress(sample, level=level))
        if size < smallest * WORTH:
            best, smallest = level, size
    return best


def unpack(chunk: Chunk, data: Buffer, key: FolderKey | None) -> Buffer:
    """Return the batches in a file. Raises DamagedError for a file that is not what was written."""
    if len(data) != chunk.size:
        raise DamagedError(f"{len(data)} bytes instead of {chunk.size}")
    actual = hashlib.sha256(data).hexdigest()
    if actual != chunk.sha256:
        raise DamagedError(
            f"its SHA-256 is {actual}, the manifest says {chunk.sha256}{_first_bad(chunk, data)}"
        )
    return _opened(chunk, data, key)


def _opened(chunk: Chunk, data: Buffer, key: FolderKey | None) -> Buffer:
    try:
        if chunk.encrypted:
            if key is None:
                raise DamagedError("it is encrypted, but the folder has no key")
            data = key.decrypt(data, chunk.file.encode())
        if chunk.codec:
            out = bytearray(chunk.raw_bytes)
            size = _codec(chunk.codec).decompress_into(data, out)
            data = memoryview(out)[:size]
    except (ValueError, RuntimeError) as e:  # cramjam's DecompressionError is no ValueError
        raise DamagedError(str(e)) from None
    if len(data) != chunk.raw_bytes:
        raise DamagedError(f"it holds {len(data)} bytes of batches instead of {chunk.raw_bytes}")
    return data


def batches(chunk: Chunk, data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches of unpacked data as (position, header), all checked. Raises DamagedError naming the first bad one."""
    at = chunk.first
    records = 0
    try:
        for pos, header in iter_headers(data):
            check_crc(data, pos, header)
            if header.base_offset < at or header.next_offset > chunk.end:
                raise DamagedError(
                    f"a batch of offsets {header.base_offset} to {header.last_offset} at byte {pos}, where {at} to "
                    f"{chunk.end - 1} are due"
                )
            at = header.next_offset
            records += header.record_count
            yield pos, header
    except ProtocolError as e:
        raise DamagedError(f"behind offset {at}: {e}") from None
    if records != chunk.records:
        raise DamagedError(f"{records} records instead of {chunk.records}")


def _first_bad(chunk: Chunk, data: Buffer) -> str:
    """Return where the first batch is that cannot be right, as far as that shows without a key or a codec."""
    if chunk.encrypted or chunk.codec:
        return ""
    try:
        for _ in batches(chunk, data):
            pass
    except DamagedError as e:
        return f"; {e}"
    return ""


def _worth_packing(pieces: Sequence[Buffer]) -> bool:
    """Return whether most bytes are of batches that are not compressed."""
    plain = sum(len(p) for p in pieces if read_header(p).compression is Compression.NONE)
    return plain * 2 > sum(map(len, pieces))


def _codec(name: str) -> Any:
    import cramjam

    return getattr(cramjam, name)
