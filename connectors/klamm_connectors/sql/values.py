"""Values of fields as values of columns: dates, moments and nested values. Pure: no I/O."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

from klamm_plugins import logical
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, Struct

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
NESTED: Final = (Struct, dict, list, tuple)
NANOSECONDS: Final = {"microseconds": 1000, "nanoseconds": 1}
Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class TimeRules:
    """The settings that concern dates and moments."""

    zone: ZoneInfo
    """The zone of columns without one (`db.timezone`)."""
    zoned_dates: bool = False
    """True when a date is midnight in UTC, and is written as the day that it is then in `zone` (`date.timezone`)."""
    fields: frozenset[str] = frozenset()
    """Fields whose numbers and texts are moments (`timestamp.fields.list`)."""
    precision: str = "microseconds"
    """The unit of these numbers (`timestamp.precision.mode`)."""


def converter(name: str, schema: Schema | None, rules: TimeRules) -> Convert | None:
    """Returns a function that converts the field's values: dates and moments become Python's (moments without zone, in
    the rules' zone). None stands for values that stay as they are; what nested ones become depends on the column.
    """
    if name in rules.fields and (schema is None or schema.name is None):
        return lambda value: _moment_of(value, rules)
    return None if schema is None else _of_name(schema.name, rules)


def _of_name(name: str | None, rules: TimeRules) -> Convert | None:
    zone = rules.zone

    def moment(value: datetime) -> datetime:
        return value.astimezone(zone).replace(tzinfo=None)

    def day(value: date) -> date:
        return moment(datetime(value.year, value.month, value.day, tzinfo=UTC)).date()

    match name:
        case logical.TIMESTAMP:
            return moment
        case logical.DATE:
            return day if rules.zoned_dates else None
        case "io.debezium.time.Date":
            return lambda value: date.fromordinal(value + _EPOCH_DAY)
        case "io.debezium.time.MicroTime":
            return lambda value: timedelta(microseconds=value)
        case "io.debezium.time.Time":
            return lambda value: timedelta(milliseconds=value)
        case "io.debezium.time.Timestamp":
            return lambda value: moment(_EPOCH + timedelta(milliseconds=value))
        case "io.debezium.time.MicroTimestamp":
            return lambda value: moment(_EPOCH + timedelta(microseconds=value))
        case "io.debezium.time.NanoTime":
            return lambda value: timedelta(microseconds=value // 1000)
        case "io.debezium.time.NanoTimestamp":
            return lambda value: moment(_EPOCH + timedelta(microseconds=value // 1000))
        case "io.debezium.time.IsoDate":
            return lambda value: date.fromisoformat(value[:10])
        case "io.debezium.time.IsoTime":
            return lambda value: time.fromisoformat(value).replace(tzinfo=None)
        case "io.debezium.time.ZonedTimestamp" | "io.debezium.time.IsoTimestamp":
            return lambda value: moment(datetime.fromisoformat(value))
        case "io.debezium.data.Bits":  # the last byte first; databases have the first one first
            return lambda value: value[::-1]
    return None


def _moment_of(value: Any, rules: TimeRules) -> datetime:
    """Returns the moment of a number, of a text of digits, or of ISO 8601."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise DataError(
            f"{type(value).__name__} is no timestamp (timestamp.fields.list takes INT64 and STRING)"
        )
    if isinstance(value, str) and not value.lstrip("-").isdigit():
        found = datetime.fromisoformat(value)
        return found.astimezone(rules.zone).replace(tzinfo=None) if found.tzinfo is not None else found
    since = timedelta(microseconds=int(value) * NANOSECONDS[rules.precision] // 1000)
    return (_EPOCH + since).astimezone(rules.zone).replace(tzinfo=None)


def as_text(value: Any) -> str:
    """Returns a nested value as JSON. Raises TypeError for one that JSON cannot hold."""
    data = value.to_dict() if isinstance(value, Struct) else value
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=_json_default)


def _json_default(value: Any) -> Any:
    match value:
        case Struct():
            return value.to_dict()
        case Decimal():
            return str(value)
        case date() | time() | datetime():
            return value.isoformat()
        case bytes():
            return value.decode("latin-1")
        case _:
            raise TypeError(f"{type(value).__name__} cannot be written as JSON")
