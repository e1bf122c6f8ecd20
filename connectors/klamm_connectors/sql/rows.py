"""Records as rows: names, kinds and values of columns. Pure: no I/O.

There are fewer kinds than SQL types and more than Connect types. Debezium's names for temporal values are
understood, so that a table that came through a topic gets the same types again. Without a schema (JSON with
schemas.enable=false) the value decides the kind of its column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """A kind of column, with `scale` and `precision` (0: unknown) of a decimal."""

    kind: Kind
    scale: int = 0
    precision: int = 0


@dataclass(frozen=True, slots=True)
class RowRules:
    """The settings that concern rows."""

    pk_mode: str
    pk_fields: tuple[str, ...]
    whitelist: frozenset[str]
    delete_enabled: bool
    zone: ZoneInfo


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The common shape of records: the columns to write, or only those of the key when it `deletes`."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    types: Mapping[str, ColumnType | None]
    deletes: bool = False


@dataclass(slots=True)
class Change:
    """One record as a change of one table: values in the order of the layout's columns."""

    record: SinkRecord
    layout: Layout
    values: list[Any]


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
    """Returns the column type of a field."""
    if logical.is_decimal(schema):
        precision = schema.parameters.get("connect.decimal.precision", "0")
        return ColumnType(
            Kind.DECIMAL, logical.decimal_scale(schema), int(precision) if precision.isdigit() else 0
        )
    return ColumnType(_NAMED.get(schema.name or "", _SIMPLE[schema.type]))


def type_of_value(value: Any) -> ColumnType | None:
    """Returns the column type of a value without a schema; None for null, which fits any type."""
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


Convert = Callable[[Any], Any]


def converter(schema: Schema | None, zone: ZoneInfo) -> Convert | None:
    """Returns a function that converts values for a column: dates and moments become Python's (moments without
    zone, in `zone`).

    Returns None where values need no conversion.
    """

    def moment(value: datetime) -> datetime:
        return value.astimezone(zone).replace(tzinfo=None)

    found: dict[str, Convert] = {
        logical.TIMESTAMP: moment,
        "io.debezium.time.Date": lambda value: date.fromordinal(value + _EPOCH_DAY),
        "io.debezium.time.MicroTime": lambda value: timedelta(microseconds=value),
        "io.debezium.time.Time": lambda value: timedelta(milliseconds=value),
        "io.debezium.time.Timestamp": lambda value: moment(_EPOCH + timedelta(milliseconds=value)),
        "io.debezium.time.MicroTimestamp": lambda value: moment(_EPOCH + timedelta(microseconds=value)),
        "io.debezium.time.ZonedTimestamp": lambda value: moment(datetime.fromisoformat(value)),
    }
    if schema is None:
        return None
    if schema.name in found:
        return found[schema.name]
    return _as_text if schema.type in {Type.ARRAY, Type.MAP, Type.STRUCT} else None


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


class Cell(NamedTuple):
    """The place of a column's value: `place` in the record's value, key or coordinates (`origin`)."""

    name: str
    origin: int
    place: int
    schema: Schema | None
    example: Any


_VALUE, _KEY, _PLACE = range(3)
_NESTED: Final = (Struct, dict, list, tuple)
_PLANS: Final = 2000  # shapes that are remembered; more are of records without a schema


class _Plan(NamedTuple):
    layout: Layout
    cells: list[tuple[str, int, int, Any, Convert | None]]
    key_places: list[int]


class RowMaker:
    """Turns records into changes. Raises DataError, which names the record and the reason.

    The steps are decided once for all records of one shape: their schemas, or the names and types of their
    values.
    """

    def __init__(self, rules: RowRules) -> None:
        self._rules = rules
        self._uses_key = rules.pk_mode == "record_key"
        self._plans: dict[Any, _Plan] = {}

    def change(self, record: SinkRecord) -> Change:
        value, value_shape = _opened(record.value, record.value_schema)
        key, key_shape = _opened(record.key, record.key_schema) if self._uses_key else ((), None)
        plan = self._plans.get((value_shape, key_shape))
        if plan is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            plan = self._plans[value_shape, key_shape] = self._plan(record)
        raw = (value, key, (record.topic, record.partition, record.offset))
        values, name = [], ""
        try:
            for name, origin, index, default, convert in plan.cells:  # noqa: B007  the name is for the error
                item = raw[origin][index]
                if item is None:
                    item = default
                values.append(item if convert is None or item is None else convert(item))
        except (ValueError, OverflowError, TypeError, DataError) as e:
            raise DataError(f"{_name(record)}: field {name}: {e}") from e
        for place in plan.key_places:
            if values[place] is None:
                raise DataError(
                    f"{_name(record)}: field {plan.layout.columns[place]} of the primary key is null"
                )
        return Change(record, plan.layout, values)

    def _plan(self, record: SinkRecord) -> _Plan:
        rules = self._rules
        if record.value is None:
            if not rules.delete_enabled:
                raise DataError(
                    f"{_name(record)}: the record has no value; set delete.enabled=true and pk.mode=record_key to delete by key"
                )
            return self._made(record, self._key_cells(record), [], deletes=True)
        values = _fields(record.value, record.value_schema, f"{_name(record)}: the value", _VALUE)
        key: list[Cell] = []
        match rules.pk_mode:
            case "kafka":
                names = rules.pk_fields or KAFKA_FIELDS
                found = (record.topic, record.partition, record.offset)
                key = [Cell(n, _PLACE, i, None, v) for i, (n, v) in enumerate(zip(names, found, strict=True))]
            case "record_key":
                key = self._key_cells(record)
            case "record_value":
                key = _chosen(values, rules.pk_fields, f"{_name(record)}: the value")
        if rules.whitelist:
            values = [cell for cell in values if cell.name in rules.whitelist]
        return self._made(record, key, values)

    def _key_cells(self, record: SinkRecord) -> list[Cell]:
        where = f"{_name(record)}: the key"
        fields = self._rules.pk_fields
        if record.key is None:
            raise DataError(f"{where} is null, but pk.mode=record_key takes the primary key from it")
        if isinstance(record.key, (Struct, dict)):
            return _chosen(_fields(record.key, record.key_schema, where, _KEY), fields, where)
        if len(fields) != 1:
            raise DataError(
                f"{where} is a single value: pk.fields must name one column for it, not {len(fields)}"
            )
        return [Cell(fields[0], _KEY, 0, record.key_schema, record.key)]

    def _made(
        self, record: SinkRecord, key: list[Cell], values: list[Cell], *, deletes: bool = False
    ) -> _Plan:
        cells = {cell.name: cell for cell in (*values, *key)}
        if not cells:
            raise DataError(f"{_name(record)}: no field is left to write; see fields.whitelist")
        for name in cells:
            if not name or "%(" in name or "\0" in name:
                raise DataError(f"{_name(record)}: field {name!r} cannot be the name of a column")
        types = {
            n: type_of_value(c.example) if c.schema is None else type_of_schema(c.schema)
            for n, c in cells.items()
        }
        layout = Layout(tuple(cells), tuple(cell.name for cell in key), types, deletes)
        steps = [(n, c.origin, c.place, _default(c), self._converter(c)) for n, c in cells.items()]
        return _Plan(layout, steps, [layout.columns.index(name) for name in layout.key])

    def _converter(self, cell: Cell) -> Convert | None:
        if cell.schema is None:
            return _as_text if isinstance(cell.example, _NESTED) else None
        return converter(cell.schema, self._rules.zone)


def widest(layouts: Iterable[Layout]) -> dict[str, ColumnType | None]:
    """Returns the columns of all these records, each with a type that holds the numbers of all."""
    found: dict[str, ColumnType | None] = {}
    for layout in layouts:
        for name, kind in layout.types.items():
            found[name] = _wider(found.get(name), kind)
    return found


def _wider(one: ColumnType | None, other: ColumnType | None) -> ColumnType | None:
    if one is None or other is None:
        return one or other
    order = (Kind.INT16, Kind.INT32, Kind.INT64, Kind.FLOAT32, Kind.FLOAT64)
    if one.kind not in order or other.kind not in order or one.kind is other.kind:
        return one
    kind = max(one.kind, other.kind, key=order.index)
    return ColumnType(Kind.FLOAT64 if kind is Kind.FLOAT32 else kind)


def _opened(value: Any, schema: Schema | None) -> tuple[Sequence[Any], Any]:
    """Returns the values inside, and the shape that equal records share."""
    if isinstance(value, Struct):
        return value.values, value.schema
    if isinstance(value, dict):
        inside = list(value.values())
        return inside, (schema, tuple(value), tuple(map(type, inside)))
    return (value,), (schema, type(value))


def _default(cell: Cell) -> Any:
    return cell.schema.default if cell.schema is not None else None


def _name(record: SinkRecord) -> str:
    return f"record {record.topic}-{record.partition}@{record.offset}"


def _fields(value: Any, schema: Schema | None, where: str, origin: int) -> list[Cell]:
    if isinstance(value, Struct):
        return [Cell(f.name, origin, f.index, f.schema, None) for f in value.schema.fields]
    if isinstance(value, dict):
        inner = schema.value_schema if schema is not None else None
        return [Cell(str(name), origin, i, inner, item) for i, (name, item) in enumerate(value.items())]
    raise DataError(
        f"{where} is {type(value).__name__}, not fields: a struct or a JSON object is needed (is the converter right?)"
    )


def _chosen(cells: list[Cell], names: Sequence[str], where: str) -> list[Cell]:
    if not names:
        return cells
    by_name = {cell.name: cell for cell in cells}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise DataError(
            f"{where} has no field {', '.join(missing)}, which pk.fields names; it has: {', '.join(by_name)}"
        )
    return [by_name[name] for name in names]
