"""Debezium's change events as transforms see them: the envelope's schema, and the places of its fields.

An envelope is a struct whose schema's name ends with `.Envelope`. It has `op`, the row `before` and `after` the change,
and `source`. All other values (heartbeats, schema changes, tombstones) are none. A map without a schema, as JSON of
`schemas.enable=false` is read, is told by these fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm_base.configdef import Validator, invalid
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Field, Schema, Struct, Type

SUFFIX: Final = ".Envelope"
BEFORE: Final = "before"
AFTER: Final = "after"
OP: Final = "op"
_SOURCE: Final = "source"

CREATE, READ, UPDATE, DELETE = "c", "r", "u", "d"


def is_envelope(schema: Schema | None) -> bool:
    """Returns True if values of the schema are change events."""
    return (
        schema is not None
        and schema.name is not None
        and schema.name.endswith(SUFFIX)
        and schema.type is Type.STRUCT
    )


def is_bare_event(value: Any) -> bool:
    """Returns True for a change event without a schema."""
    return (
        isinstance(value, dict)
        and isinstance(value.get(OP), str)
        and isinstance(value.get(_SOURCE), dict)
        and not value.keys().isdisjoint((BEFORE, AFTER))
    )


def field_of(schema: Schema, name: str, where: str) -> Field:
    """Returns a field of a struct. Raises DataError that names the field and `where` it should be."""
    field = schema.field(name) if schema.type is Type.STRUCT else None
    if field is None:
        known = ", ".join(f.name for f in schema.fields)
        raise DataError(f"{where} has no field {name}; it has: {known or 'no fields'}")
    return field


def row_schema(envelope: Schema, name: str) -> Schema:
    """Returns the schema of the row `before` or `after`. Raises DataError for one that is no struct."""
    schema = field_of(envelope, name, f"the change event {envelope.name}").schema
    if schema.type is not Type.STRUCT:
        raise DataError(f"{name} of the change event {envelope.name} is {schema!r}, which should be a struct")
    return schema


def reader(field: Field) -> Callable[[list[Any]], Any]:
    """Returns a function that takes a field out of a struct's values, its default where it is null."""
    index, default = field.index, field.schema.default
    if default is None:
        return lambda values: values[index]
    return lambda values: default if values[index] is None else values[index]


def values_of(value: Any, schema: Schema) -> list[Any]:
    """Returns the values of a struct, whose fields must be those of the schema."""
    if not isinstance(value, Struct):
        raise DataError(f"a value of {schema!r} is a {type(value).__name__}, which should be a Struct")
    if value.schema is not schema and value.schema.fields != schema.fields:
        raise DataError(f"the fields of a struct are not those of its schema {schema!r}")
    return value.values


def one_of_words(*allowed: str) -> Validator:
    """Returns a validator that accepts one of these words, in any case, as Debezium's enumerations do."""

    def check(name: str, value: Any) -> None:
        if value is None or word(value) not in allowed:
            raise invalid(name, value, f"must be one of {', '.join(allowed)}")

    return check


def word(value: str) -> str:
    """Returns the word of an enumeration as it is compared."""
    return value.strip().lower()
