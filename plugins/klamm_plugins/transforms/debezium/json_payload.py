"""JSON texts as structs: the schema of a JSON value, and the value in its form.

A field's schema is optional and follows from its value alone: a whole number is int32 or int64, another number float64. Nulls,
empty arrays and names that are there twice get no field. Arrays must hold values of one type. Objects in an array have the fields
of all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from klamm_plugins.errors import DataError
from klamm_plugins.schema import (
    OPTIONAL_BOOLEAN,
    OPTIONAL_BYTES,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    Schema,
    SchemaBuilder,
    Struct,
    Type,
    validate_value,
)

_SCHEMAS_MAX: Final = 10_000
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63


class JsonPayload:
    """Reads JSON texts. `name` is that of the struct, `field_name` changes names of fields, `keeps_nulls` makes optional bytes of
    nulls.
    """

    def __init__(self, field_name: Callable[[str], str], *, keeps_nulls: bool) -> None:
        self._field_name = field_name
        self._null = OPTIONAL_BYTES if keeps_nulls else None
        self._schemas: dict[Any, Schema] = {}  # by name and shape
        self._same: dict[Schema, Schema] = {}  # of shapes that differ by nulls only: converters then know it
        self._places: dict[Schema, dict[str, tuple[int, Schema]]] = {}  # of names in JSON

    def read(self, name: str, text: str) -> tuple[Schema, Any]:
        """Returns schema and value of an object or an array. Raises ValueError or DataError for another text, and for a value
        that has no schema.
        """
        if not text.startswith(("{", "[")):
            raise ValueError("it begins with neither { nor [")
        found = json.loads(text, parse_constant=_no_number)
        known = name, _shape(found)
        schema = self._schemas.get(known)
        if schema is not None:
            return schema, self._value(found, schema)
        schema = self._schema(name, found)
        if schema is None:
            raise ValueError("it is an empty array")
        schema = self._same.setdefault(schema, schema)
        value = self._value(found, schema)
        validate_value(schema, value, name)  # all values of this shape fit, or none
        if len(self._schemas) >= _SCHEMAS_MAX:
            self._schemas.clear()
            self._same.clear()
            self._places.clear()
        self._schemas[known] = schema
        return schema, value

    def _schema(self, name: str | None, value: Any) -> Schema | None:
        match value:
            case None:
                return self._null
            case str():
                return OPTIONAL_STRING
            case bool():
                return OPTIONAL_BOOLEAN
            case int():
                return _int_schema(value)
            case float():
                return OPTIONAL_FLOAT64
            case list():
                return None if not value else SchemaBuilder.array(self._items(name, value)).optional().build()
            case _:
                return self._object(name, value)

    def _object(self, name: str | None, value: dict[str, Any]) -> Schema:
        builder = SchemaBuilder.struct(name).optional()
        taken: set[str] = set()
        for key, item in value.items():
            field = self._field_name(key)
            schema = self._schema(f"{name}.{field}" if name else field, item)
            if schema is not None and field not in taken:
                taken.add(field)
                builder.field(field, schema)
        return builder.build()

    def _items(self, name: str | None, items: list[Any]) -> Schema:
        there = [item for item in items if item is not None]
        if there and all(isinstance(item, dict) for item in there):
            structs = list(dict.fromkeys(self._object(name, item) for item in there))
            return structs[0] if len(structs) == 1 else _merged(structs)
        schemas = list(dict.fromkeys(self._schema(None, item) for item in there or items))
        if schemas[0] is None or (len(schemas) > 1 and not all(isinstance(item, list) for item in there)):
            raise ValueError("an array has values of several types, or of none")
        return schemas[0]

    def _value(self, value: Any, schema: Schema) -> Any:
        if isinstance(value, list):
            inner = schema.value_schema
            assert inner is not None, "arrays have the schema of their items"
            return [self._value(item, inner) for item in value]
        if not isinstance(value, dict):
            return value
        if schema.type is not Type.STRUCT:
            raise DataError(f"an object does not fit {schema!r}")
        places = self._places.setdefault(schema, {})
        values: list[Any] = [None] * len(schema.fields)
        for key, item in value.items():
            if item is None or (place := places.get(key) or self._place(places, schema, key)) is None:
                continue
            index, of = place
            if values[index] is None:
                values[index] = self._value(item, of) if isinstance(item, dict | list) else item
        return Struct.of_checked(schema, values)

    def _place(
        self, places: dict[str, tuple[int, Schema]], schema: Schema, key: str
    ) -> tuple[int, Schema] | None:
        """Finds the field of a name, and remembers it."""
        field = schema.field(self._field_name(key))
        if field is None:
            return None
        places[key] = field.index, field.schema
        return places[key]


def _shape(value: Any) -> Any:
    """Returns what the schema of a value depends on: names and types, without the values."""
    match value:
        case dict():
            return "{", *[(key, _shape(item)) for key, item in value.items()]
        case list():
            return "[", *dict.fromkeys(map(_shape, value))
        case bool():
            return bool
        case int():
            return _int_schema(value).type
        case _:
            return type(value)


def _int_schema(value: int) -> Schema:
    if -_INT32 <= value < _INT32:
        return OPTIONAL_INT32
    if -_INT64 <= value < _INT64:
        return OPTIONAL_INT64
    raise ValueError("a whole number has more than 64 bits")


def _merged(schemas: Sequence[Schema]) -> Schema:
    """Returns a struct with the fields of all. A null's bytes give way to another schema of the same field."""
    fields: dict[str, Schema] = {}
    for schema in schemas:
        for field in schema.fields:
            if field.name not in fields or fields[field.name].type is Type.BYTES:
                fields[field.name] = field.schema
    builder = SchemaBuilder.struct(schemas[0].name)
    for name, schema in fields.items():
        builder.field(name, schema)
    return builder.optional().build()


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")
