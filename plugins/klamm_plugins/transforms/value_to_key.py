"""ValueToKey: a new key of some fields of the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type
from klamm_plugins.batch import Batch
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, SchemaBuilder, Struct
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import (
    KlammTransformation,
    Plans,
    defaults,
    filled,
    picker,
    require_map,
    require_struct_schema,
    values_of,
)
from klamm_plugins.transforms._validators import REPLACE_NULL, some_distinct, with_replace_null

_PURPOSE: Final = "copying fields from value to key"


class ValueToKey(KlammTransformation):
    kafka_name = "org.apache.kafka.connect.transforms.ValueToKey"

    def __init__(self) -> None:
        self._plans = Plans(self._plan)

    @classmethod
    def config(cls) -> ConfigDef:
        return with_replace_null(
            ConfigDef().define(
                "fields",
                Type.LIST,
                validator=some_distinct,
                importance=Importance.HIGH,
                documentation="Fields of the value that make the key.",
            )
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._fields: list[str] = settings["fields"]
        self._fills = settings[REPLACE_NULL]

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        plans = self._plans
        last: Any = self  # no schema
        made: list[Record | None] = []
        for record in records:
            if record.value_schema is not last:
                last = record.value_schema
                schema, key_of = plans[last]
            changed = record.copy()
            changed.key_schema = schema
            changed.key = key_of(record.value)
            made.append(changed)
        return made

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        schema, key_of = self._plans[batch.value_schema]
        return [batch.replace(key_schema=schema, keys=list(map(key_of, batch.values)))]

    def _plan(self, schema: Schema | None) -> tuple[Schema | None, Callable[[Any], Any]]:
        if schema is None:
            return None, self._of_map
        require_struct_schema(schema, _PURPOSE)
        builder = SchemaBuilder.struct()
        places = []
        for name in self._fields:
            field = schema.field(name)
            if field is None:
                raise DataError(f"Field does not exist: {name}")
            builder.field(name, field.schema)
            places.append(field.index)
        key_schema = builder.build()
        pick = picker(places)
        fills = defaults(schema, places) if self._fills else []

        def key_of(value: Any) -> Struct:
            return Struct.of_checked(key_schema, filled(pick(values_of(value, schema, _PURPOSE)), fills))

        return key_schema, key_of

    def _of_map(self, value: Any) -> dict[str, Any]:
        fields = require_map(value, _PURPOSE)
        return {name: fields.get(name) for name in self._fields}
