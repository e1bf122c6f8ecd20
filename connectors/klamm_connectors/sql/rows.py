"""Records as rows, in columns: names, kinds and values. Pure: no I/O.

Consecutive records of one shape share everything but their values. So the steps are decided once for a shape, and each
column is made in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

from klamm_connectors.sql.kinds import ColumnType, Kind, type_of_schema, type_of_values
from klamm_connectors.sql.values import NESTED, Convert, TimeRules, as_text, converter
from klamm_plugins.errors import DataError
from klamm_plugins.records import SinkRecord
from klamm_plugins.schema import Schema, Struct

KAFKA_FIELDS: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
Refuse = Callable[[SinkRecord, DataError], None]


@dataclass(frozen=True, slots=True)
class RowRules:
    """The settings that concern rows."""

    pk_mode: str
    pk_fields: tuple[str, ...]
    whitelist: frozenset[str]
    delete_enabled: bool
    times: TimeRules
    fold: Callable[[str], str]
    """Makes names equal that the database takes for one column."""
    null_as_default: bool = True
    """True when a null is replaced by its field's default."""
    trimmed: bool = False
    """True when errors leave out what they say of a value (`trim.sensitive.log`)."""


class Layout(NamedTuple):
    """The common shape of rows: the fields to write, or only those of the key when it `deletes`."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one layout, and their values column by column."""

    layout: Layout
    types: Mapping[str, ColumnType | None]
    records: Sequence[SinkRecord]
    columns: Sequence[Sequence[Any]]

    def __len__(self) -> int:
        return len(self.records)

    def part(self, begin: int, end: int) -> Rows:
        """Returns the rows from `begin` to before `end`."""
        return Rows(
            self.layout, self.types, self.records[begin:end], [column[begin:end] for column in self.columns]
        )


def halved(parts: Sequence[Rows]) -> tuple[list[Rows], list[Rows]]:
    """Returns the first and the second half of these rows, in their order. There are two rows at least."""
    left = sum(map(len, parts)) // 2
    first: list[Rows] = []
    for i, rows in enumerate(parts):
        if len(rows) > left:
            cut = [rows.part(0, left)] if left else []
            return first + cut, [rows.part(left, len(rows)), *parts[i + 1 :]]
        first.append(rows)
        left -= len(rows)
    raise AssertionError("the second half is not empty")


class Cell(NamedTuple):
    """The place of a column's value: `place` in the record's value, key or coordinates (`origin`)."""

    name: str
    origin: int
    place: int
    schema: Schema | None
    type: ColumnType | None = None


_VALUE, _KEY, _PLACE = range(3)
_PLANS: Final = 2000  # shapes that are remembered; more are of records without a schema


class _Plan(NamedTuple):
    layout: Layout
    cells: list[tuple[Cell, Any, Convert | None]]
    """Each cell with the value for nulls and its converter."""
    key_places: list[int]


class RowMaker:
    """Turns records into rows. Refuses a record with an error that names it and the reason."""

    def __init__(self, rules: RowRules) -> None:
        self._rules = rules
        self._uses_key = rules.pk_mode == "record_key"
        self._plans: dict[Any, _Plan] = {}

    def rows(self, records: Iterable[SinkRecord], refuse: Refuse) -> list[Rows]:
        """Returns the rows of records in their order, as few parts as there are runs of one shape."""
        found: list[Rows] = []
        for shape, run in groupby(records, self._shape):
            found += self._of_shape(shape, list(run), refuse)
        return found

    def _shape(self, record: SinkRecord) -> Any:
        value = _shape_of(record.value, record.value_schema)
        return (value, _shape_of(record.key, record.key_schema)) if self._uses_key else value

    def _of_shape(self, shape: Any, run: list[SinkRecord], refuse: Refuse) -> list[Rows]:
        plan = self._plans.get(shape)
        if plan is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            for place, record in enumerate(run):
                try:
                    plan = self._plans[shape] = self._plan(record)
                except DataError as e:  # it is the record's own, or that of all with this shape
                    refuse(record, e)
                    continue
                return self._converted(plan, run[place:], refuse)
            return []
        return self._converted(plan, run, refuse)

    def _converted(self, plan: _Plan, run: list[SinkRecord], refuse: Refuse) -> list[Rows]:
        """Returns the rows of a run. A run with a bad record is halved until that record is alone."""
        try:
            return [self._in_columns(plan, run)]
        except DataError as e:
            if len(run) == 1:
                refuse(run[0], DataError(f"{_name(run[0])}: {e}"))
                return []
        half = len(run) // 2
        return self._converted(plan, run[:half], refuse) + self._converted(plan, run[half:], refuse)

    def _in_columns(self, plan: _Plan, run: list[SinkRecord]) -> Rows:
        origins = {origin: _opened(run, origin) for origin in {cell.origin for cell, _, _ in plan.cells}}
        columns, types = [], {}
        for cell, default, convert in plan.cells:
            column = origins[cell.origin][cell.place]
            try:
                if default is not None:
                    column = [default if v is None else v for v in column]
                if convert is not None:
                    column = [None if v is None else convert(v) for v in column]
                types[cell.name] = cell.type
                if cell.type is None:
                    classes = set(map(type, column))
                    types[cell.name] = type_of_values(classes)
                    if any(issubclass(cls, NESTED) for cls in classes):
                        column = [as_text(v) if isinstance(v, NESTED) else v for v in column]
            except (ValueError, OverflowError, TypeError, DataError) as e:
                if self._rules.trimmed:
                    raise DataError(f"field {cell.name}: {type(e).__name__}") from None
                raise DataError(f"field {cell.name}: {e}") from e
            columns.append(column)
        for place in plan.key_places:
            if None in columns[place]:
                raise DataError(f"field {plan.layout.columns[place]} of the primary key is null")
        return Rows(plan.layout, types, run, columns)

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
                kinds = (Kind.STRING, Kind.INT64, Kind.INT64)
                key = [
                    Cell(n, _PLACE, i, None, ColumnType(kind))
                    for i, (n, kind) in enumerate(zip(names, kinds, strict=True))
                ]
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
        return [Cell(fields[0], _KEY, 0, record.key_schema)]

    def _made(
        self, record: SinkRecord, key: list[Cell], values: list[Cell], *, deletes: bool = False
    ) -> _Plan:
        cells = {cell.name: cell for cell in (*values, *key)}
        if not cells:
            raise DataError(f"{_name(record)}: no field is left to write; see fields.whitelist")
        folded: dict[str, str] = {}
        for name in cells:
            if not name or "%(" in name or "\0" in name:
                raise DataError(f"{_name(record)}: field {name!r} cannot be the name of a column")
            if (other := folded.setdefault(self._rules.fold(name), name)) != name:
                raise DataError(f"{_name(record)}: fields {other} and {name} are the same column here")
        layout = Layout(tuple(cells), tuple(cell.name for cell in key), deletes)
        steps = [self._step(cell) for cell in cells.values()]
        return _Plan(layout, steps, [layout.columns.index(name) for name in layout.key])

    def _step(self, cell: Cell) -> tuple[Cell, Any, Convert | None]:
        convert = converter(cell.name, cell.schema, self._rules.times) if cell.origin != _PLACE else None
        default = None
        if cell.schema is not None:
            default = cell.schema.default if self._rules.null_as_default else None
            cell = cell._replace(type=type_of_schema(cell.schema))
        if convert is not None and cell.name in self._rules.times.fields:
            cell = cell._replace(type=ColumnType(Kind.TIMESTAMP))
        return cell, default, convert


def _shape_of(value: Any, schema: Schema | None) -> Any:
    """Returns what equal shapes have equal."""
    if isinstance(value, Struct):
        return value.schema
    if isinstance(value, dict):
        return schema, tuple(value)
    return schema, value.__class__


def _opened(run: list[SinkRecord], origin: int) -> Sequence[Sequence[Any]]:
    """Returns the values inside the records' values, keys or coordinates, column by column."""
    if origin == _PLACE:
        return [r.topic for r in run], [r.partition for r in run], [r.offset for r in run]
    items = [r.value for r in run] if origin == _VALUE else [r.key for r in run]
    if isinstance(items[0], Struct):
        return list(zip(*[item.values for item in items], strict=True))
    if isinstance(items[0], dict):
        return list(zip(*[item.values() for item in items], strict=True))
    return (items,)


def _name(record: SinkRecord) -> str:
    return f"record {record.topic}-{record.partition}@{record.offset}"


def _fields(value: Any, schema: Schema | None, where: str, origin: int) -> list[Cell]:
    if isinstance(value, Struct):
        return [Cell(f.name, origin, f.index, f.schema) for f in value.schema.fields]
    if isinstance(value, dict):
        inner = schema.value_schema if schema is not None else None
        return [Cell(str(name), origin, i, inner) for i, name in enumerate(value)]
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
