"""HoistField: puts the key or the value into a struct (a map, without a schema) as its only field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type
from klamm_plugins.schema import Schema, SchemaBuilder, Struct, validate_value
from klamm_plugins.transforms._parts import PartTransformation, Plan


class HoistField(PartTransformation):
    passes_null = False

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define(
            "field",
            Type.STRING,
            importance=Importance.MEDIUM,
            documentation="Name of the only field of the new struct or map.",
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        self._field: str = self.config().parse(props)["field"]

    def plan(self, schema: Schema | None) -> Plan:
        field = self._field
        if schema is None:
            return Plan(None, lambda value: {field: value})
        updated = SchemaBuilder.struct().field(field, schema).build()

        def change(value: Any) -> Struct:
            if value is None:
                validate_value(schema, None, field)
            return Struct.of_checked(updated, [value])

        return Plan(updated, change)


class HoistFieldKey(HoistField):
    kafka_name = "org.apache.kafka.connect.transforms.HoistField$Key"
    on_key = True


class HoistFieldValue(HoistField):
    kafka_name = "org.apache.kafka.connect.transforms.HoistField$Value"
    on_key = False
