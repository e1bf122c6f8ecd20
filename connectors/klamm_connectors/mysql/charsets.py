"""Decoders of MySQL's character sets, for texts of the binlog. Pure: no I/O.

A snapshot's texts are converted by the server. Python's codecs of the same names differ from it in some characters, and lack
some sets. So for all sets but Unicode's, ASCII and latin1 the server itself is asked once how it reads each character
(`server.characters`), and texts of the binlog are made of these answers.
"""

from __future__ import annotations

import re
from codecs import charmap_decode
from collections.abc import Callable, Mapping
from typing import Final

Decode = Callable[[bytes], str]
"""Raises UnicodeDecodeError, which only sets of Unicode do: others have a character for each byte."""
Ask = Callable[[str], Mapping[bytes, str]]
"""Returns the text of each character of a character set, by its bytes."""

_UNKNOWN: Final = "?"
"""Stands where a set has no character, as in the server's answers."""
UTF8: Final = frozenset({"utf8mb4", "utf8mb3", "utf8"})
_CODECS: Final = {
    **dict.fromkeys(UTF8, "utf-8"), "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
    "gb18030": "gb18030",
}  # fmt: skip
_BYTES: Final = 256


class Charsets:
    """The decoders of one server's character sets, each made when a column needs it."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._made: dict[str, Decode] = {}

    def __call__(self, charset: str) -> Decode:
        """Returns a decoder. Raises ConnectError for a character set that the server does not know."""
        try:
            return self._made[charset]
        except KeyError:
            decode = well_known(charset) or decoder(self._ask(charset))
            self._made[charset] = decode
            return decode


def well_known(charset: str) -> Decode | None:
    """Returns the decoder of a set that Python has as every server has it; None for other sets."""
    codec = _CODECS.get(charset)
    if codec is not None:
        return lambda raw: str(raw, codec)
    if charset == "latin1":
        return _of_single_bytes("".join(map(_latin1, range(_BYTES))))
    if charset == "ascii":
        return _of_single_bytes("".join(map(chr, range(128))) + _UNKNOWN * 128)
    return None


def decoder(characters: Mapping[bytes, str]) -> Decode:
    """Returns a decoder that reads these characters, and `?` for all other bytes, as the server does."""
    singles = [characters.get(bytes((byte,))) for byte in range(_BYTES)]
    longer = {len(code) for code in characters if len(code) > 1}
    if not longer:
        return _of_single_bytes("".join(one if one is not None else _UNKNOWN for one in singles))
    # A byte that is no character by itself begins a longer one.
    leads = {size: {code[:1] for code in characters if len(code) == size} for size in longer}
    parts = [b"[%s]" % b"".join(map(re.escape, leads[size])) + b"." * (size - 1) for size in sorted(longer, reverse=True)]  # fmt: skip
    find = re.compile(b"|".join([*parts, b"."]), re.DOTALL).findall
    get = characters.get
    is_ascii = all(singles[byte] == chr(byte) for byte in range(128))

    def decode(raw: bytes) -> str:
        if is_ascii and raw.isascii():
            return raw.decode("ascii")
        return "".join([get(code, _UNKNOWN) for code in find(raw)])

    return decode


def _of_single_bytes(table: str) -> Decode:
    return lambda raw: charmap_decode(raw, "strict", table)[0]


def _latin1(byte: int) -> str:
    """Returns a character of MySQL's latin1: that of cp1252, which leaves five bytes open."""
    try:
        return bytes((byte,)).decode("cp1252")
    except UnicodeDecodeError:
        return chr(byte)
