"""A compiled statement with a converter for each column. Deciding per column makes rows cheap.

`Statement` runs any statement by the driver's `executemany`. A subclass writes many rows at once where a database has a
quicker way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from klamm_connectors.sql.values import as_text
from klamm_plugins.schema import Struct

_AS_THEY_ARE: Final[frozenset[type]] = frozenset({str, int, bool, bytes, type(None)})
_TEXTS: Final[frozenset[type]] = frozenset({str, type(None)})
_TRUTHS: Final[frozenset[type]] = frozenset({bool, type(None)})
_BYTES: Final[frozenset[type]] = frozenset({bytes, type(None)})
_BINARY: Final = (
    sa.LargeBinary, sa.BINARY, sa.VARBINARY, mysql.TINYBLOB, mysql.MEDIUMBLOB, mysql.LONGBLOB
)  # fmt: skip
_NEVER: Final[frozenset[type]] = frozenset({type(None)})
_CHECK_FLOATS: Final = frozenset({"pymysql", "psycopg"})
"""Drivers whose databases hold every float, or whose statements (`literals`) refuse the others."""
_NO_NAN: Final = frozenset({"sqlite", "mysql", "mariadb"})
Fit = Callable[[Any], Any]
Columns = Sequence[Sequence[Any]]
Binds = Mapping[str, sa.BindParameter[Any]]
"""The columns of a table that a statement names, with their parameters."""


class Cell:
    """The converter of one column. `index` is its place among the columns of the rows."""

    def __init__(self, index: int, type_: sa.types.TypeEngine[Any], dialect: sa.Dialect, name: str) -> None:
        self.index = index
        self._name = name
        self.type = type_
        process = type_.dialect_impl(dialect).bind_processor(dialect)
        self._plain, self._fit = _AS_THEY_ARE, _fitting(type_, dialect.name)
        if dialect.driver in _CHECK_FLOATS and not isinstance(type_, sa.Integer) and not _is_rounded(type_, dialect.name):  # fmt: skip
            self._plain = _AS_THEY_ARE | {float}
        if isinstance(type_, sa.ARRAY):
            self._plain, self._fit = _NEVER, _array(Cell(0, type_.item_type, dialect, name))
        elif isinstance(type_, sa.JSON):  # its own processor would make a JSON text of a text
            self._plain, self._fit = _TEXTS, _json
        elif isinstance(type_, _BINARY):  # its own processor makes a number as many bytes of zero
            self._plain, self._fit = _BYTES, _bytes
        elif process is not None and not isinstance(type_, sa.Enum):  # the database knows its values best
            self._plain, self._fit = _NEVER, _processed(process, self._fit)
            if isinstance(type_, sa.Boolean):
                self._plain = _TRUTHS

    def fitted(self, columns: Columns) -> Sequence[Any]:
        """Returns the column's values as the driver takes them. Raises ValueError or TypeError for a value that the
        column would change or cannot hold.
        """
        return self.with_classes(columns)[0]

    def with_classes(self, columns: Columns) -> tuple[Sequence[Any], set[type]]:
        """Returns the same with the classes of the values."""
        column, plain, fit = columns[self.index], self._plain, self._fit
        classes = set(map(type, column))
        if classes <= plain:
            return column, classes
        try:
            column = [v if v.__class__ in plain else fit(v) for v in column]
        except (ValueError, TypeError) as e:
            raise type(e)(f"column {self._name}: {e}") from e
        return column, set(map(type, column))


class Statement:
    """SQL for the driver's `executemany`. `columns` and `cells` are those of its parameters, in their order."""

    def __init__(self, made: Any, binds: Binds, dialect: sa.Dialect) -> None:
        compiled = made.compile(dialect=dialect)
        self.sql = str(compiled)
        columns = {bind.key: column for column, bind in binds.items()}
        order: list[str] = (
            compiled.positiontup if compiled.positional else [n for n in columns if n in compiled.binds]
        )
        self._names = None if compiled.positional else order
        self.replaced = 0
        """Rows that were not sent, because a later one of the same key was in the same statement."""
        self.columns = [columns[name] for name in order]
        self.cells = [
            Cell(int(n.rsplit("_", 1)[1]), binds[columns[n]].type, dialect, columns[n]) for n in order
        ]

    def parameters(self, columns: Columns) -> list[Any]:
        """Returns the rows of these columns as parameters. Raises ValueError or TypeError."""
        rows = zip(*[cell.fitted(columns) for cell in self.cells], strict=True)
        names = self._names
        return list(rows) if names is None else [dict(zip(names, row, strict=True)) for row in rows]

    def refused_together(self) -> None:
        """Takes notice of rows that the database refused together and took one by one. A quicker way may end here."""

    def write(self, connection: sa.Connection, columns: Columns) -> int:
        """Runs the statement for each row. Returns how many rows of the table were changed, where the driver tells it."""
        return connection.exec_driver_sql(self.sql, self.parameters(columns)).rowcount


def _processed(process: Fit, fit: Fit) -> Fit:
    def convert(value: Any) -> Any:
        try:
            return process(fit(value))
        except (LookupError, AttributeError) as e:  # so a type says that it expects another class of values
            raise ValueError(f"the column cannot hold a {type(value).__name__}: {e}") from e

    return convert


def _fitting(type_: sa.types.TypeEngine[Any], dialect: str) -> Fit:
    return lambda value: _fit(value, type_, dialect)


def _fit(value: Any, type_: sa.types.TypeEngine[Any], dialect: str) -> Any:
    """Converts a value for a column of this type when the driver does not take its Python type."""
    match value:
        case float():
            if not math.isfinite(value) and dialect in _NO_NAN and (dialect != "sqlite" or value != value):  # noqa: PLR0124  NaN
                raise ValueError(f"{value} is not a number that {dialect} can hold")
            return _number(value, type_, dialect)
        case Decimal():
            return format(value, "f") if isinstance(type_, sa.String) else _number(value, type_, dialect)
        case timedelta():
            if isinstance(type_, (mysql.TIME, sa.Interval)):
                return value
            if isinstance(type_, sa.Time):
                return (datetime.min + value).time()  # noqa: DTZ901  a time of day has no zone
            return str(value) if isinstance(type_, sa.String) else value // timedelta(microseconds=1)
        case date() | time():
            return value.isoformat() if isinstance(type_, sa.String) else value
        case bytearray() | memoryview():
            return bytes(value)
        case Struct() | dict() | list() | tuple():
            return as_text(value)
        case _:
            return value


def _number(value: float | Decimal, type_: sa.types.TypeEngine[Any], dialect: str) -> Any:
    """Refuses a fraction for an integer column: databases round it silently. SQLite keeps it, so it passes there."""
    if isinstance(value, float) and _is_rounded(type_, dialect):
        return Decimal(repr(value))
    if not isinstance(type_, sa.Integer) or (dialect == "sqlite" and isinstance(value, float)):
        return value
    if value != int(value):
        raise ValueError(f"{value} is not a whole number, but the column holds whole numbers")
    return int(value)


def _is_rounded(type_: sa.types.TypeEngine[Any], dialect: str) -> bool:
    """Returns True for columns of exact numbers in PostgreSQL: of a double, they take 15 digits."""
    return dialect == "postgresql" and isinstance(type_, sa.Numeric) and not isinstance(type_, sa.Float)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytearray, memoryview)):
        raise TypeError(f"a value of {type(value).__name__} is no bytes, which the column holds")
    return bytes(value)


def _json(value: Any) -> str:
    """Returns a value for a JSON column. A text is JSON already."""
    return value.decode() if isinstance(value, (bytes, bytearray)) else as_text(value)


def _array(item: Cell) -> Fit:
    """Returns a function that fits lists, also lists of lists, to a column of arrays of such items."""
    nests = not isinstance(item.type, sa.JSON)

    def convert(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"a value of {type(value).__name__} is no array, which the column holds")
        if nests and any(isinstance(v, (list, tuple)) for v in value):
            return [convert(v) for v in value]
        return _of_one_class(item.fitted([value]), item.type)

    return convert


def _of_one_class(items: Sequence[Any], type_: sa.types.TypeEngine[Any]) -> list[Any]:
    """Returns the items of an array as drivers take them: all of one class."""
    classes = set(map(type, items)) - _NEVER
    if len(classes) > 1 and classes <= {int, float, Decimal}:
        number = float if isinstance(type_, sa.Float) else Decimal
        return [v if v is None else number(v) for v in items]
    if len(classes) > 1:
        names = ", ".join(sorted(cls.__name__ for cls in classes))
        raise TypeError(f"an array has items of several types ({names})")
    return list(items)
