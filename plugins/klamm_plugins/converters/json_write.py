"""Connect values to JSON bytes, byte for byte as Kafka's JsonConverter writes them.

Values become orjson's, with fragments where Java writes a number differently; `json_text` then corrects the few
characters that Jackson escapes in another way. No I/O.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import orjson

from klamm_plugins import logical
from klamm_plugins.converters.compiled import Misfit
from klamm_plugins.converters.json_columns import ColumnWriter, compile_columns
from klamm_plugins.converters.json_text import dumps_each, number
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, Struct, Type, validate_value
from klamm_plugins.text import double_text, float_text, is_plain_double

_ATOMS: Final = frozenset({str, int, bool, type(None)})


class JsonWriter:
    """A converter of checked Connect values to the input of `dumps`. Stateless but for its two settings."""

    def __init__(self, *, numeric_decimals: bool, replace_null_with_default: bool) -> None:
        self._numeric_decimals = numeric_decimals
        self._replace_null = replace_null_with_default

    def compiled(self, schema: Schema | None) -> Callable[[Any], Any]:
        """Returns `to_json` for one schema and many values."""
        if schema is None:
            return self._schemaless
        fast = self._columns(schema)

        def convert(value: Any) -> Any:
            with suppress(Misfit, DataError):
                return fast.one(value)
            return self.to_json(schema, value)  # knows the rarer forms, and where an error is

        return convert

    def texts(self, schema: Schema | None) -> Callable[[Sequence[Any]], list[bytes]]:
        """Returns a function that writes values of one schema, each as a text of its own."""
        if schema is None:
            return lambda values: dumps_each([self._schemaless(value) for value in values])
        fast, one = self._columns(schema), self.compiled(schema)

        def write(values: Sequence[Any]) -> list[bytes]:
            with suppress(Misfit, DataError):
                return fast.texts(values)
            return dumps_each([one(value) for value in values])

        return write

    def _columns(self, schema: Schema) -> ColumnWriter:
        return compile_columns(schema, self.to_json, numeric_decimals=self._numeric_decimals)

    def to_json(self, schema: Schema | None, value: Any) -> Any:
        """Checks `value` against `schema` and turns it into JSON. Raises DataError that names the field."""
        if schema is None:
            return self._schemaless(value)
        if value is not None:
            validate_value(schema, value)
        return self.checked(schema, value)

    def checked(self, schema: Schema, value: Any) -> Any:
        if value is None:
            if schema.default is not None and self._replace_null:
                return self.checked(schema, schema.default)
            if schema.optional:
                return None
            raise DataError(
                "Conversion error: null value for field that is required and has no default value"
                f" ({schema!r})"
            )
        if self._numeric_decimals and logical.is_decimal(schema):
            return orjson.Fragment(str(value))
        return self._by_type(schema, logical.to_primitive(schema, value))

    def _by_type(self, schema: Schema, value: Any) -> Any:
        match schema.type:
            case Type.STRING | Type.BOOLEAN | Type.INT8 | Type.INT16 | Type.INT32 | Type.INT64:
                return value
            case Type.FLOAT64:
                return _double(float(value))
            case Type.FLOAT32:
                return number(float_text(value))
            case Type.BYTES:
                return base64.b64encode(value).decode()
            case Type.STRUCT:
                return {
                    f.name: self.checked(f.schema, value.get_without_default(f.name)) for f in schema.fields
                }
            case Type.ARRAY:
                assert schema.value_schema is not None
                return [self.checked(schema.value_schema, v) for v in value]
            case Type.MAP:
                return self._map(schema, value)

    def _map(self, schema: Schema, value: dict[Any, Any]) -> Any:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None
        assert values is not None
        if keys.type is Type.STRING:
            # Java's object mapper writes a null key as the empty text; so do we.
            return {"" if k is None else k: self.checked(values, v) for k, v in value.items()}
        return [[self.checked(keys, k), self.checked(values, v)] for k, v in value.items()]

    def _schemaless(self, value: Any) -> Any:
        if type(value) in _ATOMS:
            return value
        if type(value) is float:
            return _double(value)
        if type(value) is dict and set(map(type, value)) <= {str}:
            return {k: v if type(v) in _ATOMS else self._schemaless(v) for k, v in value.items()}
        match value:
            case str() | bool() | int() | None:
                return value
            case float():
                return _double(value)
            case list() | tuple():
                return [self._schemaless(v) for v in value]
            case dict():
                if all(isinstance(k, str) for k in value):
                    return {k: self._schemaless(v) for k, v in value.items()}
                return [[self._schemaless(k), self._schemaless(v)] for k, v in value.items()]
            case bytes() | bytearray() | memoryview():
                return base64.b64encode(value).decode()
            case Struct():
                return self.to_json(value.schema, value)
            case Decimal() | date() | time() | datetime():
                raise DataError(f"{type(value).__name__} {value} needs a schema (see klamm_plugins.logical)")
            case _:
                raise DataError(f"{type(value).__name__} does not have a corresponding schema type")


def _double(value: float) -> Any:
    return value if is_plain_double(value) else number(double_text(value))
