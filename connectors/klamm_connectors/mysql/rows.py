"""Decodes row images of the binlog. Pure: bytes in, Python values out.

The values equal those that PyMySQL gives for the same columns, so that snapshot and binlog share the later
steps: int, float, Decimal, str, bytes, date, datetime (without a zone), timedelta; SET as "a,b", BIT as
big-endian bytes, a zero date as None. mysql-replication's decoder is not used: its TIME is wrong for
negative fractions, BINARY loses trailing zeros, and its dict for each row costs more than the decoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final

from klamm_connectors.mysql.charsets import UTF8, Charsets
from klamm_connectors.mysql.columns import Column, Kind
from klamm_plugins.errors import ConnectError, DataError

Reader = Callable[[bytes, int], tuple[Any, int]]
"""Reads one value: from data and position to value and next position."""
Failed = Callable[[str], "Unreadable"]
"""Notes that a value cannot be read, and why. The reason has no part of the value, which may be a secret."""

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  a TIMESTAMP is UTC, as PyMySQL gives it: without a zone
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # of a group of so many decimal digits
_FRACTION_US: Final = (0, 10_000, 100, 1)  # microseconds of a unit, by bytes of the fraction


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for a value that cannot be read, in a row whose other values can."""

    why: str


class RowDecoder:
    """Decodes the rows of one table. Row images must be full (`binlog_row_image=FULL`).

    Texts of columns that are not `wanted` stay bytes.
    """

    def __init__(
        self,
        table_name: str,
        columns: Sequence[Column],
        charsets: Charsets,
        wanted: Container[str] | None = None,
    ) -> None:
        self._table_name = table_name
        self._count = len(columns)
        self._null_bytes = (len(columns) + 7) // 8
        self._failed: list[Unreadable] = []
        self._readers = [
            (1 << i, self._reader(c, charsets, is_wanted=wanted is None or c.name in wanted))
            for i, c in enumerate(columns)
        ]
        self.is_flawed = False
        """True when the last rows have `Unreadable` values."""

    def check_present(self, bitmap: bytes) -> None:
        """Raises ConnectError when the event does not hold all columns."""
        if int.from_bytes(bitmap, "little") & ((1 << self._count) - 1) != (1 << self._count) - 1:
            raise ConnectError(
                f"{self._table_name}: the binlog holds a part of the columns of a row; set binlog_row_image=FULL "
                "on the server and in its sessions"
            )

    def rows(self, data: bytes) -> list[list[Any]]:
        """Returns the rows in an event's body, one list of values per image (two images per updated row)."""
        found, position, end = [], 0, len(data)
        null_bytes, readers = self._null_bytes, self._readers
        while position < end:
            nulls = int.from_bytes(data[position : position + null_bytes], "little")
            position += null_bytes
            row: list[Any] = []
            for bit, read in readers:
                if nulls & bit:
                    row.append(None)
                else:
                    value, position = read(data, position)
                    row.append(value)
            found.append(row)
        if position != end:
            raise DataError(f"{self._table_name}: a row event does not end where its last row ends")
        self.is_flawed = bool(self._failed)
        self._failed.clear()
        return found

    def _reader(self, column: Column, charsets: Charsets, *, is_wanted: bool) -> Reader:
        if column.kind is Kind.STRING and not is_wanted:
            return _bytes_reader(column.length_bytes, 0)

        def failed(why: str) -> Unreadable:
            value = Unreadable(f"{self._table_name}.{column.name}: {why}")
            self._failed.append(value)
            return value

        match column.kind:
            case Kind.STRING:
                return _text_reader(column, charsets, failed)
            case Kind.JSON:
                return _json_reader(column.length_bytes, failed)
            case Kind.ENUM:
                return _enum_reader(column, failed)
            case Kind.SET:
                return _set_reader(column, failed)
            case _:
                return _exact_reader(column)


def _exact_reader(column: Column) -> Reader:
    """Returns the reader of a kind whose bytes always are a value."""
    match column.kind:
        case Kind.INT:
            return _int_reader(column.size, signed=not column.unsigned)
        case Kind.FLOAT:
            return _struct_reader("<f")
        case Kind.DOUBLE:
            return _struct_reader("<d")
        case Kind.DECIMAL:
            return _decimal_reader(column.precision, column.scale)
        case Kind.BYTES | Kind.UUID | Kind.INET4 | Kind.INET6:
            return _bytes_reader(column.length_bytes, column.size)
        case Kind.GEOMETRY:
            return _bytes_reader(column.length_bytes, 0)
        case Kind.BIT:
            return _fixed_reader((column.size + 7) // 8)
        case Kind.YEAR:
            return lambda data, at: (data[at] + 1900 if data[at] else 0, at + 1)
        case Kind.DATE:
            return _date
        case Kind.TIME:
            return _time_reader(column.fsp)
        case Kind.DATETIME:
            return _datetime_reader(column.fsp)
        case Kind.TIMESTAMP:
            return _timestamp_reader(column.fsp)
    raise AssertionError(f"{column.kind} has a reader of its own")


def _struct_reader(layout: str) -> Reader:
    unpack, size = struct.Struct(layout).unpack_from, struct.calcsize(layout)
    return lambda data, at: (unpack(data, at)[0], at + size)


def _int_reader(size: int, *, signed: bool) -> Reader:
    layout = {1: "b", 2: "h", 4: "i", 8: "q"}.get(size)
    if layout is not None:
        return _struct_reader("<" + (layout if signed else layout.upper()))
    from_bytes = int.from_bytes
    return lambda data, at: (from_bytes(data[at : at + size], "little", signed=signed), at + size)


def _fixed_reader(size: int) -> Reader:
    return lambda data, at: (data[at : at + size], at + size)


def _bytes_reader(length_bytes: int, size: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        begin = at + length_bytes
        end = begin + int.from_bytes(data[at:begin], "little")
        return data[begin:end].ljust(size, b"\0"), end

    return read


def _text_reader(column: Column, charsets: Charsets, failed: Failed) -> Reader:
    charset, length_bytes = column.charset, column.length_bytes
    decode = charsets(charset) if charset not in UTF8 else None

    def read(data: bytes, at: int) -> tuple[Any, int]:
        begin = at + length_bytes
        end = begin + (data[at] if length_bytes == 1 else int.from_bytes(data[at:begin], "little"))
        try:
            return (str(data[begin:end], "utf-8") if decode is None else decode(data[begin:end])), end
        except UnicodeDecodeError:
            return failed(f"a value is not {charset}"), end

    return read


def _json_reader(length_bytes: int, failed: Failed) -> Reader:
    """Returns a reader of MySQL's binary JSON. MariaDB's JSON is text in a LONGTEXT and never comes here."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        from klamm_connectors.mysql.json_binary import json_text

        begin = at + length_bytes
        end = begin + int.from_bytes(data[at:begin], "little")
        try:
            return json_text(data[begin:end]), end
        except Exception as e:  # the parser is a library's, and not made for wrong bytes
            return failed(f"a value is no JSON document that can be read ({type(e).__name__})"), end

    return read


def _enum_reader(column: Column, failed: Failed) -> Reader:
    values, size = ("", *column.values), column.size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        index = int.from_bytes(data[at : at + size], "little")
        if index >= len(values):
            return failed(f"the row has a member that its ENUM of {len(values) - 1} members lacks"), at + size
        return values[index], at + size

    return read


def _set_reader(column: Column, failed: Failed) -> Reader:
    values, size = column.values, column.size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        mask = int.from_bytes(data[at : at + size], "little")
        if mask >> len(values):
            return failed(f"the row has members that its SET of {len(values)} members lacks"), at + size
        return ",".join(v for i, v in enumerate(values) if mask >> i & 1), at + size

    return read


def _decimal_reader(precision: int, scale: int) -> Reader:
    whole = precision - scale
    first, last = whole % 9, scale % 9
    sizes = [(_DIGIT_BYTES[first], first)] * (first > 0) + [(4, 9)] * (whole // 9 + scale // 9)
    sizes += [(_DIGIT_BYTES[last], last)] * (last > 0)
    total = sum(size for size, _ in sizes)
    flip = (1 << (8 * total)) - 1
    top = 1 << (8 * total - 1)
    groups, left = [], total
    for size, count in sizes:
        left -= size
        groups.append((8 * left, (1 << 8 * size) - 1, 10**count))
    scaled = Decimal.scaleb

    def read(data: bytes, at: int) -> tuple[Any, int]:
        end = at + total
        raw = int.from_bytes(data[at:end], "big") ^ top
        negative = raw & top
        if negative:
            raw ^= flip
        number = 0
        for shift, mask, power in groups:
            number = number * power + (raw >> shift & mask)
        return scaled(Decimal(-number if negative else number), -scale, _EXACT), end

    return read


def _date(data: bytes, at: int) -> tuple[Any, int]:
    packed = int.from_bytes(data[at : at + 3], "little")
    try:
        return date(packed >> 9, packed >> 5 & 15, packed & 31), at + 3
    except ValueError:
        return None, at + 3  # 0000-00-00 and its like


def _time_reader(fsp: int) -> Reader:
    fraction = (fsp + 1) // 2
    size, unit, base = 3 + fraction, _FRACTION_US[fraction], 0x800000 << (8 * fraction)
    mask = (1 << (8 * fraction)) - 1

    def read(data: bytes, at: int) -> tuple[Any, int]:
        packed = int.from_bytes(data[at : at + size], "big") - base
        whole = abs(packed)
        time = whole >> (8 * fraction)
        found = timedelta(
            hours=time >> 12 & 1023,
            minutes=time >> 6 & 63,
            seconds=time & 63,
            microseconds=(whole & mask) * unit,
        )
        return (-found if packed < 0 else found), at + size

    return read


def _datetime_reader(fsp: int) -> Reader:
    fraction = (fsp + 1) // 2
    size, unit = 5 + fraction, _FRACTION_US[fraction]
    shift, mask = 8 * fraction, (1 << 8 * fraction) - 1

    def read(data: bytes, at: int) -> tuple[Any, int]:
        whole = int.from_bytes(data[at : at + size], "big")
        packed, us = (whole >> shift) - 0x8000000000, (whole & mask) * unit
        year, month = divmod(packed >> 22, 13)
        try:
            found = datetime(  # noqa: DTZ001  a DATETIME has no zone
                year, month, packed >> 17 & 31, packed >> 12 & 31, packed >> 6 & 63, packed & 63, us
            )
        except ValueError:
            return None, at + size
        return found, at + size

    return read


def _timestamp_reader(fsp: int) -> Reader:
    fraction = (fsp + 1) // 2
    size, unit = 4 + fraction, _FRACTION_US[fraction]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        us = int.from_bytes(data[at + 4 : at + size], "big") * unit
        found = _EPOCH + timedelta(seconds=seconds, microseconds=us) if seconds or us else None
        return found, at + size

    return read
