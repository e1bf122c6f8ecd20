"""Records as rows, in columns: names, kinds and values. Pure: no I/O.

Consecutive records of one shape share everything but their values. So the steps are decided once for a shape, and each
column is made in one go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, groupby
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
    keeps_order: bool
    """True when deletes stay between the writes that they came between (`insert.mode=insert`)."""
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


class Numbered:
    """The records of batches, numbered one after the other: a record is made only for the row that is bad."""

    def __init__(self) -> None:
        self._batches: list[SinkBatch] = []
        self._begins = [0]

    def add(self, batch: SinkBatch) -> range:
        """Returns the numbers of its records."""
        self._batches.append(batch)
        self._begins.append(self._begins[-1] + len(batch))
        return range(*self._begins[-2:])

    def record(self, number: int) -> SinkRecord:
        i = bisect_right(self._begins, number) - 1
        return self._batches[i][number - self._begins[i]]


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one layout, and their values column by column."""

    layout: Layout
    types: Mapping[str, ColumnType | None]
    records: Numbered
    numbers: Sequence[int]
    """The records' numbers; they ascend."""
    columns: Sequence[Sequence[Any]]

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, begin: int, end: int) -> Rows:
        """Returns the rows from `begin` to before `end`."""
        if begin == 0 and end >= len(self):
            return self
        return self._of(self.numbers[begin:end], [column[begin:end] for column in self.columns])

    def select(self, places: Sequence[int]) -> Rows:
        """Returns the rows at these places, which ascend."""
        if len(places) == len(self):
            return self
        columns = [[column[i] for i in places] for column in self.columns]
        return self._of([self.numbers[i] for i in places], columns)

    def _of(self, numbers: Sequence[int], columns: Sequence[Sequence[Any]]) -> Rows:
        return Rows(self.layout, self.types, self.records, numbers, columns)

    def keys(self) -> Iterable[Any]:
        """Returns the rows' keys. Layouts whose keys have the same names give out equal ones for equal keys."""
        columns = [self.columns[self.layout.columns.index(name)] for name in sorted(self.layout.key)]
        return columns[0] if len(columns) == 1 else zip(*columns, strict=True)

    def first(self) -> SinkRecord:
        return self.records.record(self.numbers[0])


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
        numbers = list(chain.from_iterable(rows.numbers for rows in those))
        found.append(Rows(layout, types, first.records, numbers, columns))
    return found


def halved(parts: Sequence[Rows]) -> tuple[list[Rows], list[Rows]]:
    """Returns the first and the second half of these rows, by their numbers. There are two rows at least."""
    numbers = sorted(chain.from_iterable(rows.numbers for rows in parts))
    middle = numbers[len(numbers) // 2]
    cuts = [(rows, bisect_left(rows.numbers, middle)) for rows in parts]
    first = [rows.part(0, cut) for rows, cut in cuts if cut]
    return first, [rows.part(cut, len(rows)) for rows, cut in cuts if cut < len(rows)]


class Cell(NamedTuple):
    """The place of a column's value: `place` in the record's value, key or coordinates (`origin`)."""

    name: str
    origin: int
    place: int
    schema: Schema | None
    type: ColumnType | None = None


_VALUE, _KEY, _PLACE = range(3)
_NULL: Final = type(None)
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
        self._divides = rules.delete_enabled and not rules.keeps_order
        self._plans: dict[Any, _Plan] = {}

    def rows(self, batches: Iterable[SinkBatch], refuse: Refuse) -> list[Rows]:
        """Returns the rows of records, as few parts as there are runs of one layout: of deletes, then of the others, or
        of all together if these keep their order.
        """
        records = Numbered()
        found = [
            rows
            for batch in batches
            for run in self._divided(batch, records)
            for shape, same in self._runs(run)
            for rows in self._of_shape(shape, same, refuse)
        ]
        if self._rules.keeps_order:
            return joined(found)
        return joined(sorted(found, key=lambda rows: not rows.layout.deletes))

    def _divided(self, batch: SinkBatch, records: Numbered) -> list[_Run]:
        """Returns a batch's records: those without a value apart from the others if they are deletes that need not stay
        between.
        """
        numbers, values, keys = records.add(batch), batch.values, None
        if self._uses_key:
            keys = [None] * len(batch) if batch.keys is None else batch.keys
        whole = _Run(batch, records, numbers.start, numbers, values, keys)
        classes = set(map(type, values))
        if not self._divides or _NULL not in classes or len(classes) == 1:
            return [whole]
        deleted = [i for i, value in enumerate(values) if value is None]
        written = [i for i, value in enumerate(values) if value is not None]
        return [whole.select(deleted), whole.select(written)]

    def _runs(self, run: _Run) -> Iterator[tuple[Any, _Run]]:
        """Yields the runs of one shape with that shape."""
        columns = [_shapes(run.values)] if run.keys is None else [_shapes(run.values), _shapes(run.keys)]
        common = (run.batch.value_schema, run.batch.key_schema if self._uses_key else None)
        if all(len(set(column)) == 1 for column in columns):
            yield (common, *(column[0] for column in columns)), run
            return
        begin = 0
        for shape, same in groupby(zip(*columns, strict=True)):
            end = begin + sum(1 for _ in same)
            yield (common, *shape), run.part(begin, end)
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
                refuse(run.record(0), DataError(f"{run.record(0).where}: {e}"))
                return []
        halves = run.part(0, size // 2), run.part(size // 2, size)
        return [rows for half in halves for rows in self._converted(plan, half, refuse)]

    def _in_columns(self, plan: _Plan, run: _Run) -> Rows:
        origins = {origin: run.columns(origin) for origin in {cell.origin for cell, _, _ in plan.cells}}
        columns, types = [], {}
        for cell, default, convert in plan.cells:
            try:
                column, types[cell.name] = _column(origins[cell.origin][cell.place], cell, default, convert)
                if cell.name in plan.layout.key:
                    column = _comparable(column)
            except (ValueError, OverflowError, TypeError, DataError) as e:
                if self._rules.trimmed:
                    raise DataError(f"field {cell.name}: {type(e).__name__}") from None
                raise DataError(f"field {cell.name}: {e}") from e
            columns.append(column)
        for place in plan.key_places:
            if None in columns[place]:
                raise DataError(f"field {plan.layout.columns[place]} of the primary key is null")
        return Rows(plan.layout, types, run.records, run.numbers, columns)

    def _plan(self, record: SinkRecord) -> _Plan:
        rules = self._rules
        if record.value is None:
            if not rules.delete_enabled:
                raise DataError(
                    f"{record.where}: the record has no value; set delete.enabled=true and pk.mode=record_key to delete by key"
                )
            return self._made(record, self._key_cells(record), [], deletes=True)
        values = _fields(record.value, record.value_schema, f"{record.where}: the value", _VALUE)
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
                key = _chosen(values, rules.pk_fields, f"{record.where}: the value")
        if rules.whitelist:
            values = [cell for cell in values if cell.name in rules.whitelist]
        return self._made(record, key, values)

    def _key_cells(self, record: SinkRecord) -> list[Cell]:
        where = f"{record.where}: the key"
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
            raise DataError(f"{record.where}: no field is left to write; see fields.whitelist")
        folded: dict[str, str] = {}
        for name in cells:
            if not name or "%(" in name or "\0" in name:
                raise DataError(f"{record.where}: field {name!r} cannot be the name of a column")
            if (other := folded.setdefault(self._rules.fold(name), name)) != name:
                raise DataError(f"{record.where}: fields {other} and {name} are the same column here")
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
    """Records of one batch, whose `first` record has that number; `keys` only where rows have parts of them."""

    batch: SinkBatch
    records: Numbered
    first: int
    numbers: Sequence[int]
    values: Sequence[Any]
    keys: Sequence[Any] | None

    def part(self, begin: int, end: int) -> _Run:
        keys = None if self.keys is None else self.keys[begin:end]
        return self._replace(numbers=self.numbers[begin:end], values=self.values[begin:end], keys=keys)

    def select(self, places: Sequence[int]) -> _Run:
        keys = None if self.keys is None else [self.keys[i] for i in places]
        numbers, values = [self.numbers[i] for i in places], [self.values[i] for i in places]
        return self._replace(numbers=numbers, values=values, keys=keys)

    def record(self, number: int) -> SinkRecord:
        return self.records.record(self.numbers[number])

    def columns(self, origin: int) -> Sequence[Sequence[Any]]:
        """Returns the values inside the records' values, keys or coordinates, column by column."""
        if origin == _PLACE:
            batch, size = self.batch, len(self.values)
            offsets = [batch.offsets[number - self.first] for number in self.numbers]
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
    return values, type_of_values(set(map(type, values)))


def _comparable(column: Sequence[Any]) -> Sequence[Any]:
    """Returns the values with nested ones as text: keys are compared with one another."""
    if not any(issubclass(cls, NESTED) for cls in set(map(type, column))):
        return column
    return [as_text(v) if isinstance(v, NESTED) else v for v in column]


def _shapes(items: Sequence[Any]) -> list[Any]:
    """Returns for each value or key what equal shapes have equal."""
    if set(map(type, items)) == {dict}:
        return list(map(tuple, items))
    return [
        item.schema if isinstance(item, Struct) else tuple(item) if isinstance(item, dict) else item.__class__
        for item in items
    ]


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
