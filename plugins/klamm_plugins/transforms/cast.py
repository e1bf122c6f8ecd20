"""Cast: other types for fields of the key or the value, or for the whole of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, invalid
from klamm_base.errors import ConfigError
from klamm_plugins.logical import is_logical
from klamm_plugins.schema import Schema, SchemaBuilder, Struct
from klamm_plugins.schema import Type as SchemaType
from klamm_plugins.transforms._parts import (
    PartTransformation,
    Plan,
    defaults,
    filled,
    like,
    require_map,
    require_struct_schema,
    values_of,
)
from klamm_plugins.transforms._validators import REPLACE_NULL, with_replace_null
from klamm_plugins.transforms.casting import OUTPUTS, Convert, caster, names

_PURPOSE: Final = "cast types"


def _parse(mappings: Sequence[str]) -> dict[str | None, SchemaType]:
    """Returns types by field; None is the whole. Raises ConfigError."""
    casts: dict[str | None, SchemaType] = {}
    for mapping in mappings:
        parts = mapping.split(":")
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        if len(parts) > 2:
            raise invalid("spec", f"[{', '.join(mappings)}]", f"Invalid cast mapping: {mapping}")
        field = parts[0].strip() if len(parts) == 2 else None
        casts[field] = _type(parts[-1].strip())
    if None in casts and len(mappings) > 1:
        raise ConfigError(
            "Cast transformations that specify a type to cast the entire value to may only specify a single cast in "
            "their spec",
            key="spec",
        )
    return casts


def _type(name: str) -> SchemaType:
    try:
        found = SchemaType[name.upper()]
    except KeyError:
        raise ConfigError(f"Invalid type found in casting spec: {name}", key="spec") from None
    if found not in OUTPUTS:
        raise ConfigError(
            f"Cast transformation does not support casting to {found.name}; supported types are {names(OUTPUTS)}",
            key="spec",
        )
    return found


def _spec(name: str, value: Any) -> None:
    if not value:
        raise ConfigError("Must specify at least one field to cast.", key=name)
    _parse(value)


class Cast(PartTransformation):
    @classmethod
    def config(cls) -> ConfigDef:
        return with_replace_null(
            ConfigDef().define(
                "spec",
                Type.LIST,
                validator=_spec,
                importance=Importance.HIGH,
                documentation="Fields and their new types, as field:type,other:type, or one type for the whole. Types "
                "are int8, int16, int32, int64, float32, float64, boolean and string. Bytes become strings only.",
            )
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        casts = _parse(settings["spec"])
        self._whole = casts.pop(None, None)
        self._casts: dict[str, SchemaType] = {name: kind for name, kind in casts.items() if name is not None}
        self._fills = settings[REPLACE_NULL]
        self._plain = {name: caster(None, kind) for name, kind in self._casts.items()}

    def plan(self, schema: Schema | None) -> Plan:
        if self._whole is not None:
            return self._of_whole(schema, self._whole)
        return Plan(None, self._map) if schema is None else self._of_struct(schema)

    def _of_whole(self, schema: Schema | None, target: SchemaType) -> Plan:
        convert = caster(schema, target)
        if schema is None:
            return Plan(None, convert)
        # A number that was a date is no date any more. Kafka keeps the schema's name, which its converters then refuse.
        builder = SchemaBuilder(target) if is_logical(schema) else like(schema, target)
        builder.default(convert(schema.default))
        return Plan((builder.optional() if schema.optional else builder).build(), convert)

    def _of_struct(self, schema: Schema) -> Plan:
        require_struct_schema(schema, _PURPOSE)
        builder = like(schema, SchemaType.STRUCT)
        casts: list[tuple[int, Convert]] = []
        for field in schema.fields:
            target = self._casts.get(field.name)
            if target is None:
                builder.field(field.name, field.schema)
                continue
            convert = caster(field.schema, target)
            casts.append((field.index, convert))
            cast = SchemaBuilder(target).default(convert(field.schema.default))
            builder.field(field.name, (cast.optional() if field.schema.optional else cast).build())
        if schema.optional:
            builder.optional()
        fills = defaults(schema) if self._fills else []

        def converted(value: Any) -> list[Any]:
            values = filled(list(values_of(value, schema, _PURPOSE)), fills)
            for place, convert in casts:
                values[place] = convert(values[place])
            return values

        if schema.default is not None:
            builder.default(Struct.of_checked(builder.build(), converted(schema.default)))
        updated = builder.build()
        return Plan(updated, lambda value: Struct.of_checked(updated, converted(value)))

    def _map(self, value: Any) -> dict[str, Any]:
        made = dict(require_map(value, _PURPOSE))
        for name, convert in self._plain.items():
            made[name] = convert(made.get(name))
        return made


class CastKey(Cast):
    kafka_name = "org.apache.kafka.connect.transforms.Cast$Key"
    on_key = True


class CastValue(Cast):
    kafka_name = "org.apache.kafka.connect.transforms.Cast$Value"
    on_key = False
