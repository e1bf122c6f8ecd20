"""Connect's logical types: Decimal, Date, Time and Timestamp over the primitive types.

A logical type is a schema with one of Kafka's names; its Python value is `decimal.Decimal`, `datetime.date`,
`datetime.time` or an aware `datetime.datetime`. `to_primitive` and `from_primitive` give what Kafka puts on the
wire: unscaled big-endian bytes, days, milliseconds of the day, milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final

from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, SchemaBuilder, Type, register_logical

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"

_BASES: Final = {DECIMAL: Type.BYTES, DATE: Type.INT32, TIME: Type.INT32, TIMESTAMP: Type.INT64}

_SCALE: Final = "scale"
_SCALE_MAX: Final = 10_000  # a schema comes from outside, and a number of this scale has as many digits
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MS: Final = timedelta(milliseconds=1)
_DAY_MS: Final = 86_400_000
# Moves the point of any number without rounding it.
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def decimal_builder(scale: int) -> SchemaBuilder:
    """Returns a builder for a decimal with `scale` digits after the point."""
    return SchemaBuilder(Type.BYTES).name(DECIMAL).version(1).parameter(_SCALE, str(scale))


def date_builder() -> SchemaBuilder:
    """Returns a builder for a day without a time."""
    return SchemaBuilder(Type.INT32).name(DATE).version(1)


def time_builder() -> SchemaBuilder:
    """Returns a builder for a time of day in milliseconds; smaller units are cut off."""
    return SchemaBuilder(Type.INT32).name(TIME).version(1)


def timestamp_builder() -> SchemaBuilder:
    """Returns a builder for a moment in milliseconds; smaller units are cut off."""
    return SchemaBuilder(Type.INT64).name(TIMESTAMP).version(1)


def is_logical(schema: Schema) -> bool:
    """Returns whether values of this schema have a logical type. The name alone does not decide it."""
    return schema.name is not None and _BASES.get(schema.name) is schema.type


def is_decimal(schema: Schema) -> bool:
    return schema.name == DECIMAL and schema.type is Type.BYTES


def decimal_scale(schema: Schema) -> int:
    """Returns the scale of a decimal schema. Raises DataError when it has none."""
    text = schema.parameters.get(_SCALE)
    try:
        scale = int(text or "")
    except ValueError:
        raise DataError(f"Decimal schema: parameter scale must be an integer, not {text!r}") from None
    if abs(scale) > _SCALE_MAX:
        raise DataError(f"Decimal schema: scale {scale} is beyond {_SCALE_MAX}")
    return scale


def to_primitive(schema: Schema, value: Any) -> Any:
    """Converts a checked logical value to its primitive; other values stay."""
    return value if value is None or not is_logical(schema) else primitive_writer(schema)(value)


def from_primitive(schema: Schema, value: Any) -> Any:
    """Converts a primitive to its logical value. Raises DataError when Python's types cannot hold it."""
    return value if value is None or not is_logical(schema) else primitive_reader(schema)(value)


def primitive_writer(schema: Schema) -> Callable[[Any], Any]:
    """Returns `to_primitive` for the values of one logical schema, without null."""
    if is_decimal(schema):
        scale = decimal_scale(schema)
        return lambda value: unscaled_bytes(value, scale)
    return _WRITERS[schema.name or ""]


def primitive_reader(schema: Schema) -> Callable[[Any], Any]:
    """Returns `from_primitive` for the primitives of one logical schema, without null."""
    if is_decimal(schema):
        scale = decimal_scale(schema)
        return lambda value: scaled(int.from_bytes(value, "big", signed=True), scale)
    read, name = _READERS[schema.name or ""], schema.name

    def made(value: Any) -> Any:
        try:
            return read(value)
        except (ValueError, OverflowError) as e:
            raise DataError(f"{name}: {value} is out of range ({e})") from e

    return made


def scaled(unscaled: int, scale: int) -> Decimal:
    """Returns `unscaled` / 10**scale, exactly."""
    return _EXACT.scaleb(Decimal(unscaled), -scale)


def unscaled_bytes(value: Decimal, scale: int) -> bytes:
    """Returns `value` * 10**scale as Java's BigInteger.toByteArray does: the fewest bytes that keep the sign."""
    unscaled = int(_EXACT.scaleb(value, scale))
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def _days(value: date) -> int:
    return value.toordinal() - _EPOCH_DAY


def _date(days: int) -> date:
    return date.fromordinal(days + _EPOCH_DAY)


def _ms_of_day(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def _time(ms: int) -> time:
    if not 0 <= ms < _DAY_MS:
        raise ValueError("a day has 86400000 milliseconds")
    seconds, ms = divmod(ms, 1000)
    minutes, second = divmod(seconds, 60)
    return time(minutes // 60, minutes % 60, second, ms * 1000)


def _epoch_ms(value: datetime) -> int:
    return (value - _EPOCH) // _MS


def _moment(ms: int) -> datetime:
    return _EPOCH + ms * _MS


_WRITERS: Final[dict[str, Callable[[Any], Any]]] = {DATE: _days, TIME: _ms_of_day, TIMESTAMP: _epoch_ms}
_READERS: Final[dict[str, Callable[[Any], Any]]] = {DATE: _date, TIME: _time, TIMESTAMP: _moment}


def _check_decimal(schema: Schema, value: Any) -> str | None:
    if not isinstance(value, Decimal) or not value.is_finite():
        return f"{value!r} does not fit Decimal, which takes a finite decimal.Decimal"
    scale = decimal_scale(schema)
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and -exponent != scale:
        return f"decimal {value} has scale {-exponent} but the schema says {scale}: quantize it"
    return None


def _check_date(schema: Schema, value: Any) -> str | None:
    if not isinstance(value, date) or isinstance(value, datetime):
        return f"{type(value).__name__} does not fit Date, which takes datetime.date"
    return None


def _check_time(schema: Schema, value: Any) -> str | None:
    if not isinstance(value, time) or value.tzinfo is not None:
        return f"{value!r} does not fit Time, which takes datetime.time without a time zone"
    return None


def _check_timestamp(schema: Schema, value: Any) -> str | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return f"{value!r} does not fit Timestamp, which takes datetime.datetime with a time zone"
    return None


register_logical(DECIMAL, Type.BYTES, _check_decimal)
register_logical(DATE, Type.INT32, _check_date)
register_logical(TIME, Type.INT32, _check_time)
register_logical(TIMESTAMP, Type.INT64, _check_timestamp)
