"""AvroConverter: Avro with a schema registry, as Confluent's converter of the same name.

Connect's schemas are translated to Avro's and back without loss (name, version, parameters, logical types).
Values without a schema have no Avro form. Confluent's converter invents a schema for them; ours refuses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type
from klamm_plugins.converters.avro_names import DEFAULT_RECORD, NAMESPACE
from klamm_plugins.converters.registry import RegisteredSchema
from klamm_plugins.converters.registry_converter import (
    Reading,
    RegistryConverter,
    ValueWriter,
    needs,
    registry_config,
)
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema
from klamm_plugins.schema import Type as SchemaType


class AvroConverter(RegistryConverter):
    kafka_name = "io.confluent.connect.avro.AvroConverter"
    kind = "AVRO"

    @classmethod
    def config(cls) -> ConfigDef:
        return registry_config().define(
            "connect.meta.data",
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            documentation="Whether what Avro has no word for (names of types, versions, parameters, 8 and 16 bit) is kept "
            "in properties of the schema.",
        )

    def set_up(self, settings: Mapping[str, Any]) -> None:
        self._meta: bool = settings["connect.meta.data"]
        with needs("fastavro", self.kafka_name):
            from klamm_plugins.converters import avro_read, avro_write
        self._read, self._write = avro_read, avro_write

    def schema_text(self, schema: Schema | None) -> str:
        return self._write.AvroSchema(_needed(schema), meta=self._meta).text

    def record_name(self, schema: Schema | None) -> str | None:
        if schema is None:
            return None
        unnamed = f"{NAMESPACE}.{DEFAULT_RECORD}" if schema.type is SchemaType.STRUCT else None
        return schema.name or unnamed

    def writer(self, schema: Schema | None, registered: RegisteredSchema | None) -> ValueWriter:
        needed = _needed(schema)
        if registered is None:
            return self._write.AvroWriter(needed, self._write.AvroSchema(needed, meta=self._meta).json)
        avro, named = self._read.parse(registered.text, self._client.resolved(registered))
        return self._write.AvroWriter(needed, avro, named)

    def reading(self, registered: RegisteredSchema, references: Mapping[str, str], head: bytes) -> Reading:
        reader = self._read.AvroReader(
            registered.text, references, version=registered.version, meta=self._meta
        )
        return Reading(reader.schema, reader)


def _needed(schema: Schema | None) -> Schema:
    if schema is None:
        raise DataError("AvroConverter needs values with a schema; this one has none")
    return schema
