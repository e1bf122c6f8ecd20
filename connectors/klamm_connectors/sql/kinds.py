"""Kinds of columns: what fields of records and values without a schema become in a table. Pure: no I/O.

There are fewer kinds than SQL types and more than Connect types. Debezium's names for temporal values are
understood, so that a table that came through a topic gets the same types again. Without a schema (JSON with
schemas.enable=false) the values decide the kind of their column.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import reduce
from typing import Final, NamedTuple

from klamm_plugins import logical
from klamm_plugins.schema import Schema, Type


class Kind(StrEnum):
    BOOLEAN = "boolean"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    DECIMAL = "decimal"
    STRING = "string"
    BYTES = "bytes"
    DATE = "date"
    TIME = "time"
    DURATION = "duration"  # a TIME of MySQL, which may be negative and longer than a day
    TIMESTAMP = "timestamp"


class ColumnType(NamedTuple):
    """A kind of column, with `scale` and `precision` (0: unknown) of a decimal."""

    kind: Kind
    scale: int = 0
    precision: int = 0


_SIMPLE: Final = {
    Type.INT8: Kind.INT16, Type.INT16: Kind.INT16, Type.INT32: Kind.INT32, Type.INT64: Kind.INT64,
    Type.FLOAT32: Kind.FLOAT32, Type.FLOAT64: Kind.FLOAT64, Type.BOOLEAN: Kind.BOOLEAN, Type.STRING: Kind.STRING,
    Type.BYTES: Kind.BYTES, Type.ARRAY: Kind.STRING, Type.MAP: Kind.STRING, Type.STRUCT: Kind.STRING,
}  # fmt: skip
_NAMED: Final = {
    logical.DATE: Kind.DATE, logical.TIME: Kind.TIME, logical.TIMESTAMP: Kind.TIMESTAMP,
    "io.debezium.time.Date": Kind.DATE, "io.debezium.time.MicroTime": Kind.DURATION,
    "io.debezium.time.Time": Kind.DURATION, "io.debezium.time.Timestamp": Kind.TIMESTAMP,
    "io.debezium.time.MicroTimestamp": Kind.TIMESTAMP, "io.debezium.time.ZonedTimestamp": Kind.TIMESTAMP,
    "io.debezium.time.NanoTime": Kind.DURATION, "io.debezium.time.NanoTimestamp": Kind.TIMESTAMP,
    "io.debezium.time.IsoDate": Kind.DATE, "io.debezium.time.IsoTime": Kind.TIME, "io.debezium.time.IsoTimestamp": Kind.TIMESTAMP,
}  # fmt: skip
_OF_VALUES: Final[dict[type, Kind | None]] = {
    type(None): None, bool: Kind.BOOLEAN, int: Kind.INT64, float: Kind.FLOAT64, bytes: Kind.BYTES,
}  # fmt: skip
_NUMBERS: Final = (Kind.INT16, Kind.INT32, Kind.INT64, Kind.FLOAT32, Kind.FLOAT64)


def type_of_schema(schema: Schema) -> ColumnType:
    """Returns the column type of a field."""
    if logical.is_decimal(schema):
        precision = schema.parameters.get("connect.decimal.precision", "0")
        return ColumnType(
            Kind.DECIMAL, logical.decimal_scale(schema), int(precision) if precision.isdigit() else 0
        )
    return ColumnType(_NAMED.get(schema.name or "", _SIMPLE[schema.type]))


def type_of_values(classes: Iterable[type]) -> ColumnType | None:
    """Returns the column type of values of these classes without a schema; None if all are null, which fits any type."""
    kinds = (_OF_VALUES.get(cls, Kind.STRING) for cls in classes)
    return reduce(wider, (None if kind is None else ColumnType(kind) for kind in kinds), None)


def wider(one: ColumnType | None, other: ColumnType | None) -> ColumnType | None:
    """Returns a type that holds the numbers of both."""
    if one is None or other is None:
        return one or other
    if one.kind not in _NUMBERS or other.kind not in _NUMBERS or one.kind is other.kind:
        return one
    kind = max(one.kind, other.kind, key=_NUMBERS.index)
    return ColumnType(Kind.FLOAT64 if kind is Kind.FLOAT32 else kind)
