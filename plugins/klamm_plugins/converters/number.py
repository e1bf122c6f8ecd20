"""Numbers and booleans as bytes: big-endian, as wide as their type, as Kafka's serializers write them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from klamm_base.configdef import ConfigDef
from klamm_base.version import __version__
from klamm_plugins.converter import Converter, HeaderConverter, SchemaAndValue
from klamm_plugins.converters._common import converter_config
from klamm_plugins.errors import DataError
from klamm_plugins.schema import (
    OPTIONAL_BOOLEAN,
    OPTIONAL_FLOAT32,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT16,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    Schema,
    Type,
)


class _FixedConverter(Converter, HeaderConverter):
    """A converter of values of a fixed width; null is null."""

    label: ClassVar[str]
    schema: ClassVar[Schema]
    layout: ClassVar[struct.Struct]

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return converter_config()

    def configure(self, props: Mapping[str, Any], *, is_key: bool) -> None:
        self.config().parse({**props, "converter.type": "key" if is_key else "value"})

    def configure_header(self, props: Mapping[str, Any]) -> None:
        self.config().parse({**props, "converter.type": "header"})

    def _check(self, schema: Schema | None, value: Any) -> None:
        """Raises DataError for values that the layout cannot hold, and for those that it would take by mistake."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise DataError(f"Failed to serialize to {self.label} (was {type(value).__name__})")

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        self._check(schema, value)
        try:
            return self.layout.pack(value)
        except (struct.error, OverflowError) as e:
            raise DataError(f"Failed to serialize to {self.label}: {value} does not fit ({e})") from e

    def to_connect_data(self, topic: str, value: bytes | None) -> SchemaAndValue:
        if value is None:
            return SchemaAndValue(self.schema, None)
        if len(value) != self.layout.size:
            raise DataError(
                f"Failed to deserialize {self.label}: {len(value)} bytes instead of {self.layout.size}"
            )
        return SchemaAndValue(self.schema, self.layout.unpack(value)[0])

    def to_connect_data_many(self, topic: str, values: Sequence[bytes | None]) -> list[SchemaAndValue]:
        unpack, schema, new = self.layout.unpack, self.schema, SchemaAndValue
        try:
            return [new(schema, unpack(v)[0] if v is not None else None) for v in values]
        except struct.error:
            return super().to_connect_data_many(topic, values)

    def from_connect_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, name: str, value: bytes | None) -> SchemaAndValue:
        return self.to_connect_data(topic, value)


class ShortConverter(_FixedConverter):
    kafka_name = "org.apache.kafka.connect.converters.ShortConverter"
    label, schema, layout = "short", OPTIONAL_INT16, struct.Struct(">h")


class IntegerConverter(_FixedConverter):
    kafka_name = "org.apache.kafka.connect.converters.IntegerConverter"
    label, schema, layout = "integer", OPTIONAL_INT32, struct.Struct(">i")


class LongConverter(_FixedConverter):
    kafka_name = "org.apache.kafka.connect.converters.LongConverter"
    label, schema, layout = "long", OPTIONAL_INT64, struct.Struct(">q")


class _FloatingConverter(_FixedConverter):
    def _check(self, schema: Schema | None, value: Any) -> None:
        if not isinstance(value, float):
            super()._check(schema, value)  # an int is a float to Python


class FloatConverter(_FloatingConverter):
    kafka_name = "org.apache.kafka.connect.converters.FloatConverter"
    label, schema, layout = "float", OPTIONAL_FLOAT32, struct.Struct(">f")


class DoubleConverter(_FloatingConverter):
    kafka_name = "org.apache.kafka.connect.converters.DoubleConverter"
    label, schema, layout = "double", OPTIONAL_FLOAT64, struct.Struct(">d")


class BooleanConverter(_FixedConverter):
    kafka_name = "org.apache.kafka.connect.converters.BooleanConverter"
    label, schema, layout = "boolean", OPTIONAL_BOOLEAN, struct.Struct(">?")

    def _check(self, schema: Schema | None, value: Any) -> None:
        if schema is not None and schema.type is not Type.BOOLEAN:
            raise DataError(f"Invalid schema type for BooleanConverter: {schema.type.name}")
        if not isinstance(value, bool):
            raise DataError(f"BooleanConverter is not compatible with objects of type {type(value).__name__}")

    def to_connect_data(self, topic: str, value: bytes | None) -> SchemaAndValue:
        if value is not None and value not in {b"\x00", b"\x01"}:
            raise DataError(f"Failed to deserialize boolean: {value!r} is neither 00 nor 01")
        return super().to_connect_data(topic, value)

    def to_connect_data_many(self, topic: str, values: Sequence[bytes | None]) -> list[SchemaAndValue]:
        return [self.to_connect_data(topic, v) for v in values]
