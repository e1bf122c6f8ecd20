"""ByteArrayConverter: bytes as they are, both ways. It takes nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from klamm_base.configdef import ConfigDef
from klamm_base.version import __version__
from klamm_plugins.converter import Columns, Converter, HeaderConverter, SchemaAndValue
from klamm_plugins.converters._common import converter_config
from klamm_plugins.errors import DataError
from klamm_plugins.schema import OPTIONAL_BYTES, Schema, Type


class ByteArrayConverter(Converter, HeaderConverter):
    kafka_name = "org.apache.kafka.connect.converters.ByteArrayConverter"

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return converter_config()

    def configure(self, props: Mapping[str, Any], *, is_key: bool) -> None:
        self.config().parse({**props, "converter.type": "key" if is_key else "value"})

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is not None and schema.type is not Type.BYTES:
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.type.name}")
        if value is None:
            return None
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise DataError(
                f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}"
            )
        return bytes(value)

    def to_connect_data(self, topic: str, value: bytes | None) -> SchemaAndValue:
        return SchemaAndValue(OPTIONAL_BYTES, value)

    def to_connect_columns(self, topic: str, values: Sequence[bytes | None]) -> Columns:
        return [OPTIONAL_BYTES] * len(values), values

    def from_connect_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, name: str, value: bytes | None) -> SchemaAndValue:
        return self.to_connect_data(topic, value)
