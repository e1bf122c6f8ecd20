"""TimestampConverter: dates, times and timestamps as Connect's types, as text, or as a count since the epoch.

All goes by way of milliseconds since the epoch; what is finer is cut off, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, one_of
from klamm_base.errors import ConfigError
from klamm_plugins.date_format import DateFormat, PatternError
from klamm_plugins.errors import ConnectError, DataError
from klamm_plugins.logical import (
    DATE,
    TIME,
    TIMESTAMP,
    date_builder,
    from_primitive,
    time_builder,
    timestamp_builder,
    to_primitive,
)
from klamm_plugins.schema import INT64, OPTIONAL_INT64, OPTIONAL_STRING, STRING, Schema, Struct
from klamm_plugins.schema import Type as SchemaType
from klamm_plugins.transforms._parts import (
    PartTransformation,
    Plan,
    class_name,
    defaults,
    filled,
    like,
    require_map,
    require_struct_schema,
    values_of,
)
from klamm_plugins.transforms._validators import REPLACE_NULL, with_replace_null

_PURPOSE: Final = "converting timestamp formats"
_DAY_MS: Final = 86_400_000
_MS: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONG_MAX: Final = 2**63 - 1
_DATE, _TIME, _TIMESTAMP = (b().build() for b in (date_builder, time_builder, timestamp_builder))
_TARGETS: Final[dict[str, tuple[Schema, Schema]]] = {
    "string": (STRING, OPTIONAL_STRING),
    "unix": (INT64, OPTIONAL_INT64),
    "Date": (_DATE, date_builder().optional().build()),
    "Time": (_TIME, time_builder().optional().build()),
    "Timestamp": (_TIMESTAMP, timestamp_builder().optional().build()),
}
_LOGICAL: Final = {DATE: "Date", TIME: "Time", TIMESTAMP: "Timestamp"}
# From milliseconds to the unit of unix.precision: factor and divisor.
_PRECISION: Final = {
    "seconds": (1, 1000),
    "milliseconds": (1, 1),
    "microseconds": (1000, 1),
    "nanoseconds": (1_000_000, 1),
}

Convert = Callable[[Any], Any]


class TimestampConverter(PartTransformation):
    passes_null = False  # the schema changes all the same

    @classmethod
    def config(cls) -> ConfigDef:
        return with_replace_null(
            ConfigDef()
            .define(
                "field",
                Type.STRING,
                "",
                importance=Importance.HIGH,
                documentation="The field to convert; empty where the whole key or value is one.",
            )
            .define(
                "target.type",
                Type.STRING,
                validator=one_of(*_TARGETS),
                importance=Importance.HIGH,
                documentation="string, unix (a number since the epoch), Date, Time or Timestamp.",
            )
            .define(
                "format",
                Type.STRING,
                "",
                importance=Importance.MEDIUM,
                documentation="How texts are written and read, in UTC: a pattern of Java's SimpleDateFormat.",
            )
            .define(
                "unix.precision",
                Type.STRING,
                "milliseconds",
                validator=one_of("nanoseconds", "microseconds", "milliseconds", "seconds"),
                importance=Importance.LOW,
                documentation="The unit of numbers since the epoch. What is finer than milliseconds is cut off.",
            )
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._field: str = settings["field"]
        self._target: str = settings["target.type"]
        self._times, self._by = _PRECISION[settings["unix.precision"]]
        self._fills = settings[REPLACE_NULL]
        self._converters = {kind: self._converter(kind) for kind in _TARGETS}
        self._format: DateFormat | None = None
        pattern: str = settings["format"]
        if pattern.strip():
            try:
                self._format = DateFormat(pattern)
            except PatternError as e:
                raise ConfigError(
                    "TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps: "
                    f"{pattern}: {e}",
                    key="format",
                ) from e
        elif self._target == "string":
            raise ConfigError(
                "TimestampConverter requires format option to be specified when using string timestamps",
                key="format",
            )

    def plan(self, schema: Schema | None) -> Plan:
        if schema is None:
            return Plan(None, self._map if self._field else self._untyped)
        if not self._field:
            return Plan(_TARGETS[self._target][schema.optional], self._converters[_kind(schema)])
        return self._of_struct(schema)

    def _of_struct(self, schema: Schema) -> Plan:
        require_struct_schema(schema, _PURPOSE)
        builder = like(schema, SchemaType.STRUCT)
        place = -1
        convert: Convert = self._untyped
        for field in schema.fields:
            if field.name == self._field:
                place, convert = field.index, self._of_field(field.schema)
                builder.field(field.name, _TARGETS[self._target][field.schema.optional])
            else:
                builder.field(field.name, field.schema)
        if schema.optional:
            builder.optional()
        fills = defaults(schema) if self._fills else []

        def converted(value: Any) -> list[Any]:
            values = filled(list(values_of(value, schema, _PURPOSE)), fills)
            if place >= 0:
                values[place] = convert(values[place])
            return values

        if schema.default is not None:
            builder.default(Struct.of_checked(builder.build(), converted(schema.default)))
        updated = builder.build()
        return Plan(
            updated, lambda value: None if value is None else Struct.of_checked(updated, converted(value))
        )

    def _of_field(self, schema: Schema) -> Convert:
        """Returns the conversion of a field. One for a wrong type raises when a value comes: a null struct has none."""
        try:
            return self._converters[_kind(schema)]
        except ConnectError as e:
            why = str(e)

        def refuse(_: Any) -> Any:
            raise ConnectError(why)

        return refuse

    def _map(self, value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        made = dict(require_map(value, _PURPOSE))
        made[self._field] = self._untyped(made.get(self._field))
        return made

    def _untyped(self, value: Any) -> Any:
        """Converts a value without a schema, by the type that it looks like."""
        match value:
            case None:
                return None
            case datetime() | date() | time():
                kind = "Timestamp"
            case str():
                kind = "string"
            case int() if not isinstance(value, bool):
                kind = "unix"
            case _:
                raise DataError(
                    f"TimestampConverter does not support {class_name(value)} objects as timestamps"
                )
        return self._converters[kind](value)

    def _converter(self, kind: str) -> Convert:
        to_ms = {"string": self._ms_of_text, "unix": self._ms_of_unix}.get(kind, _ms_of_date)
        from_ms: Callable[[int], Any] = {
            "string": self._text,
            "unix": self._unix,
            "Date": lambda ms: from_primitive(_DATE, ms // _DAY_MS),
            "Time": lambda ms: from_primitive(_TIME, ms % _DAY_MS),
            "Timestamp": _moment,
        }[self._target]
        return lambda value: None if value is None else from_ms(to_ms(value))

    def _ms_of_text(self, value: Any) -> int:
        if not isinstance(value, str):
            raise DataError(f"Expected string timestamp to be a String, but found {class_name(value)}")
        if self._format is None:
            raise DataError("TimestampConverter needs the option format to read a timestamp from text")
        try:
            return self._format.parse(value)
        except ValueError as e:
            raise DataError(
                f"Could not parse timestamp: value ({value}) does not match pattern ({self._format.pattern})"
            ) from e

    def _ms_of_unix(self, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise DataError(f"Expected Unix timestamp to be a Long, but found {class_name(value)}")
        return _toward_zero(value * self._by, self._times)

    def _text(self, ms: int) -> str:
        assert self._format is not None, "configure has looked"
        try:
            return self._format.format(ms)
        except OverflowError:
            raise DataError(f"{ms} ms since the epoch is out of range") from None

    def _unix(self, ms: int) -> int:
        return _toward_zero(ms * self._times, self._by)


def _moment(ms: int) -> datetime:
    try:
        return _EPOCH + ms * _MS
    except OverflowError:
        raise DataError(f"{ms} ms since the epoch is out of range") from None


def _toward_zero(value: int, by: int) -> int:
    """Divides as Java does, within a long."""
    found = abs(value) // by
    return max(-_LONG_MAX - 1, min(_LONG_MAX, found if value >= 0 else -found))


def _ms_of_date(value: Any) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise DataError(f"{value!r} has no time zone")
        return (value - _EPOCH) // _MS
    match value:
        case date():
            return int(to_primitive(_DATE, value)) * _DAY_MS
        case time():
            return int(to_primitive(_TIME, value))
    raise DataError(f"Expected a date, time or timestamp, but found {class_name(value)}")


def _kind(schema: Schema) -> str:
    """Returns the kind of a schema's values, among the types that are converted."""
    if schema.name in _LOGICAL:
        return _LOGICAL[schema.name]
    if schema.type is SchemaType.STRING:
        return "string"
    if schema.type is SchemaType.INT64:
        return "unix"
    raise ConnectError(f"Schema {schema!r} does not correspond to a known timestamp type format")


class TimestampConverterKey(TimestampConverter):
    kafka_name = "org.apache.kafka.connect.transforms.TimestampConverter$Key"
    on_key = True


class TimestampConverterValue(TimestampConverter):
    kafka_name = "org.apache.kafka.connect.transforms.TimestampConverter$Value"
    on_key = False
