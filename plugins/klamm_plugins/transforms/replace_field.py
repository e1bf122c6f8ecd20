"""ReplaceField: leaves out or renames fields of the key or the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type, invalid
from klamm_plugins.columns import StructColumn
from klamm_plugins.schema import Schema, Struct
from klamm_plugins.schema import Type as SchemaType
from klamm_plugins.transforms._parts import (
    PartTransformation,
    Plan,
    defaults,
    filled,
    filled_columns,
    like,
    picker,
    require_map,
    require_struct_schema,
    values_of,
)
from klamm_plugins.transforms._validators import REPLACE_NULL, distinct, with_replace_null

_PURPOSE = "field replacement"


def _renames(name: str, mappings: Sequence[str]) -> dict[str, str]:
    renames = {}
    for mapping in mappings:
        old, colon, new = mapping.rstrip(":").partition(
            ":"
        )  # Java's split passes over what is empty at the end
        if not colon or ":" in new:
            raise invalid(name, f"[{', '.join(mappings)}]", f"Invalid rename mapping: {mapping}")
        renames[old] = new
    return renames


def _check_renames(name: str, value: Any) -> None:
    _renames(name, value or [])


class ReplaceField(PartTransformation):
    @classmethod
    def config(cls) -> ConfigDef:
        return with_replace_null(
            ConfigDef()
            .define(
                "exclude",
                Type.LIST,
                [],
                validator=distinct,
                importance=Importance.MEDIUM,
                documentation="Fields to leave out, also of those that include names.",
            )
            .define(
                "include",
                Type.LIST,
                [],
                validator=distinct,
                importance=Importance.MEDIUM,
                documentation="Fields to keep; all where none is named.",
            )
            .define(
                "renames",
                Type.LIST,
                [],
                validator=_check_renames,
                importance=Importance.MEDIUM,
                documentation="New names of fields, as old:new,other:name.",
            )
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._exclude = frozenset(settings["exclude"])
        self._include = frozenset(settings["include"])
        self._renames = _renames("renames", settings["renames"])
        self._fills = settings[REPLACE_NULL]

    def _keeps(self, field: str) -> bool:
        return field not in self._exclude and (not self._include or field in self._include)

    def plan(self, schema: Schema | None) -> Plan:
        if schema is None:
            return Plan(None, self._map)
        require_struct_schema(schema, _PURPOSE)
        builder = like(schema, SchemaType.STRUCT)
        places = [f.index for f in schema.fields if self._keeps(f.name)]
        for place in places:
            field = schema.fields[place]
            builder.field(self._renames.get(field.name, field.name), field.schema)
        updated = builder.build()
        pick = picker(places)
        fills = defaults(schema, places) if self._fills else []

        def change(value: Any) -> Struct:
            return Struct.of_checked(updated, filled(pick(values_of(value, schema, _PURPOSE)), fills))

        def change_columns(structs: StructColumn) -> StructColumn:
            kept = [structs.columns[place] for place in places]
            return StructColumn(updated, filled_columns(kept, fills), len(structs))

        return Plan(updated, change, change_columns)

    def _map(self, value: Any) -> dict[str, Any]:
        keeps, renames = self._keeps, self._renames
        return {renames.get(k, k): v for k, v in require_map(value, _PURPOSE).items() if keeps(k)}


class ReplaceFieldKey(ReplaceField):
    kafka_name = "org.apache.kafka.connect.transforms.ReplaceField$Key"
    on_key = True


class ReplaceFieldValue(ReplaceField):
    kafka_name = "org.apache.kafka.connect.transforms.ReplaceField$Value"
    on_key = False
