"""Conversions of values to another type, as in Kafka's Cast: narrowing cuts bits, text is parsed strictly, dates are
numbers first.

The transform itself is in `cast.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from klamm_plugins.converters.simple_header import write_text
from klamm_plugins.errors import DataError
from klamm_plugins.logical import is_decimal, is_logical, to_primitive
from klamm_plugins.numbers import (
    integer_of_double,
    nearest_float32,
    parse_double,
    parse_float,
    parse_integer,
    wrapped,
)
from klamm_plugins.schema import Schema, Type
from klamm_plugins.text import text_of

BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
OUTPUTS: Final = (*BITS, Type.FLOAT32, Type.FLOAT64, Type.BOOLEAN, Type.STRING)
INPUTS: Final = (*OUTPUTS, Type.BYTES)
_PLAIN: Final = (str, bool, int, float, bytes, bytearray, memoryview)

Convert = Callable[[Any], Any]


def names(types: tuple[Type, ...]) -> str:
    return f"[{', '.join(t.name for t in types)}]"


def caster(schema: Schema | None, target: Type) -> Convert:
    """Returns a function that turns a value of `schema` (None: of any type) into `target`. It raises DataError when it
    cannot; null is null.
    """
    if schema is None:
        convert = _converter(target, None)
        return lambda value: None if value is None else convert(_plain(value))
    if schema.type not in INPUTS:
        return _only_null(schema)
    convert = _converter(target, schema)
    if target is not Type.STRING and is_logical(schema) and not is_decimal(schema):
        return lambda value: None if value is None else convert(to_primitive(schema, value))
    return lambda value: None if value is None else convert(value)


def _only_null(schema: Schema) -> Convert:
    def refuse(value: Any) -> None:
        if value is not None:
            raise DataError(
                f"Cast transformation does not support casting from {schema.type.name}; supported types are "
                f"{names(INPUTS)}"
            )

    return refuse


def _converter(target: Type, schema: Schema | None) -> Convert:
    match target:
        case Type.FLOAT32:
            return _float32
        case Type.FLOAT64:
            return _float64
        case Type.BOOLEAN:
            return _boolean
        case Type.STRING:
            return lambda value: _string(value, schema)
        case _:
            bits = BITS[target]
            return lambda value: _integer(value, bits)


def _plain(value: Any) -> Any:
    """Accepts the types that Kafka can cast without a schema, and no others."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (list, tuple, dict)):
        kind = "MAP" if isinstance(value, dict) else "ARRAY"
        raise DataError(
            f"Cast transformation does not support casting from {kind}; supported types are {names(INPUTS)}"
        )
    raise DataError(
        f"Cast transformation was passed a value of type {type(value).__name__} which is not supported by Connect's "
        "data API"
    )


def _integer(value: Any, bits: int) -> int:
    if type(value) is int:
        return wrapped(value, bits)
    match value:
        case bool():
            return int(value)
        case int():
            return wrapped(value, bits)
        case float():
            return integer_of_double(value, bits)
        case Decimal():
            return wrapped(int(value), bits)
        case str():
            try:
                return parse_integer(value, bits)
            except ValueError:
                raise _out_of_range(value) from None
    raise _unexpected(value)


def _float32(value: Any) -> float:
    match value:
        case bool():
            return float(value)
        case float():
            return nearest_float32(value)
        case int() | Decimal():
            return nearest_float32(_double(value), lambda: Fraction(value))
        case str():
            try:
                return parse_float(value)
            except ValueError:
                raise _out_of_range(value) from None
    raise _unexpected(value)


def _float64(value: Any) -> float:
    match value:
        case bool() | float():
            return float(value)
        case int() | Decimal():
            return _double(value)
        case str():
            try:
                return parse_double(value)
            except ValueError:
                raise _out_of_range(value) from None
    raise _unexpected(value)


def _double(value: int | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("-inf") if value < 0 else float("inf")


def _boolean(value: Any) -> bool:
    match value:
        case bool():
            return value
        case int():
            return value != 0
        case float():
            return integer_of_double(value, 64) != 0
        case Decimal():
            return wrapped(int(value), 64) != 0
        case str():
            return value.lower() == "true"
    raise _unexpected(value)


def _string(value: Any, schema: Schema | None) -> str:
    if type(value) is int:
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime, date, time)):
        return write_text(schema, value)
    return text_of(value, schema)


def _out_of_range(value: str) -> DataError:
    return DataError(f"Value ({value}) was out of range for requested data type")


def _unexpected(value: Any) -> DataError:
    return DataError(f"Unexpected type in Cast transformation: {type(value).__name__}")
