"""Kafka's four codecs over cramjam and zlib, with a limit on the decompressed size.

Snappy travels in xerial framing (blocks of 32 KiB behind a magic), but bare blocks are read as well. LZ4 frames
have independent blocks, because Java refuses linked ones. cramjam is imported when it is first needed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from klamm_kafka.wire.errors import CorruptRecord
from klamm_kafka.wire.varint import Buffer, VarintTooLong, decode_uvarint

DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024  # the default limit of a batch's decompressed size
_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(
    ">ii", 1, 1
)  # magic, version, oldest compatible version
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_GZIP: Final = 31  # zlib's wbits for a gzip wrapper
_SIZE: Final = struct.Struct(">i")


class Compression(IntEnum):
    """The codecs by their number in a batch's attributes; the lower-case names are those of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(kind: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Returns the data compressed, as in a batch. `level` is the effort; None, or a codec without levels: the codec's own."""
    return _COMPRESS[kind](data, level)


def decompress(kind: Compression, data: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Returns the data decompressed.

    Raises CorruptRecord for bytes that the codec cannot read, or that are more than `limit` when decompressed. Never
    allocates much more than `limit`.
    """
    if kind is Compression.NONE:
        return data
    return _DECOMPRESS[kind](data, limit)


def _compress_none(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    return zlib.compress(data, level=-1 if level is None else level, wbits=_GZIP)


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    from cramjam import snappy

    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    from cramjam import lz4

    compressor = lz4.Compressor(level=level, block_linked=False, content_checksum=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    from cramjam import zstd

    return bytes(zstd.compress(data, level=level))


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    rest = bytes(data)
    parts: list[bytes] = []
    room = limit
    while rest:  # gzip allows members back to back
        member = zlib.decompressobj(wbits=_GZIP)
        try:
            parts.append(member.decompress(rest, room + 1))
        except zlib.error as error:
            raise CorruptRecord(f"gzip: {error}") from None
        room -= len(parts[-1])
        if room < 0:
            raise _too_large("gzip", limit)
        if not member.eof:
            raise CorruptRecord("gzip: the stream is cut")
        rest = member.unused_data
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    raw = bytes(data)
    if not raw.startswith(_XERIAL_HEADER[:8]):
        return _snappy_block(raw, limit, limit)
    if len(raw) < len(_XERIAL_HEADER):
        raise CorruptRecord("snappy: the xerial header is cut")
    parts: list[bytes] = []
    pos, room = len(_XERIAL_HEADER), limit
    while pos < len(raw):
        try:
            (size,) = _SIZE.unpack_from(raw, pos)
        except struct.error:
            raise CorruptRecord("snappy: a block's length is cut") from None
        pos += 4
        if not 0 < size <= len(raw) - pos:
            raise CorruptRecord(f"snappy: a block of {size} bytes where {len(raw) - pos} are left")
        parts.append(_snappy_block(raw[pos : pos + size], room, limit))
        room -= len(parts[-1])
        pos += size
    return b"".join(parts)


def _snappy_block(block: bytes, room: int, limit: int) -> bytes:
    from cramjam import DecompressionError, snappy

    try:
        size, _ = decode_uvarint(block, 0)  # a block begins with its unpacked size
        if size > room:
            raise _too_large("snappy", limit)
        return bytes(snappy.decompress_raw(block))
    except (DecompressionError, IndexError, VarintTooLong) as error:
        raise CorruptRecord(f"snappy: {error}") from None


def _decompress_lz4(data: Buffer, limit: int) -> bytes:
    from cramjam import lz4

    return _unpack_growing("lz4", lz4.decompress_into, data, limit)


def _decompress_zstd(data: Buffer, limit: int) -> bytes:
    from cramjam import zstd

    return _unpack_growing("zstd", zstd.decompress_into, data, limit)


def _unpack_growing(name: str, unpack_into: Callable[[Any, Any], int], data: Buffer, limit: int) -> bytes:
    """Unpacks into a buffer that grows until the data fits.

    The frame may say its size, but need not, and a hostile one may lie: so we bound the buffer ourselves.
    """
    from cramjam import DecompressionError

    room = min(limit, max(4 * len(data), 64 * 1024))
    while True:
        out = bytearray(room)
        try:
            return bytes(memoryview(out)[: unpack_into(data, out)])
        except DecompressionError as error:
            if "whole buffer" not in str(error):  # cramjam's words for an output that is full
                raise CorruptRecord(f"{name}: {error}") from None
        if room == limit:
            raise _too_large(name, limit)
        room = min(limit, room * 4)


def _too_large(name: str, limit: int) -> CorruptRecord:
    return CorruptRecord(f"{name}: unpacks to more than {limit} bytes")


_COMPRESS: Final[dict[Compression, Callable[[Buffer, int | None], bytes]]] = {
    Compression.NONE: _compress_none,
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
_DECOMPRESS: Final[dict[Compression, Callable[[Buffer, int], bytes]]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
