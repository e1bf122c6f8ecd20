"""Column types as Connect schemas, and matching values: Debezium's mapping and names. Pure: no I/O.

Values come from `rows` and PyMySQL. A converter of None means that values are used as they are.
"""

from __future__ import annotations

import base64
import ipaddress
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from klamm_connectors.mysql.columns import Column, Kind
from klamm_plugins import logical
from klamm_plugins.errors import DataError
from klamm_plugins.schema import SchemaBuilder, Type

Convert = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  values of DATETIME and TIMESTAMP have no zone
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_US: Final = timedelta(microseconds=1)
_MS: Final = timedelta(milliseconds=1)
_LONG_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Modes:
    """The handling modes of the configuration, under Debezium's names."""

    decimal: str = "precise"
    bigint_unsigned: str = "long"
    time: str = "adaptive_time_microseconds"
    binary: str = "bytes"
    refused_later: bool = False
    """True when a BIGINT UNSIGNED beyond INT64 goes into the record all the same: its converter refuses the record, and
    the runtime counts it and keeps it as a dead letter (errors.tolerance=all).
    """


def builder_and_converter(column: Column, modes: Modes) -> tuple[SchemaBuilder, Convert | None]:
    """Returns the schema of a column (not yet optional) and its converter, which is never called for None."""
    match column.kind:
        case Kind.INT:
            return _int(column, modes)
        case Kind.FLOAT:
            return SchemaBuilder(Type.FLOAT32), None
        case Kind.DOUBLE:
            return SchemaBuilder(Type.FLOAT64), None
        case Kind.DECIMAL:
            return _decimal(column, modes)
        case Kind.STRING:
            return SchemaBuilder(Type.STRING), None
        case Kind.BYTES | Kind.GEOMETRY:
            return _bytes(modes)
        case Kind.BIT:
            return _bit(column)
        case Kind.ENUM | Kind.SET:
            name = "io.debezium.data.Enum" if column.kind is Kind.ENUM else "io.debezium.data.EnumSet"
            built = SchemaBuilder(Type.STRING).name(name).version(1)
            return built.parameter("allowed", ",".join(column.values)), None
        case Kind.JSON:
            return SchemaBuilder(Type.STRING).name("io.debezium.data.Json").version(1), None
        case Kind.YEAR:
            return SchemaBuilder(Type.INT32).name("io.debezium.time.Year").version(1), None
        case Kind.UUID:
            return SchemaBuilder(Type.STRING).name("io.debezium.data.Uuid").version(1), _uuid
        case Kind.INET4 | Kind.INET6:
            return SchemaBuilder(Type.STRING), _address
        case Kind.TIMESTAMP:
            return SchemaBuilder(Type.STRING).name("io.debezium.time.ZonedTimestamp").version(1), _zoned(
                column.fsp
            )
        case Kind.DATE | Kind.TIME | Kind.DATETIME:
            return _temporal(column, modes.time)


def comparable(column: Column, value: Any) -> Any:
    """Returns a key's value so that those of a table and of the binlog are equal: addresses and UUIDs as texts."""
    if value is None or column.kind not in {Kind.UUID, Kind.INET4, Kind.INET6}:
        return value
    return _uuid(value) if column.kind is Kind.UUID else _address(value)


def stand_in(column: Column) -> Any:
    """Returns Debezium's substitute for a zero date in a NOT NULL column: the epoch. Python and Connect have no
    zero date.
    """
    match column.kind:
        case Kind.DATE:
            return _EPOCH.date()
        case Kind.DATETIME | Kind.TIMESTAMP:
            return _EPOCH
        case _:
            return None


def _int(column: Column, modes: Modes) -> tuple[SchemaBuilder, Convert | None]:
    if column.size == 8 and column.unsigned:
        if modes.bigint_unsigned == "precise":
            return logical.decimal_builder(0).parameter("connect.decimal.precision", "20"), Decimal
        return SchemaBuilder(Type.INT64), None if modes.refused_later else _checked_long(column.name)
    bits = column.size * 8 + (1 if column.unsigned else 0)
    smallest = next(t for t, holds in ((Type.INT16, 16), (Type.INT32, 32), (Type.INT64, 64)) if bits <= holds)
    return SchemaBuilder(smallest), None


def _checked_long(name: str) -> Convert:
    def convert(value: Any) -> Any:
        if value > _LONG_MAX:
            raise DataError(
                f"column {name}: {value} does not fit INT64; set bigint.unsigned.handling.mode=precise to have such "
                "columns as decimals, or event.processing.failure.handling.mode=warn to leave such rows out"
            )
        return value

    return convert


def _decimal(column: Column, modes: Modes) -> tuple[SchemaBuilder, Convert | None]:
    if modes.decimal == "string":
        return SchemaBuilder(Type.STRING), lambda value: format(value, "f")
    if modes.decimal == "double":
        return SchemaBuilder(Type.FLOAT64), float
    return logical.decimal_builder(column.scale).parameter(
        "connect.decimal.precision", str(column.precision)
    ), None


def _bytes(modes: Modes) -> tuple[SchemaBuilder, Convert | None]:
    if modes.binary == "base64":
        return SchemaBuilder(Type.STRING), lambda value: base64.b64encode(value).decode()
    if modes.binary == "base64-url-safe":
        return SchemaBuilder(Type.STRING), lambda value: base64.urlsafe_b64encode(value).decode()
    if modes.binary == "hex":
        return SchemaBuilder(Type.STRING), lambda value: value.hex()
    return SchemaBuilder(Type.BYTES), None


def _bit(column: Column) -> tuple[SchemaBuilder, Convert | None]:
    if column.size == 1:
        return SchemaBuilder(Type.BOOLEAN), lambda value: value != b"\0"
    built = SchemaBuilder(Type.BYTES).name("io.debezium.data.Bits").version(1)
    return built.parameter("length", str(column.size)), lambda value: value[
        ::-1
    ]  # Debezium's are little-endian


def _uuid(value: Any) -> str:
    return str(uuid.UUID(bytes=value)) if isinstance(value, bytes) else str(value)


def _address(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    address = ipaddress.ip_address(value)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return f"::ffff:{address.ipv4_mapped}"
    return str(address)


def _zoned(fsp: int) -> Convert:
    def convert(value: Any) -> str:
        text = value.strftime("%Y-%m-%dT%H:%M:%S")
        return f"{text}.{value.microsecond:06d}"[: 20 + fsp] + "Z" if fsp else text + "Z"

    return convert


def _temporal(column: Column, mode: str) -> tuple[SchemaBuilder, Convert | None]:
    """Returns schema and converter of a DATE, TIME or DATETIME in a mode of `time.precision.mode`."""
    if mode == "connect":
        return _connect_time(column)
    if mode == "isostring":
        return _iso_time(column)
    if column.kind is Kind.DATE:
        return _debezium_time(Type.INT32, "Date"), lambda value: value.toordinal() - _EPOCH_DAY
    if column.kind is Kind.TIME:
        if mode == "nanoseconds":
            return _debezium_time(Type.INT64, "NanoTime"), lambda value: value // _US * 1000
        return _debezium_time(Type.INT64, "MicroTime"), lambda value: value // _US
    if mode == "nanoseconds":
        return _debezium_time(Type.INT64, "NanoTimestamp"), _nanoseconds(column.name)
    if mode == "adaptive_time_microseconds" and column.fsp <= 3:
        return _debezium_time(Type.INT64, "Timestamp"), lambda value: (value - _EPOCH) // _MS
    return _debezium_time(Type.INT64, "MicroTimestamp"), lambda value: (value - _EPOCH) // _US


def _debezium_time(kind: Type, name: str) -> SchemaBuilder:
    return SchemaBuilder(kind).name(f"io.debezium.time.{name}").version(1)


def _nanoseconds(name: str) -> Convert:
    def convert(value: datetime) -> int:
        found = (value - _EPOCH) // _US * 1000
        if not -_LONG_MAX <= found <= _LONG_MAX:
            raise DataError(
                f"column {name}: the nanoseconds of {value} do not fit INT64, which ends in 2262 and begins in 1677; set "
                "time.precision.mode=microseconds"
            )
        return found

    return convert


def _iso_time(column: Column) -> tuple[SchemaBuilder, Convert | None]:
    """Makes texts as Java writes them: with Z behind, and no zeros at the end of a fraction."""
    if column.kind is Kind.DATE:
        return _debezium_time(Type.STRING, "IsoDate"), lambda value: f"{value.isoformat()}Z"
    if column.kind is Kind.DATETIME:
        return _debezium_time(Type.STRING, "IsoTimestamp"), _iso
    time_of_day = _time_of_day(column.name, "isostring")
    return _debezium_time(Type.STRING, "IsoTime"), lambda value: _iso(time_of_day(value))


def _iso(value: datetime | time) -> str:
    text = value.isoformat()
    return f"{text.rstrip('0') if '.' in text else text}Z"


def _connect_time(column: Column) -> tuple[SchemaBuilder, Convert | None]:
    if column.kind is Kind.DATE:
        return logical.date_builder(), None
    if column.kind is Kind.TIME:
        return logical.time_builder(), _time_of_day(column.name, "connect")
    return logical.timestamp_builder(), lambda value: value.replace(tzinfo=UTC)


def _time_of_day(name: str, mode: str) -> Convert:
    def convert(value: timedelta) -> time:
        if not timedelta(0) <= value < timedelta(days=1):
            raise DataError(
                f"column {name}: {_as_sql(value)} is no time of day, which is all that time.precision.mode={mode} can hold; "
                "use adaptive_time_microseconds"
            )
        return (_EPOCH + value).time()

    return convert


def _as_sql(value: timedelta) -> str:
    """Returns a TIME as the database writes it."""
    seconds, us = divmod(abs(value) // _US, 1_000_000)
    sign = "-" if value < timedelta(0) else ""
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{us:06}" if us else text
