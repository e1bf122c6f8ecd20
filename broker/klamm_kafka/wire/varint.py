"""Variable-length integers: seven bits a byte, low bits first; the top bit says that more follow.

Unsigned varints carry lengths and tags (five bytes at most), zigzag varints the fields of records (five bytes for
an int, ten for a long). The loops of the hot paths inline the one-byte case and call these functions for the rest.
"""

from __future__ import annotations

from typing import Final

UVARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10
TAGS_MAX: Final = 16
"""The most tagged fields in one place: no message of Kafka's has half as many."""

Buffer = bytes | bytearray | memoryview

UVARINT_SMALL: Final = tuple(bytes((n,)) for n in range(128))
"""The one-byte encodings, so that a short length costs an index and no call."""


class VarintTooLong(ValueError):
    """More bytes than the widest integer of its kind needs."""


def encode_uvarint(value: int) -> bytes:
    """Returns the unsigned varint of 0 <= value < 2**64."""
    if 0 <= value < 128:
        return UVARINT_SMALL[value]
    if value < 0:
        raise ValueError(f"an unsigned varint cannot hold {value}")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buf: Buffer, pos: int, bytes_max: int = UVARINT_BYTES_MAX) -> tuple[int, int]:
    """Returns (value, end). Raises IndexError where the bytes end, VarintTooLong after `bytes_max` bytes."""
    byte = buf[pos]
    if byte < 128:
        return byte, pos + 1
    value = byte & 127
    for shift in range(7, 7 * bytes_max, 7):
        pos += 1
        byte = buf[pos]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos + 1
    raise VarintTooLong(f"varint of more than {bytes_max} bytes")


def encode_varint(value: int) -> bytes:
    """Returns the zigzag varint of a signed integer (int or long: the bytes are the same)."""
    return encode_uvarint((value << 1) ^ (value >> 63))


def decode_varint(buf: Buffer, pos: int, bytes_max: int = VARLONG_BYTES_MAX) -> tuple[int, int]:
    """Returns (value, end) of a zigzag varint; errors as `decode_uvarint`."""
    value, end = decode_uvarint(buf, pos, bytes_max)
    return (value >> 1) ^ -(value & 1), end


def size_of_uvarint(value: int) -> int:
    """Returns the number of bytes that `encode_uvarint` writes."""
    return max(1, (value.bit_length() + 6) // 7)


def size_of_varint(value: int) -> int:
    """Returns the number of bytes that `encode_varint` writes."""
    return size_of_uvarint((value << 1) ^ (value >> 63))
