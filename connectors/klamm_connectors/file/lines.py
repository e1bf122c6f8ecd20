"""Cuts a growing stream of bytes into complete lines, with exact positions.

A line ends with LF, CRLF or CR, as for Java's readers. A line counts once its end is there and certain: a CR at
the end of what is known so far may be half of a CRLF, so it waits for the next byte. No I/O.
"""

from __future__ import annotations

import re
from typing import Final

_LINE: Final = re.compile(rb"([^\r\n]*)(?:\r\n|\n|\r)")


class LineSplitter:
    """Takes chunks, gives lines as (text, position after the line's end).

    `position` is where the next chunk must come from; `pending` how many bytes of an unfinished line are held.
    Text is UTF-8; what is not becomes U+FFFD.
    """

    __slots__ = ("_tail", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self._tail = bytearray()

    @property
    def pending(self) -> int:
        return len(self._tail)

    def feed(self, chunk: bytes) -> list[tuple[str, int]]:
        """Take the next bytes and give the lines that are complete now."""
        if not chunk:
            return []
        start = self.position - len(self._tail)
        self.position += len(chunk)
        end = _end_of_lines(chunk)
        if end == 0 and not self._tail.endswith(b"\r"):
            self._tail += chunk
            return []
        complete = bytes(self._tail) + chunk[:end]
        self._tail = bytearray(chunk[end:])
        if complete.endswith(b"\r") and not self._tail:
            # Kept back with its line, which `_split` would otherwise end here.
            keep = _end_of_lines(complete[:-1])
            self._tail = bytearray(complete[keep:])
            complete = complete[:keep]
        return _split(complete, start)

    def finish(self) -> str | None:
        """Nothing will follow: the text of the unfinished line, None when there is none."""
        if not self._tail:
            return None
        text = self._tail.removesuffix(b"\r").decode("utf-8", "replace")
        self._tail.clear()
        return text


def _end_of_lines(data: bytes) -> int:
    """The index after the last line end in `data`, 0 when there is none."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1


def _split(data: bytes, position: int) -> list[tuple[str, int]]:
    """Lines of `data`, which ends with a line end and begins at `position`."""
    if b"\r" in data:
        return [(m[1].decode("utf-8", "replace"), position + m.end()) for m in _LINE.finditer(data)]
    lines: list[tuple[str, int]] = []
    if data.isascii():
        # One decode for all: every character is a byte.
        for text in data.decode("ascii").split("\n")[:-1]:
            position += len(text) + 1
            lines.append((text, position))
        return lines
    for line in data.split(b"\n")[:-1]:
        position += len(line) + 1
        lines.append((line.decode("utf-8", "replace"), position))
    return lines
