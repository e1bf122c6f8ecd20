"""Flatten: nested structs and maps become fields of the whole, named by their path. Arrays stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, SchemaBuilder, Struct
from klamm_plugins.schema import Type as SchemaType
from klamm_plugins.transforms._parts import (
    PartTransformation,
    Plan,
    like,
    require_map,
    require_struct_schema,
    values_of,
)

_PURPOSE: Final = "flattening"
_Append = Callable[[Any, list[Any]], None]


class Flatten(PartTransformation):
    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define(
            "delimiter",
            Type.STRING,
            ".",
            importance=Importance.MEDIUM,
            documentation="What stands between the names of a path.",
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        self._delimiter: str = self.config().parse(props)["delimiter"]

    def plan(self, schema: Schema | None) -> Plan:
        if schema is None:
            return Plan(None, self._map)
        require_struct_schema(schema, _PURPOSE)
        builder = like(schema, SchemaType.STRUCT)
        append = self._fields(schema, "", builder, optional=schema.optional, default=schema.default)
        updated = builder.build()

        def change(value: Any) -> Struct:
            values_of(value, schema, _PURPOSE)
            made: list[Any] = []
            append(value, made)
            return Struct.of_checked(updated, made)

        return Plan(updated, change)

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name

    def _fields(
        self, schema: Schema, prefix: str, builder: SchemaBuilder, *, optional: bool, default: Struct | None
    ) -> _Append:
        """Adds the fields of a struct to the flat schema, and returns a function that appends a struct's values to a flat
        list.
        """
        steps: list[tuple[int, Any, _Append | None]] = []
        for field in schema.fields:
            name = self._name(prefix, field.name)
            of_field = field.schema.default
            if of_field is None and default is not None:
                of_field = default.get(field.name)
            may_be_null = optional or field.schema.optional
            if field.schema.type is SchemaType.STRUCT:
                inner = self._fields(field.schema, name, builder, optional=may_be_null, default=of_field)
                steps.append((field.index, None, inner))  # a struct that is null leaves its fields null
            elif field.schema.type is SchemaType.MAP:
                raise DataError(
                    f"Flatten transformation does not support MAP for record with schemas (for field {name})."
                )
            else:
                flat = like(field.schema).default(of_field)
                builder.field(name, (flat.optional() if may_be_null else flat).build())
                steps.append((field.index, field.schema.default, None))
        return _appender(steps)

    def _map(self, value: Any) -> dict[str, Any]:
        made: dict[str, Any] = {}
        self._flatten_map(require_map(value, _PURPOSE), "", made)
        return made

    def _flatten_map(self, value: dict[str, Any], prefix: str, made: dict[str, Any]) -> None:
        for key, inner in value.items():
            name = self._name(prefix, key)
            if isinstance(inner, dict):
                self._flatten_map(inner, name, made)
            elif isinstance(inner, Struct):
                raise DataError(
                    "Flatten transformation does not support Struct for record without schemas "
                    f"(for field {name})."
                )
            else:
                made[name] = inner


def _appender(steps: list[tuple[int, Any, _Append | None]]) -> _Append:
    def append(struct: Struct | None, made: list[Any]) -> None:
        values = None if struct is None else struct.values
        for index, default, inner in steps:
            value = None if values is None else values[index]
            if value is None and values is not None:
                value = default
            if inner is None:
                made.append(value)
            else:
                inner(value, made)

    return append


class FlattenKey(Flatten):
    kafka_name = "org.apache.kafka.connect.transforms.Flatten$Key"
    on_key = True


class FlattenValue(Flatten):
    kafka_name = "org.apache.kafka.connect.transforms.Flatten$Value"
    on_key = False
