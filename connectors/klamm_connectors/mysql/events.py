"""Rows as Connect records: Debezium's envelope or the plain row. Pure: no I/O, time is passed in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.version import __version__
from klamm_connectors.mysql.columns import Table
from klamm_connectors.mysql.values import Convert, Modes, builder_and_converter, stand_in
from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import (
    INT32,
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaBuilder,
    Struct,
)

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]")

SOURCE_SCHEMA: Final = (
    SchemaBuilder.struct("io.debezium.connector.mysql.Source")
    .field("version", STRING)
    .field("connector", STRING)
    .field("name", STRING)
    .field("ts_ms", INT64)
    .field("snapshot", OPTIONAL_STRING)
    .field("db", STRING)
    .field("table", OPTIONAL_STRING)
    .field("server_id", INT64)
    .field("gtid", OPTIONAL_STRING)
    .field("file", STRING)
    .field("pos", INT64)
    .field("row", INT32)
    .build()
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The configured form of records."""

    prefix: str
    connector: str = "mysql"
    rows_only: bool = False
    plain_keys: bool = False
    tombstones: bool = True
    modes: Modes = field(default_factory=Modes)


@dataclass(frozen=True, slots=True)
class Origin:
    """Place and time of a change, for the envelope's `source`. Times are in milliseconds."""

    ts_ms: int
    server_id: int
    gtid: str | None
    file: str
    pos: int
    snapshot: str | None = None


def topic_name(prefix: str, database: str, table: str) -> str:
    """Returns `prefix.database.table`, with `_` for characters that a topic's name cannot hold."""
    return _ILLEGAL.sub("_", f"{prefix}.{database}.{table}")


class TableEvents:
    """Makes the records of one table, with the present schemas of its columns."""

    def __init__(self, table: Table, captured: Mapping[str, bool], shape: Shape) -> None:
        self._shape = shape
        self._table = table
        self.topic = topic_name(shape.prefix, table.database, table.name)
        self._columns: list[tuple[int, Convert | None, Any]] = []
        value, row = (
            SchemaBuilder.struct(f"{self.topic}.Value"),
            SchemaBuilder.struct(f"{self.topic}.Value").optional(),
        )
        for index, column in enumerate(table.columns):
            if not captured.get(column.name, True):
                continue
            built, convert = builder_and_converter(column, shape.modes)
            schema = built.optional().build() if column.nullable else built.build()
            value.field(column.name, schema)
            row.field(column.name, schema)
            missing = None if column.nullable else stand_in(column)
            self._columns.append((index, convert, missing))
        self._row_schema = value.build()
        optional_row = row.build()
        self._optional_row = optional_row
        self._keys = self._key_fields()
        self._plain_key = shape.plain_keys and len(self._keys) == 1
        self._key_schema = self._make_key_schema()
        self._envelope = (
            SchemaBuilder.struct(f"{self.topic}.Envelope")
            .version(1)
            .field("before", optional_row)
            .field("after", optional_row)
            .field("source", SOURCE_SCHEMA)
            .field("op", STRING)
            .field("ts_ms", OPTIONAL_INT64)
            .build()
        )

    @property
    def row_schema(self) -> Schema:
        return self._row_schema

    def _key_fields(self) -> list[int]:
        places = {f.name: f.index for f in self._row_schema.fields}
        return [places[name] for name in self._table.key if name in places]

    def _make_key_schema(self) -> Schema | None:
        if not self._keys:
            return None
        if self._plain_key:
            return self._row_schema.fields[self._keys[0]].schema
        builder = SchemaBuilder.struct(f"{self.topic}.Key")
        for index in self._keys:
            field = self._row_schema.fields[index]
            builder.field(field.name, field.schema)
        return builder.build()

    def convert(self, row: Sequence[Any]) -> list[Any]:
        """Converts the values of captured columns to Connect's."""
        found = []
        for index, convert, missing in self._columns:
            value = row[index]
            if value is None:
                value = missing
            found.append(value if convert is None or value is None else convert(value))
        return found

    def key(self, values: Sequence[Any]) -> Any:
        """Returns the record's key; None for a table without a primary key."""
        if self._key_schema is None:
            return None
        if self._plain_key:
            return values[self._keys[0]]
        return Struct.of_checked(self._key_schema, [values[i] for i in self._keys])

    def records(  # noqa: PLR0917  called for every row: names would cost
        self,
        op: str,
        before: list[Any] | None,
        after: list[Any] | None,
        origin: Origin,
        partition: dict[str, Any],
        offset: dict[str, Any],
        row: int,
        now_ms: int,
    ) -> list[SourceRecord]:
        """Returns the records of one changed row: one, or more when its key changed or a tombstone follows."""
        if op == "u" and before is not None and after is not None and self._keys:
            old, new = self.key(before), self.key(after)
            if old != new:
                gone = self.records("d", before, None, origin, partition, offset, row, now_ms)
                return gone + self.records("c", None, after, origin, partition, offset, row, now_ms)
        values = after if after is not None else before
        assert values is not None, "a change has at least one image of its row"
        key = self.key(values)
        if self._shape.rows_only:
            if after is None:
                return [self._tombstone(key, partition, offset, now_ms)] if key is not None else []
            value = Struct.of_checked(self._row_schema, after)
            return [SourceRecord(partition, offset, self.topic, None, self._key_schema, key, self._row_schema, value, now_ms)]  # fmt: skip
        value = Struct.of_checked(
            self._envelope,
            [
                None if before is None else Struct.of_checked(self._optional_row, before),
                None if after is None else Struct.of_checked(self._optional_row, after),
                self._source(origin, row),
                op,
                now_ms,
            ],
        )
        record = SourceRecord(
            partition, offset, self.topic, None, self._key_schema, key, self._envelope, value, now_ms
        )
        if op == "d" and self._shape.tombstones and key is not None:
            return [record, self._tombstone(key, partition, offset, now_ms)]
        return [record]

    def _tombstone(
        self, key: Any, partition: dict[str, Any], offset: dict[str, Any], now_ms: int
    ) -> SourceRecord:
        return SourceRecord(partition, offset, self.topic, None, self._key_schema, key, None, None, now_ms)

    def _source(self, origin: Origin, row: int) -> Struct:
        return Struct.of_checked(
            SOURCE_SCHEMA,
            [
                __version__,
                self._shape.connector,
                self._shape.prefix,
                origin.ts_ms,
                origin.snapshot,
                self._table.database,
                self._table.name,
                origin.server_id,
                origin.gtid,
                origin.file,
                origin.pos,
                row,
            ],
        )
