"""Finds places in UTF-8 bytes where no character is cut. Pure."""

from __future__ import annotations


def character_end(data: bytes, start: int, limit: int) -> int:
    """Returns how many bytes from `start`, at most `limit`, can be taken without cutting a UTF-8 character."""
    cut = limit
    while cut > max(1, limit - 4) and start + cut < len(data) and data[start + cut] & 0xC0 == 0x80:
        cut -= 1
    return cut
