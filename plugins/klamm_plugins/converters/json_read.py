"""JSON to Connect values, by a schema or without one.

Where Kafka silently turns a value of the wrong kind into null or 0 ("5" for an int32), this raises DataError
with the field's path. No I/O.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation, localcontext
from functools import partial
from typing import Any, Final

import orjson

from klamm_plugins import logical
from klamm_plugins.converters.compiled import UNUSUAL
from klamm_plugins.converters.json_decode import compile_decoder, holds_decimals
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, Struct, Type, validate_value
from klamm_plugins.text import to_float32

_PRIMITIVES: Final = {t: Schema(t) for t in Type if t.is_primitive}
_DIGITS_MAX: Final = 20_000  # of a decimal: more than any database has
_NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def loads(data: bytes, *, exact: bool = False) -> Any:
    """Parses JSON; `exact` keeps numbers with a point as Decimal. Raises DataError, with Kafka's words."""
    try:
        if exact:
            return json.loads(data, parse_float=Decimal, parse_constant=_no_constant)
        return orjson.loads(data)
    except ValueError as e:
        bad_byte = _not_utf8(data)
        raise DataError(
            f"Converting byte[] to Kafka Connect data failed due to serialization error: {bad_byte or e}"
        ) from (None if bad_byte else e)


def _not_utf8(data: bytes) -> str | None:
    """Returns a sentence about the first byte that is not UTF-8; None when all are. The parser's own names no byte."""
    try:
        data.decode()
    except UnicodeDecodeError as e:
        return f"byte 0x{data[e.start]:02x} at {e.start} is not UTF-8"
    return None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class JsonReader:
    """A maker of Connect values from parsed JSON. Stateless but for its setting."""

    def __init__(self, *, replace_null_with_default: bool) -> None:
        self._replace_null = replace_null_with_default

    def compiled(self, schema: Schema | None) -> Callable[[Any], Any]:
        """Returns `from_json` for one schema and many values."""
        if schema is None:
            return lambda data: data
        fast = self._fast(schema)

        def convert(data: Any) -> Any:
            with suppress(*UNUSUAL):
                return fast(data)
            return self.from_json(schema, data)  # knows the rarer forms, and where an error is

        return convert

    def parser(self, schema: Schema) -> Callable[[bytes], Any]:
        """Returns a function from JSON's text to a value of the schema. It raises DataError."""
        fast = self._fast(schema)
        exact = holds_decimals(schema)

        def parse(text: bytes) -> Any:
            with suppress(*UNUSUAL):
                return fast(orjson.loads(text))
            return self.from_json(schema, loads(text, exact=exact))

        return parse

    def _fast(self, schema: Schema) -> Callable[[Any], Any]:
        return compile_decoder(
            schema, lambda rare: partial(self.from_json, rare), replace_null=self._replace_null
        )

    def from_json(self, schema: Schema | None, data: Any, path: str = "payload") -> Any:
        """Returns the Connect value of `data`. Raises DataError that names the path of a misfit."""
        if schema is None:
            return data
        if data is None:
            if schema.default is not None and self._replace_null:
                return schema.default
            if schema.optional:
                return None
            raise DataError(f"{path}: Invalid null value for required {schema.type.name} field")
        if logical.is_decimal(schema) and _is_number(data):
            return _decimal(schema, data, path)
        value = self._by_type(schema, data, path)
        if logical.is_logical(schema):
            return _logical(schema, value, path)
        if schema.type.is_primitive:
            validate_value(schema, value, path)
        return value

    def _by_type(self, schema: Schema, data: Any, path: str) -> Any:
        match schema.type:
            case Type.INT8 | Type.INT16 | Type.INT32 | Type.INT64:
                whole = isinstance(data, (float, Decimal)) and data == int(data)
                return int(data) if whole else data
            case Type.FLOAT32 | Type.FLOAT64:
                return _float(schema.type, data)
            case Type.STRING | Type.BOOLEAN:
                return data
            case Type.BYTES:
                return _bytes(data, path)
            case Type.ARRAY:
                if not isinstance(data, list):
                    raise DataError(f"{path}: arrays should be JSON arrays, but found {_kind(data)}")
                return [self.from_json(schema.value_schema, v, f"{path}[{i}]") for i, v in enumerate(data)]
            case Type.MAP:
                return self._map(schema, data, path)
            case Type.STRUCT:
                return self._struct(schema, data, path)

    def _struct(self, schema: Schema, data: Any, path: str) -> Struct:
        if not isinstance(data, dict):
            raise DataError(f"{path}: Structs should be encoded as JSON objects, but found {_kind(data)}")
        struct = Struct(schema)
        for f in schema.fields:
            struct.put(f.name, self.from_json(f.schema, data.get(f.name), f"{path}.{f.name}"))
        return struct

    def _map(self, schema: Schema, data: Any, path: str) -> dict[Any, Any]:
        keys, values = schema.key_schema, schema.value_schema
        if keys is not None and keys.type is Type.STRING:
            if not isinstance(data, dict):
                raise DataError(
                    f"{path}: Maps with string fields should be encoded as JSON objects, but found {_kind(data)}"
                )
            return {k: self.from_json(values, v, f"{path}[{k!r}]") for k, v in data.items()}
        if not isinstance(data, list) or any(not isinstance(e, list) or len(e) != 2 for e in data):
            raise DataError(
                f"{path}: Maps with non-string fields should be encoded as a JSON array of [key, value] arrays,"
                f" but found {_kind(data)}"
            )
        return {
            self.from_json(keys, k, f"{path} key"): self.from_json(values, v, f"{path}[{k!r}]")
            for k, v in data
        }


def _logical(schema: Schema, primitive: Any, path: str) -> Any:
    validate_value(_PRIMITIVES[schema.type], primitive, path)
    try:
        value = logical.from_primitive(schema, primitive)
    except DataError as e:
        raise DataError(f"{path}: {e}") from e
    validate_value(schema, value, path)
    return value


def _float(type: Type, data: Any) -> Any:
    if isinstance(data, str) and data in _NON_FINITE:
        return _NON_FINITE[data]
    if not _is_number(data):
        return data  # validate_value says what is wrong
    return to_float32(float(data)) if type is Type.FLOAT32 else float(data)


def _bytes(data: Any, path: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (TypeError, ValueError, binascii.Error) as e:
        raise DataError(f"{path}: Invalid bytes field, which takes base64 text ({e})") from e


def _decimal(schema: Schema, data: float | Decimal, path: str) -> Decimal:
    scale = logical.decimal_scale(schema)
    value = Decimal(str(data))
    with localcontext() as context:
        context.prec = min(len(value.as_tuple().digits) + abs(value.adjusted()) + abs(scale) + 2, _DIGITS_MAX)
        try:
            exact = value.quantize(Decimal(1).scaleb(-scale))
        except InvalidOperation as e:
            raise DataError(f"{path}: {data} cannot have scale {scale}") from e
    if exact != value:
        raise DataError(f"{path}: {data} has more digits after the point than scale {scale} keeps")
    return exact


def _is_number(data: Any) -> bool:
    return isinstance(data, (int, float, Decimal)) and not isinstance(data, bool)


def _kind(data: Any) -> str:
    names = {dict: "OBJECT", list: "ARRAY", str: "STRING", bool: "BOOLEAN"}
    return names.get(type(data), "NUMBER")
