"""Numbers as Java narrows, rounds and reads them: the results of Java's casts, in Python. No I/O."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Final

_FLOAT32: Final = struct.Struct("<f")
_BITS32: Final = struct.Struct("<i")
_INTEGER: Final = re.compile(r"[+-]?\d+")
# Double.parseDouble's grammar, without the white space around it.
_DECIMAL: Final = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?"
    r"|(?P<hex>[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?"
    r"|(?P<sign>[+-]?)(?P<word>NaN|Infinity)",
    re.ASCII,
)
_INT_LIMIT: Final = 1 << 31
_LONG_LIMIT: Final = 1 << 63
_JAVA_SPACE: Final = "".join(map(chr, range(33)))


def wrapped(value: int, bits: int) -> int:
    """Returns the lowest `bits` bits of an integer as a signed number: a narrowing conversion.

    >>> wrapped(300, 8)
    44
    """
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def integer_of_double(value: float, bits: int) -> int:
    """Casts a double to an integer of 8 to 64 bits. The fraction is cut off, NaN becomes 0. A double too large for an
    int (for a long where 64 bits are asked for) becomes the largest one, and its lowest bits count.
    """
    if value != value:  # noqa: PLR0124  NaN, and faster than to ask for it
        return 0
    limit = _LONG_LIMIT if bits > 32 else _INT_LIMIT
    saturated = limit - 1 if value >= limit else -limit if value < -limit else int(value)
    return wrapped(saturated, bits)


def parse_integer(text: str, bits: int) -> int:
    """Parses as Java's parseLong and the like do: a sign and digits, nothing else. Raises ValueError."""
    value = int(text) if _INTEGER.fullmatch(text) else None
    if value is None or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(text)
    return value


def parse_double(text: str) -> float:
    """Parses as Java's Double.parseDouble does. Raises ValueError."""
    found = _matched(text)
    if found["word"]:
        return float(found["sign"] + ("nan" if found["word"] == "NaN" else "inf"))
    if found["hex"]:
        try:
            return float.fromhex(found["hex"])
        except OverflowError:
            return math.copysign(math.inf, -1 if found["hex"].startswith("-") else 1)
    return float(found["number"])


def parse_float(text: str) -> float:
    """Parses as Java's Float.parseFloat does, to the nearest number of 32 bits. Raises ValueError."""
    value = parse_double(text)
    number = _matched(text)["number"]
    return nearest_float32(value, lambda: Fraction(number or value))


def nearest_float32(value: float, exact: Callable[[], Fraction] | None = None) -> float:
    """Returns the nearest number of 32 bits, infinite beyond the largest.

    `exact` returns the exact number whose double is `value`: only it can tell on which side of the middle between two
    32-bit numbers the exact number lies.
    """
    try:
        near = float(_FLOAT32.unpack(_FLOAT32.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)
    if exact is None or near == value or not math.isfinite(value):
        return near
    other = _next_float32(near, up=value > near)
    if abs(value - near) != abs(other - value):
        return near
    truth, low, high = exact(), min(near, other), max(near, other)
    return near if truth == value else high if truth > value else low


def _next_float32(value: float, *, up: bool) -> float:
    """Returns the neighbour of a number of 32 bits."""
    if value == 0:
        return float.fromhex("0x1p-149") * (1 if up else -1)
    (bits,) = _BITS32.unpack(_FLOAT32.pack(value))
    bits += 1 if (value > 0) == up else -1
    return float(_FLOAT32.unpack(_BITS32.pack(bits))[0])


def _matched(text: str) -> re.Match[str]:
    found = _DECIMAL.fullmatch(text.strip(_JAVA_SPACE))
    if found is None:
        raise ValueError(text)
    return found
