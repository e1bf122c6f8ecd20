"""MaskField: what is secret in a field gives way to the null of its type (0, false, an empty text), or a replacement."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, non_empty
from klamm_plugins.errors import DataError
from klamm_plugins.logical import decimal_scale, is_decimal
from klamm_plugins.numbers import nearest_float32, wrapped
from klamm_plugins.schema import Schema, Struct
from klamm_plugins.schema import Type as SchemaType
from klamm_plugins.transforms._parts import (
    PartTransformation,
    Plan,
    defaults,
    filled,
    require_map,
    require_struct_schema,
    values_of,
)
from klamm_plugins.transforms._validators import REPLACE_NULL, some_distinct, with_replace_null
from klamm_plugins.transforms.casting import BITS

_PURPOSE: Final = "mask fields"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXPONENT_MAX: Final = 10_000  # 1e999999999 is no number that anybody means, and one of that many digits


class MaskField(PartTransformation):
    passes_null = False  # Kafka refuses what is no struct or map, null too

    @classmethod
    def config(cls) -> ConfigDef:
        return with_replace_null(
            ConfigDef()
            .define(
                "fields",
                Type.LIST,
                validator=some_distinct,
                importance=Importance.HIGH,
                documentation="Fields to mask.",
            )
            .define(
                "replacement",
                Type.STRING,
                None,
                validator=non_empty,
                importance=Importance.LOW,
                documentation="What stands in all these fields instead; they must be numbers or strings. Without it, the "
                "null of the field's type.",
            )
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._fields = frozenset(settings["fields"])
        self._replacement: str | None = settings["replacement"]
        self._fills = settings[REPLACE_NULL]

    def plan(self, schema: Schema | None) -> Plan:
        if schema is None:
            return Plan(None, self._map)
        require_struct_schema(schema, _PURPOSE)
        masked = [(f.index, f.schema) for f in schema.fields if f.name in self._fields]
        fills = defaults(schema) if self._fills else []

        def change(value: Any) -> Struct:
            values = filled(list(values_of(value, schema, _PURPOSE)), fills)
            for place, of in masked:
                values[place] = self._masked(values[place], of)
            return Struct.of_checked(schema, values)

        return Plan(schema, change)

    def _map(self, value: Any) -> dict[str, Any]:
        made = dict(require_map(value, _PURPOSE))
        for name in self._fields:
            made[name] = self._masked(made.get(name), None)
        return made

    def _masked(self, value: Any, schema: Schema | None) -> Any:
        if value is None:
            return None
        return _null_of(value, schema) if self._replacement is None else self._replaced(value, schema)

    def _replaced(self, value: Any, schema: Schema | None) -> Any:
        text = self._replacement
        assert text is not None
        if isinstance(value, str):
            return text
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise DataError(f"Cannot mask value of type {type(value).__name__} with custom replacement.")
        try:
            number = Decimal(text)
        except InvalidOperation:
            number = Decimal("NaN")
        if not number.is_finite() or abs(number.adjusted()) > _EXPONENT_MAX:
            raise DataError(f"Unable to convert {text} to number")
        if isinstance(value, Decimal):
            return _of_scale(number, schema)
        if isinstance(value, float):
            of_float32 = schema is not None and schema.type is SchemaType.FLOAT32
            return nearest_float32(float(number)) if of_float32 else float(number)
        return wrapped(int(number), 64 if schema is None else BITS[schema.type])


def _of_scale(number: Decimal, schema: Schema | None) -> Decimal:
    """Gives a replacement the scale of the schema. Kafka keeps the number's own scale, which its converters then refuse."""
    if schema is None or not is_decimal(schema):
        return number
    scaled = round(number, decimal_scale(schema))
    if scaled != number:
        raise DataError(
            f"Unable to convert {number} to a decimal of scale {decimal_scale(schema)} without loss"
        )
    return scaled


def _null_of(value: Any, schema: Schema | None) -> Any:
    match value:
        case bool():
            return False
        case int():
            return 0
        case float():
            return 0.0
        case str():
            return ""
        case Decimal():
            return _of_scale(Decimal(0), schema)
        case datetime():
            return _EPOCH
        case date():
            return _EPOCH.date()
        case time():
            return time(0)
        case list():
            return []
        case dict():
            return {}
    raise DataError(f"Cannot mask value of type: {type(value).__name__}")


class MaskFieldKey(MaskField):
    kafka_name = "org.apache.kafka.connect.transforms.MaskField$Key"
    on_key = True


class MaskFieldValue(MaskField):
    kafka_name = "org.apache.kafka.connect.transforms.MaskField$Value"
    on_key = False
