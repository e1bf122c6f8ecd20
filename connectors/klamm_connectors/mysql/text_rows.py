"""Rows of a SELECT, column by column: a reader of the text protocol over PyMySQL's connection.

PyMySQL makes an object for each row's packet and calls a function for each value. Here a loop cuts what the socket gives into
values, and `decoded` makes Python's of a whole column. The values equal those of `rows`, which reads the binlog.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pymysql
from pymysql.connections import MySQLResult
from pymysql.constants import COMMAND, CR
from pymysql.converters import convert_timedelta
from pymysql.protocol import MysqlPacket

from klamm_connectors.mysql.columns import Column, Kind, Table
from klamm_plugins.errors import DataError

_READ: Final = 256 << 10
_HEADER: Final = 4
_FULL: Final = 0xFFFFFF
"""The size of a packet that another one continues."""
_EOF: Final = 0xFE
_ERROR: Final = 0xFF
_EOF_SIZE: Final = 9
_NULL: Final = 0xFB
_SIZE_BYTES: Final = {0xFC: 2, 0xFD: 3, 0xFE: 8}

Row = list[bytes | None]


class TextRows:
    """The rows of one statement, which is running. Nothing else may use the connection until `done`."""

    def __init__(self, connection: Any, statement: str, args: Sequence[Any] | None = None) -> None:
        self.done = False
        self._connection = connection
        self._data = b""
        self._at = 0
        with connection.cursor() as cursor:
            text = cursor.mogrify(statement, args)
        connection._execute_command(COMMAND.COM_QUERY, text.encode(connection.encoding, "surrogateescape"))  # noqa: SLF001
        result = MySQLResult(connection)
        result.init_unbuffered_query()
        result.unbuffered_active = False  # it would read the rows when it is forgotten

    def next(self, most: int) -> list[Row]:
        """Returns up to so many rows."""
        rows: list[Row] = []
        while not self.done and len(rows) < most:
            payload = self._packet()
            if payload is None:
                continue
            data, at, end = payload
            first = data[at]
            if first == _ERROR:
                self.done = True
                MysqlPacket(data[at:end], self._connection.encoding).raise_for_error()
            if first == _EOF and end - at < _EOF_SIZE:
                self.done = True
            else:
                rows.append(_row(data, at, end))
        return rows

    def _packet(self) -> tuple[bytes, int, int] | None:
        """Returns data with the begin and end of the next packet in them; None after it has read more."""
        data, at = self._data, self._at
        begin = at + _HEADER
        if len(data) < begin:
            self._data, self._at = data[at:] + self._read(0), 0
            return None
        size = int.from_bytes(data[at : at + 3], "little")
        end = begin + size
        if len(data) < end:
            self._data, self._at = data[at:] + self._read(end - len(data)), 0
            return None
        self._at = end
        return (data, begin, end) if size < _FULL else self._continued(data[begin:end])

    def _continued(self, begin: bytes) -> tuple[bytes, int, int]:
        rest = None
        while rest is None:
            rest = self._packet()
        data, at, end = rest
        whole = begin + data[at:end]
        return whole, 0, len(whole)

    def _read(self, missing: int) -> bytes:
        """Reads what the server has sent, or waits for so many bytes."""
        stream = self._connection._rfile  # noqa: SLF001
        try:
            found: bytes = stream.read(missing) if missing else stream.read1(_READ)
        except OSError as e:
            raise self._lost(f" ({e})") from e
        if not found or len(found) < missing:
            raise self._lost("")
        return found

    def _lost(self, why: str) -> pymysql.err.OperationalError:
        self.done = True
        self._connection._force_close()  # noqa: SLF001
        return pymysql.err.OperationalError(
            CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query{why}"
        )


def _row(data: bytes, at: int, end: int) -> Row:
    row: Row = []
    while at < end:
        size = data[at]
        at += 1
        if size == _NULL:
            row.append(None)
            continue
        if size > _NULL:
            width = _SIZE_BYTES[size]
            size = int.from_bytes(data[at : at + width], "little")
            at += width
        row.append(data[at : at + size])
        at += size
    return row


def decoded(table: Table, rows: Sequence[Row]) -> list[Sequence[Any]]:
    """Returns the table's columns of values. Raises DataError for a value that is not what the column's type says."""
    if not rows:
        return [[] for _ in table.columns]
    return [
        _column(table, column, values)
        for column, values in zip(table.columns, zip(*rows, strict=True), strict=True)
    ]


def _column(table: Table, column: Column, values: Sequence[bytes | None]) -> Sequence[Any]:
    decode = _DECODERS.get(column.kind, _text)
    if decode is None:
        return values
    try:
        if None in values:
            return [None if value is None else decode(value) for value in values]
        return list(map(decode, values))  # type: ignore[arg-type]
    except (ValueError, InvalidOperation) as e:
        raise DataError(
            f"{table.full_name}.{column.name}: a value is no {column.kind}, as the column's type is ({type(e).__name__})"
        ) from e


def _text(value: bytes) -> str:
    return value.decode()


def _decimal(value: bytes) -> Decimal:
    return Decimal(value.decode())


def _date(value: bytes) -> date | None:
    try:
        return date.fromisoformat(value.decode())
    except ValueError:
        return None  # 0000-00-00 and its like


def _datetime(value: bytes) -> datetime | None:
    try:
        return datetime.fromisoformat(value.decode())
    except ValueError:
        return None  # as above


_DECODERS: Final[dict[Kind, Callable[[bytes], Any] | None]] = {
    Kind.INT: int,
    Kind.YEAR: int,
    Kind.FLOAT: float,
    Kind.DOUBLE: float,
    Kind.DECIMAL: _decimal,
    Kind.BYTES: None,
    Kind.BIT: None,
    Kind.GEOMETRY: None,
    Kind.DATE: _date,
    Kind.TIME: convert_timedelta,
    Kind.DATETIME: _datetime,
    Kind.TIMESTAMP: _datetime,
}
"""Decoders by kind; None: the bytes as they are. All other kinds are text."""
