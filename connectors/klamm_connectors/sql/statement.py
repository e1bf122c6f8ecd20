"""A compiled statement with a converter for each column. Deciding per column makes rows cheap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

_AS_THEY_ARE: Final[frozenset[type]] = frozenset({str, int, bool, bytes, type(None)})
_NEVER: Final[frozenset[type]] = frozenset({type(None)})
_NO_NAN: Final = frozenset({"sqlite", "mysql", "mariadb"})
Fit = Callable[[Any], Any]


class Statement:
    """SQL for the driver's `executemany`, and its rows. Values have the order of a layout."""

    def __init__(self, made: Any, binds: Iterable[sa.BindParameter[Any]], dialect: sa.Dialect) -> None:
        compiled = made.compile(dialect=dialect)
        self.sql = str(compiled)
        by_name = {bind.key: bind for bind in binds}
        order: list[str] = (
            compiled.positiontup if compiled.positional else [n for n in by_name if n in compiled.binds]
        )
        self._names = None if compiled.positional else order
        self._cells = [_cell(int(n.rsplit("_", 1)[1]), by_name[n].type, dialect) for n in order]

    def rows(self, values: Iterable[Sequence[Any]]) -> list[Any]:
        """Returns the parameters. Raises ValueError or TypeError for a value that the column would change or cannot hold."""
        cells, names = self._cells, self._names
        found = [
            tuple([v if (v := row[i]).__class__ in plain else fit(v) for i, plain, fit in cells])
            for row in values
        ]
        return found if names is None else [dict(zip(names, row, strict=True)) for row in found]


def _cell(
    index: int, type_: sa.types.TypeEngine[Any], dialect: sa.Dialect
) -> tuple[int, frozenset[type], Fit]:
    process = type_.dialect_impl(dialect).bind_processor(dialect)
    if process is None:
        return index, _AS_THEY_ARE, lambda value: _fit(value, type_, dialect.name)
    return index, _NEVER, lambda value: process(_fit(value, type_, dialect.name))


def _fit(value: Any, type_: sa.types.TypeEngine[Any], dialect: str) -> Any:
    """Converts a value for a column of this type when the driver does not take its Python type."""
    match value:
        case float():
            if not math.isfinite(value) and dialect in _NO_NAN and (dialect != "sqlite" or value != value):  # noqa: PLR0124  NaN
                raise ValueError(f"{value} is not a number that {dialect} can hold")
            return _whole(value, type_, dialect)
        case Decimal():
            return format(value, "f") if isinstance(type_, sa.String) else _whole(value, type_, dialect)
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
        case _:
            return value


def _whole(value: float | Decimal, type_: sa.types.TypeEngine[Any], dialect: str) -> Any:
    """Refuses a fraction for an integer column: databases round it silently. SQLite keeps it, so it passes there."""
    if not isinstance(type_, sa.Integer) or (dialect == "sqlite" and isinstance(value, float)):
        return value
    if value != int(value):
        raise ValueError(f"{value} is not a whole number, but the column holds whole numbers")
    return int(value)
