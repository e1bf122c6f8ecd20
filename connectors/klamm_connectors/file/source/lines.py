"""Cuts a growing stream of bytes into complete lines, with exact positions.

A line ends with LF, CRLF or CR, as for Java's readers. A line is complete when its end is certain: a CR
that is the last byte so far may be half of a CRLF, so it waits for the next byte. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, overload

_LINE: Final = re.compile(rb"([^\r\n]*)(?:\r\n|\n|\r)")


class _Positions:
    """The position after each line, from `start` on, for lines that end with LF. Goes on from the one that was asked last."""

    __slots__ = ("_known", "_lines", "_start")

    def __init__(self, lines: list[bytes], start: int) -> None:
        self._lines = lines
        self._start = start
        self._known = 0, start  # a number of lines, and the position after them

    def after(self, line: int) -> int:
        known, position = self._known if self._known[0] <= line else (0, self._start)
        position += sum(map(len, self._lines[known : line + 1])) + line + 1 - known
        self._known = line + 1, position
        return position


class Ends(Sequence[int]):
    """The positions after some lines. Computed on demand: usually only the last is needed."""

    __slots__ = ("_lines", "_positions")

    def __init__(self, positions: _Positions, lines: range) -> None:
        self._positions = positions
        self._lines = lines

    @classmethod
    def of(cls, lines: list[bytes], start: int) -> Ends:
        """Returns the positions after these lines, which begin at `start` and end with LF."""
        return cls(_Positions(lines, start), range(len(lines)))

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Ends: ...
    def __getitem__(self, index: int | slice) -> int | Ends:
        if isinstance(index, slice):
            return Ends(self._positions, self._lines[index])
        return self._positions.after(self._lines[index])


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines as UTF-8 and, for each, the position after its line end."""

    data: list[bytes]
    ends: Sequence[int]

    def pairs(self) -> list[tuple[bytes, int]]:
        return list(zip(self.data, self.ends, strict=True))


NONE: Final = Lines([], [])


class LineSplitter:
    """Turns chunks into lines and the positions after their ends.

    `position` is where the next chunk must begin; `pending` is the number of bytes of the unfinished line. Lines
    are UTF-8: invalid bytes become U+FFFD.
    """

    __slots__ = ("_tail", "_tail_is_plain", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self._tail = bytearray()
        self._tail_is_plain = True

    @property
    def pending(self) -> int:
        return len(self._tail)

    def feed(self, chunk: bytes, seen: int = 0) -> Lines:
        """Takes the next bytes and returns the lines that are now complete. The first `seen` bytes of `chunk` were taken
        before.
        """
        size = len(chunk) - seen
        if not size:
            return NONE
        start = self.position - len(self._tail)
        self.position += size
        is_plain = _is_plain(chunk)
        if is_plain and self._tail_is_plain:
            return self._cut(chunk, seen, start)
        chunk = chunk[seen:]
        end = _end_of_lines(chunk)
        if end == 0 and not self._tail.endswith(b"\r"):
            self._tail += chunk
            self._tail_is_plain = self._tail_is_plain and is_plain
            return NONE
        complete = bytes(self._tail) + chunk[:end]
        self._tail = bytearray(chunk[end:])
        if complete.endswith(b"\r") and not self._tail:
            # Hold the CR back with its line, which `_split` would otherwise end here.
            keep = _end_of_lines(complete[:-1])
            self._tail = bytearray(complete[keep:])
            complete = complete[:keep]
        self._tail_is_plain = _is_plain(self._tail)
        return _split(complete, start)

    def _cut(self, chunk: bytes, seen: int, start: int) -> Lines:
        """Cuts plain text, without a copy of the chunk."""
        if chunk.find(b"\n", seen) < 0:
            self._tail += chunk[seen:]
            return NONE
        lines = chunk.split(b"\n")
        if seen:
            del lines[: chunk.count(b"\n", 0, seen)]
            lines[0] = lines[0][seen - chunk.rfind(b"\n", 0, seen) - 1 :]
        if self._tail:
            lines[0] = bytes(self._tail) + lines[0]
        self._tail = bytearray(lines.pop())
        return Lines(lines, Ends.of(lines, start))

    def finish(self) -> bytes | None:
        """Returns the unfinished line when nothing will follow; None when there is none."""
        if not self._tail:
            return None
        line = _as_text(self._tail.removesuffix(b"\r"))
        self._tail.clear()
        return line


def _is_plain(data: bytes | bytearray) -> bool:
    """Returns True for ASCII without CR."""
    return data.isascii() and b"\r" not in data


def _end_of_lines(data: bytes) -> int:
    """Returns the index after the last line end in `data`; 0 when there is none."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1


def _split(data: bytes, position: int) -> Lines:
    """Splits `data`, which ends with a line end and begins at `position`."""
    if b"\r" in data:
        found = list(_LINE.finditer(data))
        return Lines([_as_text(m[1]) for m in found], [position + m.end() for m in found])
    lines = data.split(b"\n")
    lines.pop()
    ends = Ends.of(lines, position)
    return Lines(lines if _is_text(data) else list(map(_as_text, lines)), ends)


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_text(line: bytes | bytearray) -> bytes:
    return line.decode("utf-8", "replace").encode()
