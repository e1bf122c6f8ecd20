"""SetSchemaMetadata: another name, version, or both, for the schema of the key or the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type
from klamm_base.errors import ConfigError
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, Struct
from klamm_plugins.transforms._parts import PartTransformation, Plan, defaults, filled
from klamm_plugins.transforms._validators import REPLACE_NULL, with_replace_null


class SetSchemaMetadata(PartTransformation):
    passes_null = False  # a null may have a schema

    @classmethod
    def config(cls) -> ConfigDef:
        return with_replace_null(
            ConfigDef()
            .define(
                "schema.name",
                Type.STRING,
                None,
                importance=Importance.HIGH,
                documentation="Name of the schema.",
            )
            .define(
                "schema.version",
                Type.INT,
                None,
                importance=Importance.HIGH,
                documentation="Version of the schema.",
            )
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._name, self._version = settings["schema.name"], settings["schema.version"]
        self._fills = settings[REPLACE_NULL]
        if self._name is None and self._version is None:
            raise ConfigError("Neither schema name nor version configured")

    def plan(self, schema: Schema | None) -> Plan:
        if schema is None:
            return Plan(None, _only_null)
        updated = Schema(
            schema.type,
            optional=schema.optional,
            name=schema.name if self._name is None else self._name,
            version=schema.version if self._version is None else self._version,
            doc=schema.doc,
            parameters=schema.parameters,
            fields=schema.fields,
            key_schema=schema.key_schema,
            value_schema=schema.value_schema,
            default=schema.default,
        )
        fills = defaults(schema) if self._fills else []

        def change(value: Any) -> Any:
            if not isinstance(value, Struct):
                return value
            return Struct.of_checked(updated, filled(list(value.values), fills))

        return Plan(updated, change)


def _only_null(value: Any) -> None:
    if value is not None:
        raise DataError("Schema required for [updating schema metadata]")


class SetSchemaMetadataKey(SetSchemaMetadata):
    kafka_name = "org.apache.kafka.connect.transforms.SetSchemaMetadata$Key"
    on_key = True


class SetSchemaMetadataValue(SetSchemaMetadata):
    kafka_name = "org.apache.kafka.connect.transforms.SetSchemaMetadata$Value"
    on_key = False
