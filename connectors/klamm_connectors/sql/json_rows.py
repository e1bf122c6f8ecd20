"""Rows for PostgreSQL as one JSON text, which the server makes rows of again (`json_populate_recordset`).

It is one parameter of one statement, for any driver. The server reads each value as its column's own type reads text. So a
column takes part only with types whose text means the same here and there; other rows are written by the driver.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import repeat
from typing import Any, Final

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from klamm_connectors.sql.statement import Binds, Columns, Statement

ROWS: Final = "klamm_rows"
_BYTES_MAX: Final = 16_000_000  # of a text; the server holds its rows in memory
_NULL: Final = type(None)
_CLASSES: Final[list[tuple[type[sa.types.TypeEngine[Any]], set[type]]]] = [
    (sa.Enum, set()),  # a kind of String that is not one here
    (sa.JSON, {str, _NULL}),
    (sa.Integer, {int, _NULL}),
    (sa.Numeric, {int, float, Decimal, _NULL}),
    (sa.Float, {int, float, Decimal, _NULL}),
    (sa.String, {str, _NULL}),
    (sa.Boolean, {bool, _NULL}),
    (sa.Date, {date, _NULL}),
    (sa.DateTime, {datetime, _NULL}),
    (sa.Time, {time, _NULL}),
    (sa.LargeBinary, {bytes, _NULL}),
]
"""Types of columns with the classes of values that go into them as JSON."""


def classes_of(type_: sa.types.TypeEngine[Any]) -> set[type]:
    """Returns the classes of values that a column of this type takes as JSON; none for types that JSON cannot write."""
    return next((classes for kind, classes in _CLASSES if isinstance(type_, kind)), set())


def written(column: Sequence[Any], classes: set[type]) -> Sequence[Any]:
    """Returns the values, which are of these classes, as orjson writes them so that PostgreSQL reads the same."""
    if Decimal in classes or bytes in classes or (float in classes and not _all_finite(column)):
        return [_as_text(v) for v in column]
    return column


def _parts(column: Sequence[str | None]) -> list[orjson.Fragment | None] | None:
    """Returns JSON texts as parts of the text; None if one is JSON's null, which would become SQL's NULL there.

    Raises ValueError for one that is no JSON: it could become other rows.
    """
    if any(text is not None and orjson.loads(text) is None for text in column):
        return None
    return [None if text is None else orjson.Fragment(text) for text in column]


def _all_finite(column: Sequence[Any]) -> bool:
    return all(map(math.isfinite, [v for v in column if v is not None]))


def _as_text(value: Any) -> Any:
    match value:
        case Decimal():
            return str(value)
        case bytes():
            return "\\x" + value.hex()
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value


class JsonStatement(Statement):
    """A statement with `bulk`, the same for all rows of the JSON text `ROWS`.

    One statement may not change a row twice. So of rows with the same values in the columns `once`, only the last is written.
    """

    def __init__(
        self, made: Any, binds: Binds, dialect: sa.Dialect, *, bulk: Any, once: Collection[str]
    ) -> None:
        super().__init__(made, binds, dialect)
        compiled = bulk.compile(dialect=dialect)
        self._bulk = str(compiled)
        self._positional = compiled.positional
        self._fields = [str(name) for name in self.columns]  # orjson takes no other class
        self._once = [self.columns.index(name) for name in once]
        self._quick = True
        self._classes = [classes_of(cell.type) for cell in self.cells]

    def write(self, connection: sa.Connection, columns: Columns) -> int:
        fitted = self._fitted(columns) if self._quick and len(columns[0]) > 1 else None
        if fitted is None:
            return super().write(connection, columns)
        return self._send(connection, self._rows(fitted))

    def refused_together(self) -> None:
        self._quick = False

    def _fitted(self, columns: Columns) -> list[Sequence[Any]] | None:
        """Returns the values as JSON takes them; None if one of them it does not."""
        found = []
        for cell, classes in zip(self.cells, self._classes, strict=True):
            column, those = cell.with_classes(columns)
            if not those <= classes:
                return None
            values = _parts(column) if isinstance(cell.type, sa.JSON) else written(column, those)
            if values is None:
                return None
            found.append(values)
        return found

    def _rows(self, fitted: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        names = self._fields
        rows = list(map(dict, map(zip, repeat(names), zip(*fitted, strict=True))))
        if not self._once:
            return rows
        columns = [fitted[i] for i in self._once]
        keys = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        if len(set(keys)) == len(rows):
            return rows
        last = {key: i for i, key in enumerate(keys)}
        self.replaced += len(rows) - len(last)
        return [rows[i] for i in sorted(last.values())]

    def _send(self, connection: sa.Connection, rows: list[dict[str, Any]]) -> int:
        text = orjson.dumps(rows)
        if len(text) > _BYTES_MAX and len(rows) > 1:
            half = len(rows) // 2
            return self._send(connection, rows[:half]) + self._send(connection, rows[half:])
        given: Any = (text.decode(),) if self._positional else {ROWS: text.decode()}
        return connection.exec_driver_sql(self._bulk, given).rowcount


def rows_of_json(table: sa.Table, columns: Iterable[str], dialect: sa.Dialect) -> sa.TableValuedAlias:
    """Returns the rows in the parameter `ROWS`, with these columns."""
    quoted = dialect.identifier_preparer.format_table(table).replace(
        "%%", "%"
    )  # doubled again by the compiler
    like: sa.ColumnElement[Any] = sa.literal_column(f"NULL::{quoted}")
    text = sa.cast(sa.bindparam(ROWS, type_=sa.Text()), postgresql.JSON)
    return sa.func.json_populate_recordset(like, text).table_valued(*columns)
