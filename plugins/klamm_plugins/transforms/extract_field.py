"""ExtractField: one field of the key or the value takes the place of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type
from klamm_plugins.columns import StructColumn
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema
from klamm_plugins.transforms._parts import PartTransformation, Plan, filled_columns, require_map, values_of
from klamm_plugins.transforms._validators import REPLACE_NULL, with_replace_null
from klamm_plugins.transforms.field_path import (
    SYNTAX,
    field_at,
    map_value,
    parse_path,
    struct_reader,
    with_syntax,
)

_PURPOSE: Final = "field extraction"


class ExtractField(PartTransformation):
    passes_null = False

    @classmethod
    def config(cls) -> ConfigDef:
        return with_syntax(
            with_replace_null(
                ConfigDef().define(
                    "field",
                    Type.STRING,
                    importance=Importance.MEDIUM,
                    documentation="Name of the field, or the path to it.",
                )
            )
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._name: str = settings["field"]
        self._path = parse_path(self._name, settings[SYNTAX])
        self._fills: bool = settings[REPLACE_NULL]

    def plan(self, schema: Schema | None) -> Plan:
        if schema is None:
            return Plan(None, self._of_map)
        field = field_at(schema, self._path)
        if field is None:
            raise DataError(f"Unknown field: {self._name}")
        read = struct_reader(schema, self._path, fills=self._fills)

        def change(value: Any) -> Any:
            if value is None:
                return None
            values_of(value, schema, _PURPOSE)
            return read(value)

        def column(structs: StructColumn) -> Sequence[Any]:
            fills = [] if not self._fills or field.schema.default is None else [(0, field.schema.default)]
            return filled_columns([structs.columns[field.index]], fills)[0]

        return Plan(field.schema, change, column if len(self._path) == 1 else None)

    def _of_map(self, value: Any) -> Any:
        return None if value is None else map_value(require_map(value, _PURPOSE), self._path)


class ExtractFieldKey(ExtractField):
    kafka_name = "org.apache.kafka.connect.transforms.ExtractField$Key"
    on_key = True


class ExtractFieldValue(ExtractField):
    kafka_name = "org.apache.kafka.connect.transforms.ExtractField$Value"
    on_key = False
