"""JSON texts as Jackson writes them, of values that orjson knows. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import orjson

from klamm_plugins.errors import DataError

# An escaped backslash is matched, so that the u00.. after it is not taken for an escape; then the control
# characters, and characters beyond the basic plane, which Jackson writes as two escapes.
_ODD: Final = re.compile(rb"\\\\|\\u00[01][0-9a-f]|[\xf0-\xf4][\x80-\xbf]{3}")
_BEYOND: Final = re.compile(rb"[\xf0-\xf4]")
# No text of orjson has a line feed: it can part texts.
_LINE_FEED: Final = orjson.Fragment(b"\n")


def dumps(value: Any) -> bytes:
    """Writes a value. Raises DataError for values that JSON cannot hold."""
    try:
        out = orjson.dumps(value)
    except TypeError as e:  # orjson.JSONEncodeError is one
        raise DataError(f"value cannot be written as JSON: {e}") from e
    if b"\\u00" in out or not (out.isascii() or _BEYOND.search(out) is None):
        out = _ODD.sub(_jackson_escape, out)
    return out


def dumps_each(values: Sequence[Any]) -> list[bytes]:
    """Writes many values, each as a text of its own. One call for all costs a part of as many calls."""
    if len(values) < 2:
        return [dumps(value) for value in values]
    apart = [_LINE_FEED] * (2 * len(values) - 1)
    apart[::2] = values
    return dumps(apart)[1:-1].split(b",\n,")


def number(text: str) -> orjson.Fragment:
    """Returns a number of Java's text as an input of `dumps`. Jackson quotes NaN and the infinities."""
    return orjson.Fragment(text if text[-1].isdigit() else f'"{text}"')


def _jackson_escape(match: re.Match[bytes]) -> bytes:
    found = match[0]
    if found == b"\\\\":
        return found
    if found.startswith(b"\\u"):
        return b"\\u" + found[2:].upper()
    units = found.decode().encode("utf-16-be").hex().upper()
    return f"\\u{units[:4]}\\u{units[4:]}".encode()
