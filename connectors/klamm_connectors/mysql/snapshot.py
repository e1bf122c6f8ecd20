"""Reads the tables as they were at one position of the binlog, in chunks by primary key.

All chunks come from one consistent transaction, so rows and position fit exactly: changes before the
position are in the rows, later changes are in the binlog. MariaDB tells the position of a snapshot without
any lock; MySQL needs a global read lock for a moment. A snapshot that breaks off starts again, because its
transaction is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm_connectors.mysql import server
from klamm_connectors.mysql.columns import Column, Kind, Table
from klamm_connectors.mysql.filters import Filters
from klamm_connectors.mysql.position import Position
from klamm_plugins.errors import ConfigError, ConnectError

log = logging.getLogger(__name__)

_COMPARABLE: Final = frozenset(Kind) - {
    Kind.FLOAT,
    Kind.DOUBLE,
    Kind.BIT,
    Kind.ENUM,
    Kind.SET,
    Kind.GEOMETRY,
    Kind.TIME,
    Kind.DATE,
    Kind.DATETIME,
    Kind.TIMESTAMP,
    Kind.YEAR,
}
"""Kinds whose values compare equal to themselves when they are sent back to the server. A zero date would not."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one table, in the order of `table.columns`."""

    table: Table
    rows: list[list[Any]]


class Snapshot:
    """One snapshot. The constructor opens it, `next_chunk` reads it. For one thread."""

    def __init__(self, source: server.Server, facts: server.ServerFacts, filters: Filters, fetch_size: int, *, lock: bool) -> None:  # fmt: skip
        self._fetch_size = fetch_size
        self._connection = source.connect()
        self.rows = 0
        try:
            self.position = self._begin(facts, lock=lock)
            self.tables = self._describe(
                filters
            )  # inside: what is altered before this is in the rows as well
        except BaseException:
            self.close()
            raise
        self._left = list(self.tables)
        self._last: tuple[Any, ...] | None = None
        self._cursor: Any = None

    def close(self) -> None:
        if self._connection.open:
            self._connection.close()

    def next_chunk(self) -> Chunk | None:
        """Returns the next rows, never an empty list; None when all tables are read."""
        while self._left:
            table = self._left[0]
            rows = self._read_by_key(table) if _can_page(table) else self._read_stream(table)
            if len(rows) < self._fetch_size:
                self._left.pop(0)
                self._last = None
            if rows:
                self.rows += len(rows)
                return Chunk(table, rows)
        return None

    def _describe(self, filters: Filters) -> list[Table]:
        found = []
        for database, name, kind in server.tables(self._connection):
            if filters.table(database, name):
                if kind == "SYSTEM VERSIONED":
                    raise ConfigError(
                        f"{database}.{name} is system-versioned: its history would come as rows of its own; leave it out by "
                        "table.exclude.list or table.include.list",
                        key="table.exclude.list",
                    )
                table = server.describe(self._connection, database, name)
                if table is not None:
                    found.append(table)
        return found

    def _begin(self, facts: server.ServerFacts, *, lock: bool) -> Position:
        connection = self._connection
        server.run(connection, "SET SESSION wait_timeout = 86400")  # a full pipeline may stand still for long
        server.run(connection, "SET SESSION net_write_timeout = 86400")
        server.run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if facts.is_mariadb:
            server.run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            status = dict(server.run(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
            found = {str(k).lower(): v for k, v in status.items()}
            file, pos = str(found["binlog_snapshot_file"]), int(found["binlog_snapshot_position"])
            return Position(server.mariadb_gtid(connection, file, pos), file, pos)
        if lock:
            server.run(connection, "FLUSH TABLES WITH READ LOCK")
        try:
            server.run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            file, pos, executed = server.end_of_binlog(connection)
        finally:
            if lock:
                server.run(connection, "UNLOCK TABLES")
        return Position(executed if facts.gtid else None, file, pos)

    def _read_by_key(self, table: Table) -> list[list[Any]]:
        where, args = "", list[Any]()
        if self._last is not None:
            where, args = _after(table.key, self._last)
        order = ", ".join(map(quoted, table.key))
        statement = f"{_select(table)}{where} ORDER BY {order} LIMIT {self._fetch_size}"
        rows = self._rows(table, server.run(self._connection, statement, args or None))
        if rows:
            places = {c.name: i for i, c in enumerate(table.columns)}
            self._last = tuple(rows[-1][places[name]] for name in table.key)
        return rows

    def _read_stream(self, table: Table) -> list[list[Any]]:
        """Reads a table without a usable key: one result that the server sends bit by bit."""
        from pymysql.cursors import SSCursor

        if self._cursor is None:
            self._cursor = self._connection.cursor(SSCursor)
            self._cursor.execute(_select(table))
        found = self._cursor.fetchmany(self._fetch_size)
        if len(found) < self._fetch_size:
            self._cursor.close()
            self._cursor = None
        return self._rows(table, found)

    def _rows(self, table: Table, found: Sequence[Sequence[Any]]) -> list[list[Any]]:
        fixes = [
            i for i, c in enumerate(table.columns) if c.kind in {Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP}
        ]
        rows = [list(row) for row in found]
        for i in fixes:
            for row in rows:
                if isinstance(row[i], str):
                    row[i] = None  # a zero date, which PyMySQL gives as its text
        return rows


def position_now(source: server.Server, facts: server.ServerFacts) -> Position:
    """Returns the end of the binlog, for a start without a snapshot."""
    connection = source.connect()
    try:
        file, pos, executed = server.end_of_binlog(connection)
        if facts.is_mariadb:
            return Position(server.mariadb_gtid(connection, file, pos), file, pos)
        return Position(executed if facts.gtid else None, file, pos)
    finally:
        connection.close()


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _can_page(table: Table) -> bool:
    kinds = {c.name: c.kind for c in table.columns}
    return bool(table.key) and all(kinds[name] in _COMPARABLE for name in table.key)


def _select(table: Table) -> str:
    columns = ", ".join(_expression(c) for c in table.columns)
    if not columns:
        raise ConnectError(f"{table.full_name} has no columns")
    return f"SELECT {columns} FROM {quoted(table.database)}.{quoted(table.name)}"  # noqa: S608  names are quoted


def _expression(column: Column) -> str:
    # The text protocol rounds a FLOAT to six digits; a DOUBLE arrives as it is stored.
    return f"({quoted(column.name)} * 1e0)" if column.kind is Kind.FLOAT else quoted(column.name)


def _after(key: Sequence[str], last: Sequence[Any]) -> tuple[str, list[Any]]:
    """Returns a condition for rows after `last` in the key's order, in a form that uses the key's index."""
    parts, args = [], []
    for i, name in enumerate(key):
        equal = [f"{quoted(k)} = %s" for k in key[:i]]
        parts.append("(" + " AND ".join([*equal, f"{quoted(name)} > %s"]) + ")")
        args += [*last[:i], last[i]]
    return f" WHERE {' OR '.join(parts)}", args
