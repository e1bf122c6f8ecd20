"""Values as text, in the form that Java writes.

Klamm must write what Kafka writes, so floats look as in Java's `Double.toString` and `Float.toString` (from Java
19 on: the shortest digits that read back as the same number). No I/O.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any, Final

from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, Struct, Type

_PLAIN_FROM: Final = 1e-3
_PLAIN_BELOW: Final = 1e7
_FLOAT32: Final = struct.Struct("<f")


def is_plain_double(value: float) -> bool:
    """Returns whether Java and Python write this number the same way (no exponent in either)."""
    return _PLAIN_FROM <= abs(value) < _PLAIN_BELOW or value == 0


def double_text(value: float) -> str:
    """A double as Java writes it.

    >>> double_text(0.5), double_text(1e10), double_text(5e-324)
    ('0.5', '1.0E10', '4.9E-324')
    """
    return repr(value) if is_plain_double(value) else _java_text(value, repr(value))


def to_float32(value: float) -> float:
    """Returns the nearest number of 32 bits. Raises DataError when there is none."""
    nearest = _round32(value)
    if nearest is None:
        raise DataError(f"{value} is out of range for FLOAT32")
    return nearest


def _round32(value: float) -> float | None:
    try:
        return float(_FLOAT32.unpack(_FLOAT32.pack(value))[0])
    except OverflowError:
        return None


def float_text(value: float) -> str:
    """Writes a 32-bit float as Java does: the fewest digits that name it among 32-bit floats."""
    value = to_float32(value)
    if not math.isfinite(value) or value == 0:
        return double_text(value)
    shortest = next(t for t in (f"{value:.{p}e}" for p in range(9)) if _round32(float(t)) == value)
    if is_plain_double(value):
        return repr(float(shortest))
    return _java_text(value, shortest)


def _java_text(value: float, shortest: str) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int), "infinities and NaN are gone"
    if len(digits) == 1:
        # Java writes two digits where one would do. The second is the nearest digit, which need not be 0.
        sign, digits, exponent = Decimal(f"{value:.1e}").as_tuple()
        assert isinstance(exponent, int), "as above"
    point = exponent + len(digits) - 1
    text = "".join(map(str, digits))
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{point}"


def text_of(value: Any, schema: Schema | None = None) -> str:
    """Writes a value as Java's `toString` does. Dates and times, which Java writes by locale, become ISO 8601.

    Raises DataError for bytes, which have no text.
    """
    match value:
        case str():
            return value
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            is_float32 = schema is not None and schema.type is Type.FLOAT32
            return float_text(value) if is_float32 else double_text(value)
        case list() | tuple():
            inner = schema and schema.value_schema
            return f"[{', '.join(text_of(v, inner) for v in value)}]"
        case dict():
            keys, values = (schema.key_schema, schema.value_schema) if schema else (None, None)
            return f"{{{', '.join(f'{text_of(k, keys)}={text_of(v, values)}' for k, v in value.items())}}}"
        case Struct():
            fields = ((f, value.get_without_default(f.name)) for f in value.schema.fields)
            texts = (f"{f.name}={text_of(v, f.schema)}" for f, v in fields if v is not None)
            return f"Struct{{{','.join(texts)}}}"
        case bytes() | bytearray() | memoryview():
            raise DataError("bytes cannot become text: use the ByteArrayConverter, or decode them first")
        case _ if hasattr(value, "isoformat"):
            return str(value.isoformat())
        case _:
            return str(value)
