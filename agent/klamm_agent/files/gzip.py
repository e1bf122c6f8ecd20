"""Files packed by gzip: reading forward and by position, and a pass over a whole file before its lines are believed.

Several members in a row are one file, as in gzip. All of this is for one thread.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from klamm_agent.files.tracked import HEAD, TAIL, Inode, Print

MAGIC: Final = b"\x1f\x8b\x08"
_CHUNK: Final = 256 * 1024
_FORMAT: Final = 31  # zlib's number for gzip with the largest window

Read = Callable[[int, int], bytes]  # (count, offset): packed bytes


class Inflater:
    """An unpacker that starts at the first byte. `problem` says why it ended early: `incomplete`, or what is damaged."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._at = 0
        self._input = b""
        self._unpacker = zlib.decompressobj(_FORMAT)
        self._between = False  # members
        self.ended = False
        self.problem = ""

    def take(self, most: int) -> bytes:
        """Returns some of the following bytes, none at the end. Raises OSError."""
        while not self.ended:
            if not self._input:
                self._input = self._read(_CHUNK, self._at)
                self._at += len(self._input)
            found = self._unpack(most)
            if found:
                return found
        return b""

    def _unpack(self, most: int) -> bytes:
        at_end = not self._input
        if self._between:
            self._input = self._input.lstrip(b"\0")  # padding, as of tapes
            if not self._input:
                self.ended = at_end
                return b""
            self._unpacker, self._between = zlib.decompressobj(_FORMAT), False
        before = self._unpacker.copy()
        try:
            found = self._unpacker.decompress(self._input, most)
        except zlib.error as e:
            self.ended, self.problem = True, f"damaged: {e}"
            return _up_to_damage(before, self._input)
        self._input = self._unpacker.unconsumed_tail
        if self._unpacker.eof:
            self._input, self._between = self._unpacker.unused_data, True
        elif at_end and not found:
            self.ended, self.problem = True, "incomplete"
        return found


def _up_to_damage(unpacker: Any, data: bytes) -> bytes:
    """Returns what `data` unpacks to before its first wrong byte. An error of zlib loses everything that its call unpacked."""
    found = bytearray()
    with contextlib.suppress(zlib.error):  # the error comes again; the caller has noted it
        for i in range(len(data)):
            found += unpacker.decompress(data[i : i + 1])
    return bytes(found)


class GzipReader:
    """A `pread` on the unpacked content. Going back before the last read starts again at the first byte."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._inflater = Inflater(read)
        self._start = 0  # of what `_window` holds
        self._window = b""

    def advance(self, start: int, budget: int) -> bool:
        """Unpacks about `budget` bytes towards `start`; returns whether it is reached. Raises OSError."""
        if start < self._start:
            self._inflater, self._start, self._window = Inflater(self._read), 0, b""
        while self._start + len(self._window) < start and not self._inflater.ended and budget > 0:
            self._start += len(self._window)
            self._window = self._inflater.take(_CHUNK)
            budget -= len(self._window)
        return self._start + len(self._window) >= start or self._inflater.ended

    def pread(self, count: int, start: int) -> bytes:
        """Returns up to `count` bytes from `start`, fewer only at the end. Raises OSError."""
        self.advance(start, 1 << 62)
        parts = [self._window[start - self._start :]]
        size = len(parts[0])
        while size < count and not self._inflater.ended:
            parts.append(self._inflater.take(max(_CHUNK, count - size)))
            size += len(parts[-1])
        self._start, self._window = start, b"".join(parts)
        return self._window[:count]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file whose content may be the archive's up to `offset`; `tail` is the fingerprint of the bytes before that."""

    inode: Inode
    offset: int
    tail: Print


class Inspection:
    """One pass over an archive, in steps. It finds the size, whether the archive is whole, and up to where it has the content of
    which files.
    """

    def __init__(self, read: Read, candidates: Callable[[bytes], Iterable[Candidate]]) -> None:
        """`candidates` is called once, with the first HEAD bytes."""
        self._inflater = Inflater(read)
        self._candidates = candidates
        self._waiting: list[Candidate] | None = None
        self._last = b""
        self.total = 0
        self.matches: dict[Inode, int] = {}

    @property
    def problem(self) -> str:
        return self._inflater.problem

    def step(self, budget: int) -> bool:
        """Looks at about `budget` bytes more; returns whether it has reached the end. Raises OSError."""
        while budget > 0 and not self._inflater.ended:
            chunk = self._inflater.take(_CHUNK)
            if self._waiting is None:
                while len(chunk) < HEAD and not self._inflater.ended:
                    chunk += self._inflater.take(_CHUNK)
                found = sorted(self._candidates(chunk[:HEAD]), key=lambda c: c.offset)
                self.matches = {c.inode: 0 for c in found if c.offset == 0}
                self._waiting = [c for c in found if c.offset]
            self._compare(chunk)
            budget -= len(chunk)
        return self._inflater.ended

    def _compare(self, chunk: bytes) -> None:
        window, before = self._last + chunk, self.total - len(self._last)
        self.total += len(chunk)
        waiting = self._waiting or []
        while waiting and waiting[0].offset <= self.total:
            candidate = waiting.pop(0)
            end = candidate.offset - before
            if Print.of(window[max(0, end - candidate.tail.length) : end]) == candidate.tail:
                self.matches[candidate.inode] = candidate.offset
        self._last = window[-TAIL:]
