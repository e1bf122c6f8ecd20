"""Records of statements that change tables: the topic of schema changes, and records of TRUNCATE TABLE.

The table's structure is that of the moment at which the statement is read. It is newer than the statement when the
reader is behind and the table was altered again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Final

from klamm_connectors.mysql import ddl
from klamm_connectors.mysql.events import Origin, source_schema, source_struct
from klamm_connectors.mysql.filters import Filters
from klamm_connectors.mysql.shape import Shape
from klamm_connectors.mysql.structure import CHANGE_SCHEMA
from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import INT64, OPTIONAL_STRING, STRING, Schema, SchemaBuilder, Struct

ChangeOf = Callable[[str, str, str], Struct]
"""Returns the change of type, database and table, with the table's structure."""

_CHANGES: Final = SchemaBuilder.array(CHANGE_SCHEMA).build()


class SchemaChanges:
    """Makes the records of schema changes. Asks for structures through `change_of`."""

    def __init__(self, filters: Filters, shape: Shape, change_of: ChangeOf) -> None:
        self._filters = filters
        self._shape = shape
        self._change_of = change_of
        begin = f"io.debezium.connector.{shape.connector}"
        self._key_schema: Schema = (
            SchemaBuilder.struct(f"{begin}.SchemaChangeKey").version(1).field("databaseName", STRING).build()
        )
        self._value_schema: Schema = (
            SchemaBuilder.struct(f"{begin}.SchemaChangeValue")
            .version(1)
            .field("source", source_schema(shape.connector))
            .field("ts_ms", INT64)
            .field("databaseName", OPTIONAL_STRING)
            .field("schemaName", OPTIONAL_STRING)
            .field("ddl", OPTIONAL_STRING)
            .field("tableChanges", _CHANGES)
            .build()
        )

    def records(  # noqa: PLR0917  called in one place for each statement
        self,
        statement: str,
        database: str,
        origin: Origin,
        partition: dict[str, Any],
        offset: dict[str, Any],
        now_ns: int,
    ) -> list[SourceRecord]:
        """Returns a record for each database whose captured tables the statement changes."""
        return [
            self.record(statement, name, list(changes), origin, partition, offset, now_ns)
            for name, changes in groupby(self._captured(statement, database), key=lambda one: one.database)
        ]

    def record(  # noqa: PLR0917  as `records`
        self,
        statement: str,
        database: str,
        changes: Iterable[ddl.Affected],
        origin: Origin,
        partition: dict[str, Any],
        offset: dict[str, Any],
        now_ns: int,
    ) -> SourceRecord:
        """Returns the record of one statement about tables of one database."""
        found = [one for one in changes if one.table is not None]
        structures = [self._change_of(one.type, one.database, one.table or "") for one in found]
        table = found[0].table if found else None
        source = source_struct(self._shape, database, table, origin)
        value = Struct.of_checked(
            self._value_schema, [source, now_ns // 1_000_000, database, None, statement, structures]
        )
        key = Struct.of_checked(self._key_schema, [database])
        return SourceRecord(
            partition,
            offset,
            self._shape.prefix,
            None,
            self._key_schema,
            key,
            self._value_schema,
            value,
            now_ns // 1_000_000,
        )

    def _captured(self, statement: str, database: str) -> list[ddl.Affected]:
        return [
            one
            for one in ddl.affected(statement, database)
            if (
                self._filters.database(one.database)
                if one.table is None
                else self._filters.table(one.database, one.table)
            )
        ]
