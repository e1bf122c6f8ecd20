"""HeaderFrom: moves or copies fields of the key or the value into headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from klamm_base.configdef import ConfigDef, Importance, Type, one_of
from klamm_base.errors import ConfigError
from klamm_plugins.batch import Batch
from klamm_plugins.errors import DataError
from klamm_plugins.records import Header, Headers
from klamm_plugins.schema import Schema, Struct
from klamm_plugins.schema import Type as SchemaType
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import (
    KlammTransformation,
    Plans,
    defaults,
    filled,
    like,
    part_of,
    picker,
    require_map,
    require_struct_schema,
    values_of,
    with_part,
)
from klamm_plugins.transforms._validators import REPLACE_NULL, not_empty_list, with_replace_null

_MOVE: Final = "move"


class _Plan(NamedTuple):
    schema: Schema | None
    change: Callable[[Any], tuple[Any, list[Header]]]
    """The new value, and the headers to add."""


class HeaderFrom(KlammTransformation):
    on_key: ClassVar[bool]

    def __init__(self) -> None:
        self._plans = Plans(self._plan)

    @classmethod
    def config(cls) -> ConfigDef:
        return with_replace_null(
            ConfigDef()
            .define(
                "fields",
                Type.LIST,
                validator=not_empty_list,
                importance=Importance.HIGH,
                documentation="Fields that become headers.",
            )
            .define(
                "headers",
                Type.LIST,
                validator=not_empty_list,
                importance=Importance.HIGH,
                documentation="Names of the headers, in the order of the fields.",
            )
            .define(
                "operation",
                Type.STRING,
                validator=one_of("move", "copy"),
                importance=Importance.HIGH,
                documentation="move: the fields are taken out of the key or value; copy: they stay there as well.",
            )
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._fields: list[str] = settings["fields"]
        self._headers: list[str] = settings["headers"]
        if len(self._fields) != len(self._headers):
            raise ConfigError("'fields' config must have the same number of elements as 'headers' config.")
        self._moves = settings["operation"] == _MOVE
        self._purpose = f"header {settings['operation']}"
        self._fills = settings[REPLACE_NULL]

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        on_key, plans = self.on_key, self._plans
        last: Any = self  # no schema
        made: list[Record | None] = []
        for record in records:
            schema = record.key_schema if on_key else record.value_schema
            if schema is not last:
                last = schema
                updated, change = plans[schema]
            value, headers = change(record.key if on_key else record.value)
            changed = record.copy()
            if on_key:
                changed.key_schema, changed.key = updated, value
            else:
                changed.value_schema, changed.value = updated, value
            changed.headers = Headers((*record.headers, *headers))
            made.append(changed)
        return made

    def leaves_values(self) -> bool:
        return self.on_key

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        schema, column = part_of(batch, on_key=self.on_key)
        updated, change = self._plans[schema]
        values, added = zip(*map(change, column), strict=True)
        if batch.headers is None:
            headers = [Headers(more) for more in added]
        else:
            headers = [Headers((*old, *more)) for old, more in zip(batch.headers, added, strict=True)]
        return [with_part(batch, updated, list(values), on_key=self.on_key).replace(headers=headers)]

    def _plan(self, schema: Schema | None) -> _Plan:
        if schema is None:
            return _Plan(None, self._of_map)
        require_struct_schema(schema, self._purpose)
        sources = []
        for name, header in zip(self._fields, self._headers, strict=True):
            field = schema.field(name)
            if field is None:
                raise DataError(f"Field does not exist: {name}")
            default = field.schema.default if self._fills else None
            sources.append((header, field.index, default, field.schema))
        updated, places = self._remaining(schema) if self._moves else (schema, [])
        pick = picker(places)
        fills = defaults(schema, places) if self._fills else []
        moves, purpose = self._moves, self._purpose

        def change(value: Any) -> tuple[Any, list[Header]]:
            values = values_of(value, schema, purpose)
            headers = [
                Header(name, default if values[i] is None else values[i], of)
                for name, i, default, of in sources
            ]
            return Struct.of_checked(updated, filled(pick(values), fills)) if moves else value, headers

        return _Plan(updated, change)

    def _remaining(self, schema: Schema) -> tuple[Schema, list[int]]:
        builder = like(schema, SchemaType.STRUCT)
        places = [f.index for f in schema.fields if f.name not in self._fields]
        for place in places:
            builder.field(schema.fields[place].name, schema.fields[place].schema)
        return builder.build(), places

    def _of_map(self, value: Any) -> tuple[Any, list[Header]]:
        fields = require_map(value, self._purpose)
        headers = [Header(h, fields.get(f)) for f, h in zip(self._fields, self._headers, strict=True)]
        if self._moves:
            fields = {k: v for k, v in fields.items() if k not in self._fields}
        return fields, headers


class HeaderFromKey(HeaderFrom):
    kafka_name = "org.apache.kafka.connect.transforms.HeaderFrom$Key"
    on_key = True


class HeaderFromValue(HeaderFrom):
    kafka_name = "org.apache.kafka.connect.transforms.HeaderFrom$Value"
    on_key = False
