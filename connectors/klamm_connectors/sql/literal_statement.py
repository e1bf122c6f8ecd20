"""Statements of literals for MySQL and MariaDB: one text has many rows, which PyMySQL sends as it is.

An INSERT and a DELETE take many rows each. MySQL has no UPDATE that does, so a text has one for each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from klamm_connectors.sql.literals import marked
from klamm_connectors.sql.statement import Binds, Columns, Statement

_BYTES_MAX: Final = 1_000_000
"""The length of a text, as in PyMySQL: below the smallest `max_allowed_packet` that servers have by default."""
_NO_BACKSLASH_ESCAPES: Final = 0x200  # of the server's status, which comes with each of its answers
_KEYS_MAX: Final = 500  # in a list: from 1000 on, MariaDB makes a table of them
_PLACE: Final = re.compile("%[s%]")


class Form(NamedTuple):
    """The parts of a text of many rows. `row` has the literals of one at its `%s`, and other percent signs twice."""

    head: str
    row: str
    between: str
    tail: str
    rows_max: int | None = None
    same_class: bool = False
    """True if all values of a column must have one class, because the server compares them with one another's rules."""


class LiteralStatement(Statement):
    """A statement that PyMySQL gets as text, with many rows."""

    def __init__(self, made: Any, binds: Binds, dialect: sa.Dialect, form: Form | None = None) -> None:
        super().__init__(made, binds, dialect)
        self._form = Form("", self.sql, ";", "") if form is None else form

    def write(self, connection: sa.Connection, columns: Columns) -> int:
        driver: Any = connection.connection.driver_connection
        backslashes = not driver.server_status & _NO_BACKSLASH_ESCAPES
        marks, cells = [], []
        for cell in self.cells:
            column, classes = cell.with_classes(columns)
            if self._form.same_class and len(classes) > 1:
                return super().write(connection, columns)
            mark, values = marked(column, classes, backslashes=backslashes)
            marks.append(mark)
            cells.append(values)
        given = iter(marks)
        row = _PLACE.sub(lambda found: "%%" if found[0] == "%%" else next(given), self._form.row)
        return self._send(connection, row, list(zip(*cells, strict=True)))

    def _send(self, connection: sa.Connection, row: str, rows: list[tuple[Any, ...]]) -> int:
        form, count = self._form, len(rows)
        if form.rows_max is not None and count > form.rows_max:
            parts = (rows[begin : begin + form.rows_max] for begin in range(0, count, form.rows_max))
            return sum(self._send(connection, row, part) for part in parts)
        values = form.between.join([row] * count) % tuple(chain.from_iterable(rows))
        text = f"{form.head}{values}{form.tail}".encode()
        if len(text) > _BYTES_MAX and count > 1:
            half = count // 2
            return self._send(connection, row, rows[:half]) + self._send(connection, row, rows[half:])
        return _run(connection, text, f"{form.head or self.sql}… {count} rows")


def inserting(
    table: sa.Table, binds: Binds, dialect: sa.Dialect, updated: Sequence[str] | None
) -> LiteralStatement:
    """Returns an INSERT. `updated` names the columns that a row with the same key updates; None for an INSERT without."""
    tail = ""
    if updated is not None:
        alias, new = (" AS new", "new.{}") if _has_row_alias(dialect) else ("", "VALUES({})")
        quoted = _quoted(updated, dialect)
        tail = f"{alias} ON DUPLICATE KEY UPDATE {', '.join(f'{n} = {new.format(n)}' for n in quoted)}"
    head = f"INSERT INTO {_place(table, dialect)} ({', '.join(_quoted(binds, dialect))}) VALUES "  # noqa: S608  names are quoted
    return LiteralStatement(
        sa.insert(table).values(dict(binds)), binds, dialect, Form(head, _row(len(binds)), ",", tail)
    )


def deleting(made: Any, table: sa.Table, binds: Binds, dialect: sa.Dialect) -> LiteralStatement:
    """Returns a DELETE of the rows with these values in these columns."""
    several = len(binds) > 1
    names = ", ".join(_quoted(binds, dialect))
    head = f"DELETE FROM {_place(table, dialect)} WHERE {f'({names})' if several else names} IN ("  # noqa: S608
    row = _row(len(binds)) if several else "%s"
    return LiteralStatement(made, binds, dialect, Form(head, row, ",", ")", _KEYS_MAX, same_class=True))


def _row(count: int) -> str:
    return f"({','.join(['%s'] * count)})"


def _quoted(names: Iterable[str], dialect: sa.Dialect) -> list[str]:
    return [dialect.identifier_preparer.quote(name).replace("%%", "%") for name in names]


def _place(table: sa.Table, dialect: sa.Dialect) -> str:
    return dialect.identifier_preparer.format_table(table).replace("%%", "%")


def _has_row_alias(dialect: Any) -> bool:
    """Returns True for MySQL from 8.0.19, which names the new row; the others have VALUES()."""
    return not dialect.is_mariadb and (dialect.server_version_info or (0,)) >= (8, 0, 19)


def _run(connection: sa.Connection, text: bytes, shown: str) -> int:
    """Runs a statement, or several, by the driver, and returns how many rows the first changed. Raises SQLAlchemy's errors,
    which show other words than the text with its values.
    """
    dialect = connection.dialect
    assert dialect.dbapi is not None, "it belongs to a connection"
    cursor: Any = connection.connection.cursor()  # PyMySQL's takes bytes
    try:
        changed: int = cursor.execute(text)
        while cursor.nextset():
            pass
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
    return changed
