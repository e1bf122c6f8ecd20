"""Messages of a syslog stream (RFC 6587): octet counting, or messages ended by LF or NUL. Pure.

A connection's first bytes tell which it uses: a count before a `<` is octet counting. NUL anywhere ends messages (Python's
SysLogHandler), and line feeds are text then. Otherwise a line is a message. Every byte that comes is in some message. A message
longer than the limit is given out in pieces, which bounds the memory of a connection.
"""

from __future__ import annotations

import re
from typing import Final

FRAMINGS: Final = ("auto", "octet", "newline", "nul")
_COUNT_MAX: Final = 32  # bytes that may be an incomplete count; more bytes are a line
_COUNT: Final = re.compile(rb"[\n\r ]*([1-9]\d{0,8}) ")
_COUNT_BEGINS: Final = re.compile(rb"[\n\r ]*(?:[1-9]\d{0,8})?")
_COUNTED: Final = re.compile(rb"[\n\r ]*[1-9]\d{0,8} <")
_MAYBE_COUNTED: Final = re.compile(rb"[\n\r ]*(?:[1-9]\d{0,8} ?)?")


class Frames:
    """A cutter of one connection's messages. `limit`: bytes of the longest message."""

    __slots__ = ("_held", "_left", "_limit", "_mode", "errors", "splits")

    def __init__(self, framing: str, limit: int) -> None:
        self._mode, self._limit = framing, limit
        self._held = b""
        self._left = 0  # bytes left of a counted message of which a piece was given out
        self.splits = 0
        """The number of cuts in messages longer than the limit."""
        self.errors = 0
        """The number of places without the count that should be there; what follows is read as lines."""

    @property
    def held(self) -> int:
        """The bytes held of an incomplete message."""
        return len(self._held)

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the messages that are complete now, without empty ones."""
        data = self._held + data if self._held else data
        if self._mode == "auto":
            data = data.lstrip(b"\r\n")  # empty lines are no messages; without this they would be held
            if len(data) <= _COUNT_MAX and _MAYBE_COUNTED.fullmatch(data):
                self._held = data  # the framing is not known yet
                return []
            self._mode = "octet" if _COUNTED.match(data) else "newline"
        if self._mode == "octet":
            return self._counted(data)
        if self._mode == "newline" and b"\0" in data:
            self._mode = "nul"
        return self._ended(data)

    def finish(self) -> list[bytes]:
        """Returns the rest as a message, complete or not, since the connection ended."""
        rest, self._held = self._held, b""
        if self._mode == "octet" and not self._left and (count := _COUNT.match(rest)):
            rest = rest[count.end() :]
        rest = rest.strip(b"\r\n\0")
        return [rest] if rest else []

    def _ended(self, data: bytes) -> list[bytes]:
        end = b"\0" if self._mode == "nul" else b"\n"
        lines = data.split(end)
        rest = lines.pop()
        if len(rest) > self._limit:
            pieces = self._cut(rest)
            rest = pieces.pop()
            lines += pieces
        self._held = rest
        if max(map(len, lines), default=0) > self._limit:
            lines = [piece for line in lines for piece in self._cut(line)]
        if end == b"\0" or b"\r" in data:
            lines = [line.strip(b"\r\n") for line in lines]
        return [line for line in lines if line] if b"" in lines else lines

    def _cut(self, line: bytes) -> list[bytes]:
        pieces = [line[i : i + self._limit] for i in range(0, len(line), self._limit)] or [line]
        self.splits += len(pieces) - 1
        return pieces

    def _counted(self, data: bytes) -> list[bytes]:
        found: list[bytes] = []
        at = 0
        while at < len(data):
            left, begin = self._left, at
            if not left:
                count = _COUNT.match(data, at)
                if count is None:
                    if _COUNT_BEGINS.fullmatch(data, at):
                        data, at = data[at:].lstrip(b"\r\n "), 0
                        break
                    self.errors += 1
                    self._mode, self._held = "newline", b""
                    return found + self._ended(data[at:])
                left, begin = int(count[1]), count.end()
            take = min(left, self._limit)
            if len(data) - begin < take:
                break
            found.append(data[begin : begin + take].rstrip(b"\r\n\0"))
            at = begin + take
            self._left = left - take
            self.splits += bool(self._left)
        self._held = data[at:]
        return [m for m in found if m]
