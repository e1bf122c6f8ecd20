"""Blocks of whole lines as lists of lines; C functions do all the work per line. Pure.

Lines are given without their end (LF or CRLF).
"""

from __future__ import annotations

from itertools import accumulate

from klamm_agent.framing.text import character_end


def split(data: bytes, start: int, max_line: int, *, places: bool) -> tuple[list[bytes], list[int], int]:
    """Splits a block into lines; returns them, their offsets in the file (if `places`), and how many cuts long lines took."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    offsets = list(accumulate(map(len, lines[:-1]), _after, initial=start)) if places else []
    cuts = 0
    if len(data) > max_line and max(map(len, lines), default=0) > max_line:
        lines, offsets, cuts = _shorten(lines, offsets or [0] * len(lines), max_line)
    if b"\r" in data:
        lines = [line.removesuffix(b"\r") for line in lines]
    return lines, offsets, cuts


def _after(offset: int, length: int) -> int:
    return offset + length + 1


def _shorten(lines: list[bytes], offsets: list[int], limit: int) -> tuple[list[bytes], list[int], int]:
    pieces: list[bytes] = []
    places: list[int] = []
    for line, offset in zip(lines, offsets, strict=True):
        at = 0
        while len(line) - at > limit:
            cut = character_end(line, at, limit)
            pieces.append(line[at : at + cut])
            places.append(offset + at)
            at += cut
        pieces.append(line[at:])
        places.append(offset + at)
    return pieces, places, len(pieces) - len(lines)
