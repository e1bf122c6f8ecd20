"""CRC32C of any buffer, by google_crc32c.

That package takes only read-only `bytes`, but receive buffers are bytearrays. So slices are copied, in pieces
small enough to stay in the CPU's cache: about a quarter on top of the checksum itself.
"""

from __future__ import annotations

from typing import Final

from google_crc32c import extend, value

from klamm_kafka.wire.varint import Buffer

PIECE_BYTES: Final = (
    64 * 1024
)  # above 128 KiB malloc hands out fresh pages, which cost more than the checksum


def crc32c(view: Buffer) -> int:
    """Returns the checksum of a contiguous buffer of bytes."""
    size = len(view)
    if type(view) is bytes or size <= PIECE_BYTES:
        return int(value(bytes(view)))
    crc = 0
    for start in range(0, size, PIECE_BYTES):
        crc = extend(crc, bytes(view[start : start + PIECE_BYTES]))
    return int(crc)
