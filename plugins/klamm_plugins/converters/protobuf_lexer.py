"""The lexer of the Protobuf language (.proto files): names, numbers, texts, signs. The grammar is in
protobuf_parser.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from klamm_plugins.errors import DataError


class Kind(Enum):
    NAME = auto()
    INT = auto()
    FLOAT = auto()
    TEXT = auto()
    SIGN = auto()
    END = auto()


class Token(NamedTuple):
    """One word. `text` is its spelling; for a TEXT, `data` holds the bytes of its value."""

    kind: Kind
    text: str
    line: int
    data: bytes = b""


_WORD: Final = re.compile(
    r"""
    (?P<space>[ \t\r\n\f\v\ufeff]+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<float>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?|\d+[eE][+-]?\d+[fF]?)
  | (?P<int>0[xX][0-9a-fA-F]+|\d+)
  | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<sign>[{}\[\]()<>=;,.:+\-/])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(?:(?P<oct>[0-7]{1,3})|[xX](?P<hex>[0-9a-fA-F]{1,2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|(?P<char>.))",
    re.DOTALL,
)
_CHARS: Final = {"a": b"\a", "b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v"}
_SAME: Final = "\\'\"?"


def tokens(text: str) -> list[Token]:
    """Returns all words of a file, the last one END. Raises DataError with the line of a text that is no word."""
    found: list[Token] = []
    place, line = 0, 1
    while place < len(text):
        match = _WORD.match(text, place)
        if match is None:
            raise DataError(f"the Protobuf schema cannot be read: line {line}: {text[place : place + 20]!r}")
        word, kind = match[0], match.lastgroup or ""
        if kind == "text":
            found.append(Token(Kind.TEXT, word, line, _unescaped(word[1:-1], line)))
        elif kind != "space":
            found.append(Token(Kind[kind.upper()], word, line))
        line += word.count("\n")
        place = match.end()
    found.append(Token(Kind.END, "the end", line))
    return found


def _unescaped(text: str, line: int) -> bytes:
    parts: list[bytes] = []
    place = 0
    for match in _ESCAPE.finditer(text):
        parts.append(text[place : match.start()].encode())
        parts.append(_char(match, line))
        place = match.end()
    return b"".join([*parts, text[place:].encode()])


def _char(match: re.Match[str], line: int) -> bytes:
    if match["oct"]:
        return bytes([int(match["oct"], 8) & 0xFF])
    if match["hex"]:
        return bytes([int(match["hex"], 16)])
    point = match["u"] or match["U"]
    try:
        if point:
            return chr(int(point, 16)).encode()
        return match["char"].encode() if match["char"] in _SAME else _CHARS[match["char"]]
    except (KeyError, ValueError, OverflowError):
        raise DataError(
            f"the Protobuf schema cannot be read: line {line}: {match[0]} is no escape sequence"
        ) from None


def integer(text: str) -> int:
    """Returns the number of an INT: decimal, 0x hexadecimal, 0 octal. Raises ValueError."""
    if text[:2] in {"0x", "0X"}:
        return int(text, 16)
    return int(text, 8) if len(text) > 1 and text[0] == "0" else int(text)
