"""Cuts a growing stream of bytes into complete lines, with exact positions.

A line ends with LF, CRLF or CR, as for Java's readers. A line is complete when its end is certain: a CR
that is the last byte so far may be half of a CRLF, so it waits for the next byte. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, overload

_LINE: Final = re.compile(rb"([^\r\n]*)(?:\r\n|\n|\r)")


class AsciiEnds(Sequence[int]):
    """The positions after lines of ASCII text that end with LF. Computed on demand: usually only the last is needed."""

    __slots__ = ("_start", "_texts")

    def __init__(self, texts: list[str], start: int) -> None:
        self._texts = texts
        self._start = start

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[int]:
        end = self._start
        for text in self._texts:
            end += len(text) + 1
            yield end

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            first, end, step = index.indices(len(self._texts))
            if step != 1:
                return list(self)[index]
            return AsciiEnds(self._texts[first:end], self._before(first))
        count = len(self._texts)
        if not -count <= index < count:
            raise IndexError(index)
        return self._before(index % count + 1)

    def _before(self, count: int) -> int:
        """Returns the position after the first `count` lines."""
        return self._start + sum(map(len, self._texts[:count])) + count


@dataclass(frozen=True, slots=True)
class Lines:
    """Texts of lines and, for each, the position after its line end."""

    texts: list[str]
    ends: Sequence[int]

    def pairs(self) -> list[tuple[str, int]]:
        return list(zip(self.texts, self.ends, strict=True))


NONE: Final = Lines([], [])


class LineSplitter:
    """Turns chunks into lines and the positions after their ends.

    `position` is where the next chunk must begin; `pending` is the number of bytes of the unfinished line. Text
    is UTF-8; invalid bytes become U+FFFD.
    """

    __slots__ = ("_tail", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self._tail = bytearray()

    @property
    def pending(self) -> int:
        return len(self._tail)

    def feed(self, chunk: bytes) -> Lines:
        """Takes the next bytes and returns the lines that are now complete."""
        if not chunk:
            return NONE
        start = self.position - len(self._tail)
        self.position += len(chunk)
        end = _end_of_lines(chunk)
        if end == 0 and not self._tail.endswith(b"\r"):
            self._tail += chunk
            return NONE
        complete = bytes(self._tail) + chunk[:end]
        self._tail = bytearray(chunk[end:])
        if complete.endswith(b"\r") and not self._tail:
            # Hold the CR back with its line, which `_split` would otherwise end here.
            keep = _end_of_lines(complete[:-1])
            self._tail = bytearray(complete[keep:])
            complete = complete[:keep]
        return _split(complete, start)

    def finish(self) -> str | None:
        """Returns the text of the unfinished line when nothing will follow; None when there is none."""
        if not self._tail:
            return None
        text = self._tail.removesuffix(b"\r").decode("utf-8", "replace")
        self._tail.clear()
        return text


def _end_of_lines(data: bytes) -> int:
    """Returns the index after the last line end in `data`; 0 when there is none."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1


def _split(data: bytes, position: int) -> Lines:
    """Splits `data`, which ends with a line end and begins at `position`."""
    if b"\r" not in data and data.isascii():
        # ASCII: one decode serves all lines, since every character is one byte.
        texts = data.decode("ascii").split("\n")
        texts.pop()
        return Lines(texts, AsciiEnds(texts, position))
    texts, ends = [], []
    if b"\r" in data:
        for m in _LINE.finditer(data):
            texts.append(m[1].decode("utf-8", "replace"))
            ends.append(position + m.end())
        return Lines(texts, ends)
    for line in data.split(b"\n")[:-1]:
        position += len(line) + 1
        texts.append(line.decode("utf-8", "replace"))
        ends.append(position)
    return Lines(texts, ends)
