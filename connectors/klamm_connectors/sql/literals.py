"""Values as literals of MySQL and MariaDB, made column by column. Pure: no I/O.

The driver's own `executemany` escapes value by value. Here a column of texts is escaped in one go. The literals mean the
same as the driver's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

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
    return format(value, "f")  # an exponent would make it a DOUBLE


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
