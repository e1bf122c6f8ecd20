"""Rows for MySQL and MariaDB as literals of one statement, made column by column.

The driver's own `executemany` escapes value by value. Here a column of texts is escaped in one go. The literals mean the
same as the driver's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, Final

import sqlalchemy as sa

from klamm_connectors.sql.statement import Columns, Statement

_BYTES_MAX: Final = 1_000_000
"""The length of a statement, as in PyMySQL: below the smallest `max_allowed_packet` that servers have by default."""
_NO_BACKSLASH_ESCAPES: Final = 0x200  # of the server's status, which comes with each of its answers
_APART: Final = "\0"  # between the texts of a column that are escaped together


def literals(column: Sequence[Any], *, backslashes: bool = True) -> list[str]:
    """Returns the SQL literals of these values. Raises TypeError or ValueError for a value that has none.

    `backslashes` are escapes, unless the server's SQL mode is NO_BACKSLASH_ESCAPES.
    """
    mark, values = marked(column, set(map(type, column)), backslashes=backslashes)
    return [mark % (value,) for value in values]


def marked(column: Sequence[Any], classes: set[type], *, backslashes: bool) -> tuple[str, Sequence[Any]]:
    """Returns a mark, and values that it formats (`%`) as literals: those of the column where one mark fits all."""
    if classes == {int}:
        return "%s", column
    if classes == {bool}:
        return "%d", column
    if classes == {float}:
        return _floats(column)
    if classes == {str}:
        return "'%s'", _escaped(column, backslashes)
    texts = iter(_escaped([v for v in column if v.__class__ is str], backslashes))
    return "%s", [f"'{next(texts)}'" if v.__class__ is str else _literal(v) for v in column]


def _literal(value: Any) -> str:
    made = _LITERALS.get(value.__class__)
    if made is None:
        raise TypeError(f"a value of {value.__class__.__name__} has no place in a column")
    return made(value)


def _escaped(texts: Sequence[str], backslashes: bool) -> list[str]:
    escaped = _escape(_APART.join(texts), backslashes)
    found = escaped.split(_APART)
    if len(found) != len(texts):  # one of them has the sign that is between them
        return [_escape(text, backslashes) for text in texts]
    return found


def _escape(text: str, backslashes: bool) -> str:
    if backslashes:
        text = text.replace("\\", "\\\\")
    return text.replace("'", "''")


def _floats(column: Sequence[float]) -> tuple[str, Sequence[str]]:
    """Returns the digits with an exponent: without it, they would be a DECIMAL."""
    found = list(map(repr, column))
    text = " ".join(found)
    if "n" in text:  # inf or nan
        raise ValueError(f"{next(v for v in found if 'n' in v)} is not a number that MySQL can hold")
    if "e" not in text:
        return "%se0", found
    return "%s", [v if "e" in v else v + "e0" for v in found]


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError(f"{value} is not a number that MySQL can hold")
    return str(value)


def _duration(value: timedelta) -> str:
    us = value // timedelta(microseconds=1)
    seconds, us = divmod(abs(us), 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if value < timedelta(0) else ""
    return f"'{sign}{hours:02d}:{minutes:02d}:{seconds:02d}" + (f".{us:06d}'" if us else "'")


_LITERALS: Final[dict[type, Callable[[Any], str]]] = {
    type(None): lambda _: "NULL",
    bool: lambda value: "1" if value else "0",
    int: str,
    float: lambda value: literals([value])[0],
    Decimal: _decimal,
    bytes: lambda value: f"_binary X'{value.hex()}'",
    date: lambda value: f"'{value.isoformat()}'",
    datetime: lambda value: f"'{value.isoformat(' ')}'",
    time: lambda value: f"'{value.isoformat()}'",
    timedelta: _duration,
}


class LiteralStatement(Statement):
    """An INSERT that PyMySQL gets as text, with many rows. `updated` names the columns that a row with the same key
    updates; None for an INSERT without.
    """

    def __init__(
        self,
        made: Any,
        binds: Any,
        dialect: sa.Dialect,
        *,
        table: sa.Table,
        names: Sequence[str],
        updated: Sequence[str] | None,
    ) -> None:
        super().__init__(made, binds, dialect)

        def quoted(name: str) -> str:
            return dialect.identifier_preparer.quote(name).replace("%%", "%")

        place = dialect.identifier_preparer.format_table(table).replace("%%", "%")
        self._head = f"INSERT INTO {place} ({', '.join(map(quoted, names))}) VALUES "  # noqa: S608  names are quoted
        self._tail = ""
        if updated is not None:
            alias, new = (" AS new", "new.{}") if _has_row_alias(dialect) else ("", "VALUES({})")
            changes = ", ".join(f"{quoted(n)} = {new.format(quoted(n))}" for n in updated)
            self._tail = f"{alias} ON DUPLICATE KEY UPDATE {changes}"

    def write(self, connection: sa.Connection, columns: Columns) -> None:
        driver: Any = connection.connection.driver_connection
        backslashes = not driver.server_status & _NO_BACKSLASH_ESCAPES
        marks, cells = [], []
        for cell in self.cells:
            column, classes = cell.with_classes(columns)
            mark, values = marked(column, classes, backslashes=backslashes)
            marks.append(mark)
            cells.append(values)
        self._send(connection, f"({','.join(marks)})", list(zip(*cells, strict=True)))

    def _send(self, connection: sa.Connection, mark: str, rows: list[tuple[Any, ...]]) -> None:
        values = ",".join([mark] * len(rows)) % tuple(chain.from_iterable(rows))
        statement = f"{self._head}{values}{self._tail}".encode()
        if len(statement) > _BYTES_MAX and len(rows) > 1:
            half = len(rows) // 2
            self._send(connection, mark, rows[:half])
            self._send(connection, mark, rows[half:])
            return
        run(connection, statement, f"{self._head}… {len(rows)} rows")


def _has_row_alias(dialect: Any) -> bool:
    """Returns True for MySQL from 8.0.19, which names the new row; the others have VALUES()."""
    return not dialect.is_mariadb and (dialect.server_version_info or (0,)) >= (8, 0, 19)


def run(connection: sa.Connection, statement: bytes, shown: str) -> None:
    """Runs a statement by the driver. Raises SQLAlchemy's errors, which show other words than the statement with its values."""
    dialect = connection.dialect
    assert dialect.dbapi is not None, "it belongs to a connection"
    cursor: Any = connection.connection.cursor()  # PyMySQL's takes bytes
    try:
        cursor.execute(statement)
    except dialect.loaded_dbapi.Error as e:
        lost = dialect.is_disconnect(e, connection.connection.dbapi_connection, cursor)
        error = sa.exc.DBAPIError.instance(
            shown, None, e, dialect.loaded_dbapi.Error, hide_parameters=True, connection_invalidated=lost, dialect=dialect
        )  # fmt: skip
        if lost:
            connection.invalidate(e)
        raise error from e
    finally:
        cursor.close()
