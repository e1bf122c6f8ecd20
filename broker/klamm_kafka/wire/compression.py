"""Kafka's four codecs over cramjam and zlib, with a limit on the decompressed size.

Much data is decompressed into memory that the system gives zeroed, piece by piece: codecs release the interpreter's lock, but to
clear or to copy 100 MB would hold it for 100 ms. Snappy travels in xerial framing (blocks of 32 KiB behind a magic), but bare blocks are read as well. LZ4 frames
have independent blocks, because Java refuses linked ones. cramjam is imported when it is first needed.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from klamm_kafka.wire.errors import CorruptRecord, UnpackedTooLarge
from klamm_kafka.wire.varint import Buffer, VarintTooLong, decode_uvarint

DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024  # the default limit of a batch's decompressed size
_LARGE_BYTES: Final = 1024 * 1024
"""Data from this size on goes into memory of its own."""
_PIECE_BYTES: Final = 16 * 1024
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

    Raises CorruptRecord for bytes that the codec cannot read, UnpackedTooLarge for those that are more than `limit` when
    decompressed. Never allocates much more than `limit`.
    """
    if kind is Compression.NONE:
        return data
    return _DECOMPRESS[kind](data, limit)


def give_back(data: Buffer) -> None:
    """Frees what `decompress` returned, if it has memory of its own. Nobody may use the data any more."""
    if isinstance(data, memoryview) and isinstance(memory := data.obj, mmap.mmap):
        data.release()
        memory.close()


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
    for start in range(0, len(data), _LARGE_BYTES):
        compressor.compress(bytes(data[start : start + _LARGE_BYTES]))
    return bytes(compressor.finish())


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    from cramjam import zstd

    return bytes(zstd.compress(data, level=level))


class _Output:
    """Puts pieces together. `room` is what is left of the limit."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = self.room = limit
        self._parts: list[Buffer] = []
        self._memory: mmap.mmap | None = None

    def add(self, part: Buffer) -> None:
        self.room -= len(part)
        if self.room < 0:
            raise _too_large(self._name, self._limit)
        if self._memory is not None:
            self._memory.write(part)
            return
        self._parts.append(part)
        if self._limit - self.room > _LARGE_BYTES:
            self._memory = mmap.mmap(-1, self._limit)
            for held in self._parts:
                self._memory.write(held)

    def whole(self) -> Buffer:
        if self._memory is None:
            return b"".join(self._parts)
        return memoryview(self._memory)[: self._limit - self.room]


def _decompress_gzip(data: Buffer, limit: int) -> Buffer:
    out, view, pos = _Output("gzip", limit), memoryview(data), 0
    while pos < len(view):  # gzip allows members back to back
        member = zlib.decompressobj(wbits=_GZIP)
        try:
            while not member.eof:
                piece: Buffer = member.unconsumed_tail
                if not piece:
                    piece = view[pos : pos + _PIECE_BYTES]
                    pos += len(piece)
                part = member.decompress(piece, min(out.room + 1, _LARGE_BYTES))
                if not piece and not part:
                    raise CorruptRecord("gzip: the stream is cut")
                out.add(part)
        except zlib.error as error:
            raise CorruptRecord(f"gzip: {error}") from None
        pos -= len(member.unused_data)
    return out.whole()


def _decompress_snappy(data: Buffer, limit: int) -> Buffer:
    raw = bytes(data)
    if not raw.startswith(_XERIAL_HEADER[:8]):
        return _snappy_block(raw, limit, limit)
    if len(raw) < len(_XERIAL_HEADER):
        raise CorruptRecord("snappy: the xerial header is cut")
    out, pos = _Output("snappy", limit), len(_XERIAL_HEADER)
    while pos < len(raw):
        try:
            (size,) = _SIZE.unpack_from(raw, pos)
        except struct.error:
            raise CorruptRecord("snappy: a block's length is cut") from None
        pos += 4
        if not 0 < size <= len(raw) - pos:
            raise CorruptRecord(f"snappy: a block of {size} bytes where {len(raw) - pos} are left")
        out.add(_snappy_block(raw[pos : pos + size], out.room, limit))
        pos += size
    return out.whole()


def _snappy_block(block: bytes, room: int, limit: int) -> Buffer:
    from cramjam import DecompressionError, snappy

    try:
        size, _ = decode_uvarint(block, 0)  # a block begins with its unpacked size
        if size > room:
            raise _too_large("snappy", limit)
        if size <= _LARGE_BYTES:
            return bytes(snappy.decompress_raw(block))
        memory = mmap.mmap(-1, size)
        return memoryview(memory)[: snappy.decompress_raw_into(block, memory)]
    except (DecompressionError, IndexError, VarintTooLong) as error:
        raise CorruptRecord(f"snappy: {error}") from None


def _decompress_lz4(data: Buffer, limit: int) -> Buffer:
    from cramjam import lz4

    return _unpack_growing("lz4", lz4.decompress_into, data, limit)


def _decompress_zstd(data: Buffer, limit: int) -> Buffer:
    from cramjam import zstd

    return _unpack_growing("zstd", zstd.decompress_into, data, limit)


def _unpack_growing(name: str, unpack_into: Callable[[Any, Any], int], data: Buffer, limit: int) -> Buffer:
    """Unpacks into a buffer that grows until the data fits.

    The frame may say its size, but need not, and a hostile one may lie: so we bound the buffer ourselves.
    """
    from cramjam import DecompressionError

    room = min(limit, max(4 * len(data), 64 * 1024))
    while True:
        large = room > _LARGE_BYTES
        out = mmap.mmap(-1, room) if large else bytearray(room)
        try:
            size = unpack_into(data, out)
            return memoryview(out)[:size] if large else bytes(memoryview(out)[:size])
        except DecompressionError as error:
            if "whole buffer" not in str(error):  # cramjam's words for an output that is full
                raise CorruptRecord(f"{name}: {error}") from None
        if room == limit:
            raise _too_large(name, limit)
        room = limit if large else min(limit, room * 4)  # what is not written takes no memory


def _too_large(name: str, limit: int) -> UnpackedTooLarge:
    return UnpackedTooLarge(f"{name}: unpacks to more than {limit} bytes")


_COMPRESS: Final[dict[Compression, Callable[[Buffer, int | None], bytes]]] = {
    Compression.NONE: _compress_none,
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
_DECOMPRESS: Final[dict[Compression, Callable[[Buffer, int], Buffer]]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
