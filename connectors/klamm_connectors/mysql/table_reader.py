"""Reads one table in chunks over one connection, in the order of its key where it has a usable one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from klamm_connectors.mysql import server
from klamm_connectors.mysql.columns import Column, Kind, Table
from klamm_connectors.mysql.names import quoted
from klamm_connectors.mysql.text_rows import TextRows, decoded
from klamm_plugins.errors import ConnectError

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
_ORDER_WITHOUT_LIMIT: Final = re.compile(
    r"\border\s+by\b(?!.*\b(?:limit|order\s+by|fetch|for|lock)\b)", re.IGNORECASE | re.DOTALL
)
_ALL: Final = 2**64 - 1


class TableReader:
    """The rows of one table, `fetch_size` at once. `done` when a chunk was not full. For one thread.

    `statement` reads the rows in place of the whole table.
    """

    def __init__(self, connection: Any, table: Table, fetch_size: int, statement: str | None = None) -> None:
        self.table = table
        self.done = False
        self._connection = connection
        self._fetch_size = fetch_size
        self._statement = statement
        self._last: Sequence[Any] | None = None
        self._stream: TextRows | None = None

    def next(self) -> list[Sequence[Any]]:
        """Returns the next rows in columns, in the order of `table.columns`."""
        columns = self._by_key() if self._statement is None and can_page(self.table) else self._as_stream()
        self.done = len(columns[0]) < self._fetch_size
        return columns

    def _by_key(self) -> list[Sequence[Any]]:
        table = self.table
        columns = read_columns(self._connection, table, table.key, self._fetch_size, after_row=self._last)
        if columns[0]:
            self._last = key_of(table, table.key, [column[-1] for column in columns])
        return columns

    def _as_stream(self) -> list[Sequence[Any]]:
        """Reads one result that the server sends bit by bit."""
        if self._stream is None:
            self._stream = TextRows(self._connection, _select(self.table, self._statement))
        return decoded(self.table, self._stream.next(self._fetch_size))


def can_page(table: Table) -> bool:
    """Returns True when the table can be read by its key, chunk by chunk."""
    kinds = {c.name: c.kind for c in table.columns}
    return bool(table.key) and all(kinds[name] in _COMPARABLE for name in table.key)


def read_chunk(
    connection: Any, table: Table, key: Sequence[str], size: int, **limits: Any
) -> list[list[Any]]:
    """Does `read_columns`, and returns rows."""
    return list(map(list, zip(*read_columns(connection, table, key, size, **limits), strict=True)))


def read_columns(
    connection: Any,
    table: Table,
    key: Sequence[str],
    size: int,
    *,
    after_row: Sequence[Any] | None = None,
    up_to: Sequence[Any] | None = None,
    condition: str | None = None,
) -> list[Sequence[Any]]:
    """Returns the columns of rows in the order of `key`: those after one key, up to another, that meet a condition of the
    user's.
    """
    parts, args = [], list[Any]()
    if after_row is not None:
        text, more = _after(key, after_row)
        parts, args = [f"({text})"], more
    if up_to is not None:
        text, more = _after(key, up_to)
        nullable = any(c.nullable for c in table.columns if c.name in key)
        parts.append(f"({text}) IS NOT TRUE" if nullable else f"NOT ({text})")  # NOT NULL would be NULL
        args += more
    if condition:
        # The statement is formatted only when there are arguments, so only then a percent sign must be doubled.
        parts.append(f"({condition.replace('%', '%%') if args else condition})")
    where = f" WHERE {' AND '.join(parts)}" if parts else ""
    order = ", ".join(map(quoted, key))
    statement = f"{_select(table)}{where} ORDER BY {order} LIMIT {size}"
    return decoded(
        table, TextRows(connection, statement, args or None).next(size + 1)
    )  # one more: to its end


def last_key(connection: Any, table: Table, key: Sequence[str]) -> list[Any] | None:
    """Returns the greatest key in the table; None for an empty table."""
    names = ", ".join(map(quoted, key))
    order = ", ".join(f"{quoted(name)} DESC" for name in key)
    rows = server.run(connection, f"SELECT {names} FROM {_name(table)} ORDER BY {order} LIMIT 1")  # noqa: S608  names are quoted
    return list(rows[0]) if rows else None


def key_of(table: Table, key: Sequence[str], row: Sequence[Any]) -> list[Any]:
    """Returns a row's values of the key's columns."""
    places = {c.name: i for i, c in enumerate(table.columns)}
    return [row[places[name]] for name in key]


def _name(table: Table) -> str:
    return f"{quoted(table.database)}.{quoted(table.name)}"


def _select(table: Table, statement: str | None = None) -> str:
    columns = ", ".join(_expression(c) for c in table.columns)
    if not columns:
        raise ConnectError(f"{table.full_name} has no columns")
    source = _name(table) if statement is None else f"({_ordered(statement)}\n) AS overridden"
    return f"SELECT {columns} FROM {source}"  # noqa: S608  names are quoted


def _ordered(statement: str) -> str:
    """Returns a statement whose order also holds within another: servers drop an ORDER BY there if it has no LIMIT."""
    return f"{statement}\nLIMIT {_ALL}" if _ORDER_WITHOUT_LIMIT.search(statement) else statement


def _expression(column: Column) -> str:
    # The text protocol rounds a FLOAT to six digits; a DOUBLE arrives as it is stored.
    return f"({quoted(column.name)} * 1e0)" if column.kind is Kind.FLOAT else quoted(column.name)


def _after(key: Sequence[str], last: Sequence[Any]) -> tuple[str, list[Any]]:
    """Returns a condition for rows after `last` in the key's order, in a form that uses the key's index. NULL comes first."""
    parts, args = [], []
    for i, name in enumerate(key):
        equal = [
            f"{quoted(k)} = %s" if v is not None else f"{quoted(k)} IS NULL"
            for k, v in zip(key[:i], last, strict=False)
        ]
        greater = f"{quoted(name)} > %s" if last[i] is not None else f"{quoted(name)} IS NOT NULL"
        parts.append("(" + " AND ".join([*equal, greater]) + ")")
        args += [v for v in last[: i + 1] if v is not None]
    return " OR ".join(parts), args
