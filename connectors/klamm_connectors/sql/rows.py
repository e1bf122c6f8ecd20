"""Records as rows: names, kinds and values of columns. Pure: no I/O.

The kinds are fewer than SQL's types and more than Connect's: Debezium's names for temporal values are understood, so
that a table that came through a topic gets the same types again. Without a schema (JSON with schemas.enable=false) the
kind of a column is that of the value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from klamm_plugins import logical
from klamm_plugins.errors import DataError
from klamm_plugins.records import SinkRecord
from klamm_plugins.schema import Schema, Struct, Type

KAFKA_FIELDS: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


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
    """A kind; `scale` and `precision` (0: not known) of a decimal."""

    kind: Kind
    scale: int = 0
    precision: int = 0


@dataclass(frozen=True, slots=True)
class RowRules:
    """What the configuration says about rows."""

    pk_mode: str
    pk_fields: tuple[str, ...]
    whitelist: frozenset[str]
    delete_enabled: bool
    zone: ZoneInfo


@dataclass(slots=True)
class Change:
    """One record as a change of one table: `row` are all columns to write, or the key alone when it deletes."""

    record: SinkRecord
    key: tuple[str, ...]
    row: dict[str, Any]
    types: dict[str, ColumnType | None]
    deletes: bool = False


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
}  # fmt: skip


def type_of_schema(schema: Schema) -> ColumnType:
    """The column type of a field."""
    if logical.is_decimal(schema):
        precision = schema.parameters.get("connect.decimal.precision", "0")
        return ColumnType(
            Kind.DECIMAL, logical.decimal_scale(schema), int(precision) if precision.isdigit() else 0
        )
    return ColumnType(_NAMED.get(schema.name or "", _SIMPLE[schema.type]))


def type_of_value(value: Any) -> ColumnType | None:
    """The column type of a value without a schema; None for null, which could be anything."""
    match value:
        case None:
            return None
        case bool():
            return ColumnType(Kind.BOOLEAN)
        case int():
            return ColumnType(Kind.INT64)
        case float():
            return ColumnType(Kind.FLOAT64)
        case bytes():
            return ColumnType(Kind.BYTES)
        case _:
            return ColumnType(Kind.STRING)


def plain_value(schema: Schema | None, value: Any, zone: ZoneInfo) -> Any:
    """A value as a column takes it: dates and moments as Python's (moments without zone, in `zone`), rest as is."""
    if value is None:
        return None
    match schema.name if schema is not None else None:
        case "org.apache.kafka.connect.data.Timestamp":
            return value.astimezone(zone).replace(tzinfo=None)
        case "io.debezium.time.Date":
            return date.fromordinal(value + _EPOCH_DAY)
        case "io.debezium.time.MicroTime":
            return timedelta(microseconds=value)
        case "io.debezium.time.Time":
            return timedelta(milliseconds=value)
        case "io.debezium.time.Timestamp":
            return (_EPOCH + timedelta(milliseconds=value)).astimezone(zone).replace(tzinfo=None)
        case "io.debezium.time.MicroTimestamp":
            return (_EPOCH + timedelta(microseconds=value)).astimezone(zone).replace(tzinfo=None)
        case "io.debezium.time.ZonedTimestamp":
            return datetime.fromisoformat(value).astimezone(zone).replace(tzinfo=None)
        case _:
            return _as_text(value) if isinstance(value, (Struct, dict, list, tuple)) else value


def _as_text(value: Any) -> str:
    data = value.to_dict() if isinstance(value, Struct) else value
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=_json_default)


def _json_default(value: Any) -> Any:
    match value:
        case Struct():
            return value.to_dict()
        case Decimal():
            return str(value)
        case date() | time() | datetime():
            return value.isoformat()
        case bytes():
            return value.decode("latin-1")
        case _:
            raise DataError(f"{type(value).__name__} cannot be written as JSON")


Cells = list[tuple[str, Schema | None, Any]]


class RowMaker:
    """Makes changes of records. DataError says which record cannot be one, and why."""

    def __init__(self, rules: RowRules) -> None:
        self._rules = rules
        self._types: dict[Schema, ColumnType] = {}

    def change(self, record: SinkRecord) -> Change:
        rules = self._rules
        if record.value is None:
            if not rules.delete_enabled:
                raise DataError(
                    f"{_name(record)}: the record has no value; set delete.enabled=true and pk.mode=record_key to delete by key"
                )
            return self._made(record, self._key_cells(record), [], deletes=True)
        values = _fields(record.value, record.value_schema, f"{_name(record)}: the value")
        key: Cells = []
        match rules.pk_mode:
            case "kafka":
                names = rules.pk_fields or KAFKA_FIELDS
                found = (record.topic, record.partition, record.offset)
                key = [(name, None, value) for name, value in zip(names, found, strict=True)]
            case "record_key":
                key = self._key_cells(record)
            case "record_value":
                key = _chosen(values, rules.pk_fields, f"{_name(record)}: the value")
        if rules.whitelist:
            values = [cell for cell in values if cell[0] in rules.whitelist]
        return self._made(record, key, values)

    def _key_cells(self, record: SinkRecord) -> Cells:
        where = f"{_name(record)}: the key"
        fields = self._rules.pk_fields
        if record.key is None:
            raise DataError(f"{where} is null, but pk.mode=record_key takes the primary key from it")
        if isinstance(record.key, (Struct, dict)):
            return _chosen(_fields(record.key, record.key_schema, where), fields, where)
        if len(fields) != 1:
            raise DataError(
                f"{where} is a single value: pk.fields must name one column for it, not {len(fields)}"
            )
        return [(fields[0], record.key_schema, record.key)]

    def _made(self, record: SinkRecord, key: Cells, values: Cells, *, deletes: bool = False) -> Change:
        row: dict[str, Any] = {}
        types: dict[str, ColumnType | None] = {}
        for name, schema, value in (*values, *key):
            try:
                row[name] = plain_value(schema, value, self._rules.zone)
            except (ValueError, OverflowError, TypeError, DataError) as e:
                raise DataError(f"{_name(record)}: field {name}: {e}") from e
            types[name] = type_of_value(value) if schema is None else self._type(schema)
        for name, _, value in key:
            if value is None:
                raise DataError(f"{_name(record)}: field {name} of the primary key is null")
        if not row:
            raise DataError(f"{_name(record)}: no field is left to write; see fields.whitelist")
        return Change(record, tuple(name for name, _, _ in key), row, types, deletes)

    def _type(self, schema: Schema) -> ColumnType:
        found = self._types.get(schema)
        if found is None:
            found = self._types[schema] = type_of_schema(schema)
        return found


def _name(record: SinkRecord) -> str:
    return f"record {record.topic}-{record.partition}@{record.offset}"


def _fields(value: Any, schema: Schema | None, where: str) -> Cells:
    if isinstance(value, Struct):
        return [(f.name, f.schema, value.get(f.name)) for f in value.schema.fields]
    if isinstance(value, Mapping):
        inner = schema.value_schema if schema is not None else None
        return [(str(name), inner, item) for name, item in value.items()]
    raise DataError(
        f"{where} is {type(value).__name__}, not fields: a struct or a JSON object is needed (is the converter right?)"
    )


def _chosen(cells: Cells, names: Sequence[str], where: str) -> Cells:
    if not names:
        return cells
    by_name = {cell[0]: cell for cell in cells}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise DataError(
            f"{where} has no field {', '.join(missing)}, which pk.fields names; it has: {', '.join(by_name)}"
        )
    return [by_name[name] for name in names]
