"""Records as rows, in columns: names, kinds and values. Pure: no I/O.

Consecutive records of one shape share everything but their values. So the steps are decided once for a shape, and each
column is made in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, groupby, repeat
from typing import Any, Final, NamedTuple

from klamm_connectors.sql.kinds import ColumnType, Kind, type_of_schema, type_of_values, wider
from klamm_connectors.sql.values import NESTED, Convert, TimeRules, as_text, converter
from klamm_plugins.batch import SinkBatch
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
    places: Sequence[tuple[SinkBatch, int]]
    """Each record as a batch and its number there: a record is made only for the row that is bad."""
    columns: Sequence[Sequence[Any]]

    def __len__(self) -> int:
        return len(self.places)

    def part(self, begin: int, end: int) -> Rows:
        """Returns the rows from `begin` to before `end`."""
        if begin == 0 and end >= len(self):
            return self
        columns = [column[begin:end] for column in self.columns]
        return Rows(self.layout, self.types, self.places[begin:end], columns)

    def first(self) -> SinkRecord:
        batch, number = self.places[0]
        return batch[number]


def joined(parts: Iterable[Rows]) -> list[Rows]:
    """Returns the rows with neighbours of one layout as one part, whatever their partitions."""
    found = []
    for layout, run in groupby(parts, lambda rows: rows.layout):
        first, *others = run
        if not others:
            found.append(first)
            continue
        those = [first, *others]
        types = {name: reduce(wider, (rows.types[name] for rows in those)) for name in layout.columns}
        columns = [
            list(chain.from_iterable(same)) for same in zip(*[rows.columns for rows in those], strict=True)
        ]
        found.append(Rows(layout, types, list(chain.from_iterable(rows.places for rows in those)), columns))
    return found


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

    def rows(self, batches: Iterable[SinkBatch], refuse: Refuse) -> list[Rows]:
        """Returns the rows of records in their order, as few parts as there are runs of one layout."""
        return joined(
            rows
            for batch in batches
            for shape, run in self._runs(batch)
            for rows in self._of_shape(shape, run, refuse)
        )

    def _runs(self, batch: SinkBatch) -> Iterator[tuple[Any, _Run]]:
        """Yields the runs of one shape with that shape."""
        columns = [_shapes(batch.values)]
        keys = None
        if self._uses_key:
            keys = [None] * len(batch) if batch.keys is None else batch.keys
            columns.append(_shapes(keys))
        common = (batch.value_schema, batch.key_schema if self._uses_key else None)
        whole = _Run(batch, 0, batch.values, keys)
        if all(len(set(column)) == 1 for column in columns):
            yield (common, *(column[0] for column in columns)), whole
            return
        begin = 0
        for shape, run in groupby(zip(*columns, strict=True)):
            end = begin + sum(1 for _ in run)
            yield (common, *shape), whole.part(begin, end)
            begin = end

    def _of_shape(self, shape: Any, run: _Run, refuse: Refuse) -> list[Rows]:
        plan = self._plans.get(shape)
        if plan is not None:
            return self._converted(plan, run, refuse)
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        try:
            plan = self._plans[shape] = self._plan(run.record(0))
        except DataError:  # it is about the shape; each record is refused by its own name
            for number in range(len(run.values)):
                refuse(run.record(number), self._unplanned(run.record(number)))
            return []
        return self._converted(plan, run, refuse)

    def _unplanned(self, record: SinkRecord) -> DataError:
        try:
            self._plan(record)
        except DataError as e:
            return e
        raise AssertionError("records of one shape have a plan, or none has")

    def _converted(self, plan: _Plan, run: _Run, refuse: Refuse) -> list[Rows]:
        """Returns the rows of a run. A run with a bad record is halved until that record is alone."""
        size = len(run.values)
        try:
            return [self._in_columns(plan, run)]
        except DataError as e:
            if size == 1:
                refuse(run.record(0), DataError(f"{_name(run.record(0))}: {e}"))
                return []
        halves = run.part(0, size // 2), run.part(size // 2, size)
        return [rows for half in halves for rows in self._converted(plan, half, refuse)]

    def _in_columns(self, plan: _Plan, run: _Run) -> Rows:
        origins = {origin: run.columns(origin) for origin in {cell.origin for cell, _, _ in plan.cells}}
        columns, types = [], {}
        for cell, default, convert in plan.cells:
            try:
                column, types[cell.name] = _column(origins[cell.origin][cell.place], cell, default, convert)
            except (ValueError, OverflowError, TypeError, DataError) as e:
                if self._rules.trimmed:
                    raise DataError(f"field {cell.name}: {type(e).__name__}") from None
                raise DataError(f"field {cell.name}: {e}") from e
            columns.append(column)
        for place in plan.key_places:
            if None in columns[place]:
                raise DataError(f"field {plan.layout.columns[place]} of the primary key is null")
        return Rows(plan.layout, types, run.places(), columns)

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


class _Run(NamedTuple):
    """Records of one batch and one shape, from number `begin` of the batch; `keys` only where rows have parts of them."""

    batch: SinkBatch
    begin: int
    values: Sequence[Any]
    keys: Sequence[Any] | None

    def part(self, begin: int, end: int) -> _Run:
        keys = None if self.keys is None else self.keys[begin:end]
        return _Run(self.batch, self.begin + begin, self.values[begin:end], keys)

    def record(self, number: int) -> SinkRecord:
        return self.batch[self.begin + number]

    def places(self) -> list[tuple[SinkBatch, int]]:
        return list(zip(repeat(self.batch), range(self.begin, self.begin + len(self.values)), strict=False))

    def columns(self, origin: int) -> Sequence[Sequence[Any]]:
        """Returns the values inside the records' values, keys or coordinates, column by column."""
        if origin == _PLACE:
            batch, size = self.batch, len(self.values)
            offsets = batch.offsets[self.begin : self.begin + size]
            return [batch.topic] * size, [batch.partition] * size, offsets
        items = self.values if origin == _VALUE else self.keys
        assert items, "a run has records, and keys where a cell is in them"
        if isinstance(items[0], Struct):
            return list(zip(*[item.values for item in items], strict=True))
        if isinstance(items[0], dict):
            return list(zip(*[item.values() for item in items], strict=True))
        return (items,)


def _column(
    values: Sequence[Any], cell: Cell, default: Any, convert: Convert | None
) -> tuple[Sequence[Any], ColumnType | None]:
    """Returns a column's values for the database, and its type."""
    if default is not None:
        values = [default if v is None else v for v in values]
    if convert is not None:
        values = [None if v is None else convert(v) for v in values]
    if cell.type is not None:
        return values, cell.type
    classes = set(map(type, values))
    if any(issubclass(cls, NESTED) for cls in classes):
        values = [as_text(v) if isinstance(v, NESTED) else v for v in values]
    return values, type_of_values(classes)


def _shapes(items: Sequence[Any]) -> list[Any]:
    """Returns for each value or key what equal shapes have equal."""
    if set(map(type, items)) == {dict}:
        return list(map(tuple, items))
    return [
        item.schema if isinstance(item, Struct) else tuple(item) if isinstance(item, dict) else item.__class__
        for item in items
    ]


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
