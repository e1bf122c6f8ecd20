"""Rows as Connect records: Debezium's envelope or the plain row. Pure: no I/O, time is passed in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, repeat
from typing import Any, Final

from klamm_base.version import __version__
from klamm_connectors.mysql.column_rules import Mapped
from klamm_connectors.mysql.columns import Column, Table
from klamm_connectors.mysql.rows import Unreadable
from klamm_connectors.mysql.shape import Shape
from klamm_connectors.mysql.transactions import BLOCK_SCHEMA, TransactionCount
from klamm_connectors.mysql.values import Convert, builder_and_converter, stand_in
from klamm_connectors.mysql.view import View
from klamm_plugins.batch import SourceBatch
from klamm_plugins.columns import Repeated, StructColumn
from klamm_plugins.errors import ConfigError, DataError
from klamm_plugins.records import Headers, SourceRecord
from klamm_plugins.schema import (
    INT32,
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaBuilder,
    Struct,
    Type,
)
from klamm_plugins.transforms.debezium.renaming import field_adjuster, schema_adjuster

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]")
_NEW_KEY: Final = "__debezium.newkey"
_OLD_KEY: Final = "__debezium.oldkey"
_SNAPSHOTS: Final = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"


@cache
def source_schema(connector: str) -> Schema:
    """Returns the schema of `source`, whose name has the connector's: `mysql` or `mariadb`."""
    return (
        SchemaBuilder.struct(f"io.debezium.connector.{connector}.Source")
        .version(1)
        .field("version", STRING)
        .field("connector", STRING)
        .field("name", STRING)
        .field("ts_ms", INT64)
        .field(
            "snapshot",
            SchemaBuilder(Type.STRING)
            .name("io.debezium.data.Enum")
            .version(1)
            .parameter("allowed", _SNAPSHOTS)
            .default("false")
            .optional()
            .build(),
        )
        .field("db", STRING)
        .field("ts_us", OPTIONAL_INT64)
        .field("ts_ns", OPTIONAL_INT64)
        .field("table", OPTIONAL_STRING)
        .field("server_id", INT64)
        .field("gtid", OPTIONAL_STRING)
        .field("file", STRING)
        .field("pos", INT64)
        .field("row", INT32)
        .build()
    )


@dataclass(frozen=True, slots=True)
class Origin:
    """Place and time of a change, for the envelope's `source`."""

    ts_ns: int
    """Epoch nanoseconds. Those of MariaDB's binlog are whole seconds, those of MySQL's GTID events whole microseconds."""
    server_id: int
    gtid: str | None
    file: str
    pos: int
    snapshot: str | None = None
    """None in records of the binlog: a reader gets the field's default, `false`."""
    transaction: TransactionCount | None = None


def topic_name(shape: Shape, database: str, table: str) -> str:
    """Returns `prefix.database.table`, with `_` for characters that a topic's name cannot hold."""
    return _ILLEGAL.sub("_", shape.delimiter.join((shape.prefix, database, table)))


class TableEvents:
    """Makes the records of one table, with the present schemas of its columns.

    A row's values are those of the captured columns, followed by columns that only the key has: these are not
    captured, or a rule hides their values.
    """

    def __init__(self, table: Table, view: View, shape: Shape) -> None:
        self._shape = shape
        self._table = table
        self.topic = topic_name(shape, table.database, table.name)
        self._schema_name, self._field_name = (
            schema_adjuster(shape.schema_names),
            field_adjuster(shape.field_names),
        )
        self._columns: list[tuple[int, Convert | None, Any]] = []
        self._unchecked: list[tuple[int, Convert | None, Any]] = []
        fields = [
            (column.name, self._add(index, column, view.mapped.get(column.name)))
            for index, column in enumerate(table.columns)
            if column.name in view.captured
        ]
        self._width = len(fields)
        self._row_schema = self._struct("Value", fields).build()
        self._optional_row = self._struct("Value", fields).optional().build()
        key = self._add_key(view, dict(fields))
        self._plain_key = shape.plain_keys and len(self._keys) == 1
        self._key_schema = self._key_schema_of(key)
        self._cut = len(self._columns) > self._width
        self._source_schema = source_schema(shape.connector)
        self._envelope = self._envelope_schema()
        self._origin: Origin | None = None
        self._place: list[Any] = []  # the source block of the records of one origin, without the row

    @property
    def row_schema(self) -> Schema:
        return self._row_schema

    def _add(self, index: int, column: Column, mapped: Mapped | None) -> Schema:
        """Adds a column of the table to the values of rows and returns its schema."""
        modes = self._shape.modes
        built, convert = builder_and_converter(column, replace(modes, refused_later=False))
        unchecked = builder_and_converter(column, modes)[1] if modes.refused_later else convert
        missing = None if column.nullable else stand_in(column)
        if mapped is not None:
            for name, value in mapped.parameters.items():
                built.parameter(name, value)
            convert, unchecked = _chained(convert, mapped.change), _chained(unchecked, mapped.change)
            missing = mapped.fixed if mapped.fixed is not None else missing
        self._columns.append((index, convert, missing))
        self._unchecked.append((index, unchecked, missing))
        return built.optional().build() if column.nullable else built.build()

    def _add_key(self, view: View, shown: Mapping[str, Schema]) -> list[tuple[str, Schema]]:
        """Finds the key's columns among the values of rows, or adds them there, and returns their names and schemas."""
        places = {name: place for place, name in enumerate(shown)}
        indexes = {column.name: index for index, column in enumerate(self._table.columns)}
        self._keys: list[int] = []
        found = []
        for name in view.key:
            if name in shown and name not in view.mapped:
                self._keys.append(places[name])
                found.append((name, shown[name]))
            elif name in indexes:
                self._keys.append(len(self._columns))
                index = indexes[name]
                found.append((name, self._add(index, self._table.columns[index], None)))
        return found

    def _struct(self, suffix: str, fields: Sequence[tuple[str, Schema]]) -> SchemaBuilder:
        built = SchemaBuilder.struct(self._schema_name(f"{self.topic}.{suffix}"))
        taken: dict[str, str] = {}
        for name, schema in fields:
            adjusted = self._field_name(name)
            if adjusted in taken:
                raise ConfigError(
                    f"columns {taken[adjusted]} and {name} of {self._table.full_name} would both be the field {adjusted}: "
                    "leave one out by column.exclude.list, or choose another field.name.adjustment.mode",
                    key="field.name.adjustment.mode",
                )
            taken[adjusted] = name
            built.field(adjusted, schema)
        return built

    def _key_schema_of(self, fields: list[tuple[str, Schema]]) -> Schema | None:
        if not fields:
            return None
        return fields[0][1] if self._plain_key else self._struct("Key", fields).build()

    def _envelope_schema(self) -> Schema:
        return (
            SchemaBuilder.struct(self._schema_name(f"{self.topic}.Envelope"))
            .version(2)
            .field("before", self._optional_row)
            .field("after", self._optional_row)
            .field("source", self._source_schema)
            .field("transaction", BLOCK_SCHEMA)
            .field("op", STRING)
            .field("ts_ms", OPTIONAL_INT64)
            .field("ts_us", OPTIONAL_INT64)
            .field("ts_ns", OPTIONAL_INT64)
            .build()
        )

    def convert(self, row: Sequence[Any]) -> list[Any]:
        """Converts the values of captured columns to Connect's. Raises DataError for a value that does not fit."""
        return _values(row, self._columns)

    def convert_flawed(self, row: Sequence[Any]) -> list[Any]:
        """Converts as `convert` does it a row that may have `Unreadable` values. Raises DataError for one."""
        self._check_readable(row, self._columns)
        return self.convert(row)

    def convert_unchecked(self, row: Sequence[Any]) -> list[Any]:
        """Converts a row whose record its converter is to refuse (`refused_later`), for values that stay as they are."""
        values = _values([None if type(value) is Unreadable else value for value in row], self._unchecked)
        for at, (index, _, _) in enumerate(self._unchecked):
            if type(row[index]) is Unreadable:
                values[at] = row[index]
        return values

    def key_of(self, row: Sequence[Any]) -> Any:
        """Returns the key of a row whose other values may not fit; None without a key. Raises DataError."""
        if self._key_schema is None:
            return None
        columns = [self._columns[i] for i in self._keys]
        self._check_readable(row, columns)
        values = _values(row, columns)
        return values[0] if self._plain_key else Struct.of_checked(self._key_schema, values)

    @staticmethod
    def _check_readable(row: Sequence[Any], columns: Sequence[tuple[int, Convert | None, Any]]) -> None:
        flaw = next((row[i] for i, _, _ in columns if type(row[i]) is Unreadable), None)
        if flaw is not None:
            raise DataError(flaw.why)

    def converted(self, columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Converts columns of the table to columns of values, as `convert` does it for a row."""
        return [_converted(columns[index], convert, missing) for index, convert, missing in self._columns]

    def key(self, values: Sequence[Any]) -> Any:
        """Returns the record's key; None for a table without a key."""
        if self._key_schema is None:
            return None
        if self._plain_key:
            return values[self._keys[0]]
        return Struct.of_checked(self._key_schema, [values[i] for i in self._keys])

    def _shown(self, values: list[Any] | None) -> list[Any] | None:
        return values[: self._width] if values is not None and self._cut else values

    def records(  # noqa: PLR0917  called for every row: names would cost
        self,
        op: str,
        before: list[Any] | None,
        after: list[Any] | None,
        origin: Origin,
        partition: dict[str, Any],
        offset: dict[str, Any],
        row: int,
        now_ns: int,
    ) -> list[SourceRecord]:
        """Returns the records of one changed row: one, or more when its key changed or a tombstone follows."""
        old = self.key(before) if before is not None else None if after is None else self.key(after)
        return self.keyed(op, old, before, after, origin, partition, offset, row, now_ns)

    def keyed(  # noqa: PLR0917  as above
        self,
        op: str,
        old: Any,
        before: list[Any] | None,
        after: list[Any] | None,
        origin: Origin,
        partition: dict[str, Any],
        offset: dict[str, Any],
        row: int,
        now_ns: int,
    ) -> list[SourceRecord]:
        """Returns the same, for a row whose `old` key is known; its other values before the change may not be."""
        key = old if after is None else self.key(after)
        if op == "u" and self._keys and old != key:
            gone = self.keyed("d", old, before, None, origin, partition, offset, row, now_ns)
            come = self.keyed("c", None, None, after, origin, partition, offset, row, now_ns)
            for records, name, other in ((gone, _NEW_KEY, key), (come, _OLD_KEY, old)):
                for record in records:
                    record.headers = Headers.of((name, other, self._key_schema))
            return gone + come
        if self._shape.rows_only:
            if after is None:
                return [self._tombstone(key, partition, offset, now_ns)] if key is not None else []
            value = Struct.of_checked(self._row_schema, self._shown(after) or [])
            return [SourceRecord(partition, offset, self.topic, None, self._key_schema, key, self._row_schema, value, now_ns // 1_000_000)]  # fmt: skip
        if self._cut:
            before, after = self._shown(before), self._shown(after)
        value = self._value(op, before, after, origin, row, now_ns)
        record = SourceRecord(
            partition,
            offset,
            self.topic,
            None,
            self._key_schema,
            key,
            self._envelope,
            value,
            now_ns // 1_000_000,
        )
        if op == "d" and self._shape.tombstones and key is not None:
            return [record, self._tombstone(key, partition, offset, now_ns)]
        return [record]

    def batch(  # noqa: PLR0917  called for every event: names would cost
        self,
        op: str,
        before: list[Sequence[Any]] | None,
        after: list[Sequence[Any]] | None,
        origins: Sequence[tuple[Origin, int]],
        partition: dict[str, Any],
        positions: Sequence[Any],
        offset_of: Callable[[Any], dict[str, Any]],
        rows: Sequence[int],
        now_ns: int,
    ) -> SourceBatch:
        """Returns the records of many rows, whose values are in columns. Each has one: ask `one_for_each` and `same_keys`.

        `origins` has the rows' origins, each with the number of its rows.
        """
        count = len(rows)
        values = after if after is not None else before
        assert values is not None, "a change has at least one image of its row"
        return SourceBatch(
            partition,
            self.topic,
            self._values(op, before, after, origins, rows, now_ns),
            positions,
            offset_of=offset_of,
            value_schema=self._row_schema if self._shape.rows_only else self._envelope,
            keys=self._key_column(values, count),
            key_schema=self._key_schema,
            timestamp=now_ns // 1_000_000,
        )

    def one_for_each(self, op: str) -> bool:
        """Returns True when each row of such a change has one record, but for updates of keys."""
        return op != "d" or not (self._shape.rows_only or (self._shape.tombstones and self._keys))

    def same_keys(self, before: list[Sequence[Any]], after: list[Sequence[Any]]) -> bool:
        """Returns True when no row's key differs between its images, which are in columns."""
        return all(before[i] == after[i] for i in self._keys)

    def _key_column(self, values: Sequence[Sequence[Any]], count: int) -> Sequence[Any] | None:
        if self._key_schema is None:
            return None
        if self._plain_key:
            return values[self._keys[0]]
        return StructColumn(self._key_schema, [values[i] for i in self._keys], count)

    def _values(  # noqa: PLR0917  as above
        self,
        op: str,
        before: list[Sequence[Any]] | None,
        after: list[Sequence[Any]] | None,
        origins: Sequence[tuple[Origin, int]],
        rows: Sequence[int],
        now_ns: int,
    ) -> StructColumn:
        count, optional = len(rows), self._optional_row
        images = [None if image is None else image[: self._width] for image in (before, after)]
        if self._shape.rows_only:
            return StructColumn(self._row_schema, images[1] or [], count)
        counted = origins[0][0].transaction  # rows that are counted come event by event
        values: list[Sequence[Any]] = [
            *(Repeated(None, count) if i is None else StructColumn(optional, i, count) for i in images),
            StructColumn(self._source_schema, [*self._sources(origins, count), rows], count),
            Repeated(None, count) if counted is None else counted.blocks(self._table.full_name, count),
            *(Repeated(value, count) for value in (op, *moment(now_ns))),
        ]
        return StructColumn(self._envelope, values, count)

    def _sources(self, origins: Sequence[tuple[Origin, int]], count: int) -> list[Sequence[Any]]:
        """Returns the columns of the `source` blocks, without the row."""
        database, name = self._table.database, self._table.name
        places = [source_values(self._shape, database, name, origin) for origin, _ in origins]
        counts = [rows for _, rows in origins]
        return [
            Repeated(values[0], count)
            if values.count(values[0]) == len(values)
            else list(chain.from_iterable(map(repeat, values, counts)))
            for values in zip(*places, strict=True)
        ]

    def truncated(
        self, origin: Origin, partition: dict[str, Any], offset: dict[str, Any], now_ns: int
    ) -> SourceRecord | None:
        """Returns the record of a TRUNCATE TABLE; None where only envelopes could tell it."""
        if self._shape.rows_only:
            return None
        value = self._value("t", None, None, origin, 0, now_ns)
        return SourceRecord(
            partition, offset, self.topic, None, None, None, self._envelope, value, now_ns // 1_000_000
        )

    def _source(self, origin: Origin, row: int) -> Struct:
        if origin is not self._origin:
            self._origin = origin
            self._place = source_values(self._shape, self._table.database, self._table.name, origin)
        return Struct.of_checked(self._source_schema, [*self._place, row])

    def _value(  # noqa: PLR0917  called for every row: names would cost
        self,
        op: str,
        before: list[Any] | None,
        after: list[Any] | None,
        origin: Origin,
        row: int,
        now_ns: int,
    ) -> Struct:
        count = origin.transaction
        values = [
            None if before is None else Struct.of_checked(self._optional_row, before),
            None if after is None else Struct.of_checked(self._optional_row, after),
            self._source(origin, row),
            None if count is None else count.block(self._table.full_name),
            op,
            *moment(now_ns),
        ]
        return Struct.of_checked(self._envelope, values)

    def _tombstone(
        self, key: Any, partition: dict[str, Any], offset: dict[str, Any], now_ns: int
    ) -> SourceRecord:
        return SourceRecord(
            partition, offset, self.topic, None, self._key_schema, key, None, None, now_ns // 1_000_000
        )


def source_struct(shape: Shape, database: str, table: str | None, origin: Origin) -> Struct:
    """Returns the `source` block of a record that belongs to no row."""
    return Struct.of_checked(
        source_schema(shape.connector), [*source_values(shape, database, table, origin), 0]
    )


def source_values(shape: Shape, database: str, table: str | None, origin: Origin) -> list[Any]:
    """Returns the values of a `source` block, without the row."""
    ms, us, ns = moment(origin.ts_ns)
    return [
        __version__,
        shape.connector,
        shape.prefix,
        ms,
        origin.snapshot,
        database,
        us,
        ns,
        table,
        origin.server_id,
        origin.gtid,
        origin.file,
        origin.pos,
    ]


def moment(ns: int) -> tuple[int, int, int]:
    """Returns a time of nanoseconds in milliseconds, microseconds and nanoseconds."""
    return ns // 1_000_000, ns // 1_000, ns


def _converted(column: Sequence[Any], convert: Convert | None, missing: Any) -> Sequence[Any]:
    if missing is not None:
        column = [missing if value is None else value for value in column]
    return column if convert is None else [None if value is None else convert(value) for value in column]


def _values(row: Sequence[Any], columns: Sequence[tuple[int, Convert | None, Any]]) -> list[Any]:
    found = []
    for index, convert, missing in columns:
        value = row[index]
        if value is None:
            value = missing
        found.append(value if convert is None or value is None else convert(value))
    return found


def _chained(first: Convert | None, then: Convert) -> Convert:
    return then if first is None else lambda value: then(first(value))
