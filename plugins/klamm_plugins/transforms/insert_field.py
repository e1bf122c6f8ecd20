"""InsertField: adds fields with the record's topic, partition, offset or timestamp, or of a fixed value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from klamm_base.configdef import ConfigDef, Importance, Type, invalid
from klamm_base.errors import ConfigError
from klamm_plugins.errors import DataError
from klamm_plugins.logical import from_primitive, timestamp_builder
from klamm_plugins.records import SinkRecord
from klamm_plugins.schema import (
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
)
from klamm_plugins.schema import Type as SchemaType
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import (
    KlammTransformation,
    Plans,
    class_name,
    defaults,
    filled,
    like,
    require_map,
    require_struct_schema,
    values_of,
)
from klamm_plugins.transforms._validators import REPLACE_NULL, with_replace_null

_PURPOSE: Final = "field insertion"
_TIMESTAMP: Final = timestamp_builder().build()
_OPTIONAL_TIMESTAMP: Final = timestamp_builder().optional().build()
_SUFFIX: Final = "A ! at the end makes the field required, a ? optional (the default)."
_KEYS: Final = (
    ("topic.field", "Name of the field for the topic."),
    ("partition.field", "Name of the field for the partition."),
    ("offset.field", "Name of the field for the offset; for sinks only."),
    ("timestamp.field", "Name of the field for the record's timestamp."),
    ("static.field", "Name of the field for static.value."),
)
_Source = Callable[[Record], Any]


class _Insertion(NamedTuple):
    """A field to add: its schema, and the source of its value with and without a schema."""

    name: str
    schema: Schema
    typed: _Source
    plain: _Source


class InsertField(KlammTransformation):
    on_key: ClassVar[bool]

    def __init__(self) -> None:
        self._plans = Plans(self._plan)

    @classmethod
    def config(cls) -> ConfigDef:
        config = ConfigDef()
        for name, what in _KEYS:
            config.define(
                name, Type.STRING, None, importance=Importance.MEDIUM, documentation=f"{what} {_SUFFIX}"
            )
        config.define(
            "static.value",
            Type.STRING,
            None,
            importance=Importance.MEDIUM,
            documentation="Value of static.field.",
        )
        return with_replace_null(config)

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._fills = settings[REPLACE_NULL]
        static = settings["static.value"]
        if all(settings[name] is None for name, _ in _KEYS):
            raise ConfigError("No field insertion configured")
        if settings["static.field"] is not None and static is None:
            field = settings["static.field"]
            raise invalid("static.value", None, f"No value specified for static field: {field}")
        self._inserts = [
            _insertion(name, settings[name], static) for name, _ in _KEYS if settings[name] is not None
        ]

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        on_key, plans = self.on_key, self._plans
        last: Any = self  # no schema
        made: list[Record | None] = []
        for record in records:
            value = record.key if on_key else record.value
            if value is None:
                made.append(record)
                continue
            schema = record.key_schema if on_key else record.value_schema
            if schema is not last:
                last = schema
                updated, change = plans[schema]
            changed = record.copy()
            if on_key:
                changed.key_schema, changed.key = updated, change(value, record)
            else:
                changed.value_schema, changed.value = updated, change(value, record)
            made.append(changed)
        return made

    def _plan(self, schema: Schema | None) -> tuple[Schema | None, Callable[[Any, Record], Any]]:
        if schema is None:
            return None, self._into_map
        require_struct_schema(schema, _PURPOSE)
        builder = like(schema, SchemaType.STRUCT)
        for field in schema.fields:
            builder.field(field.name, field.schema)
        for insert in self._inserts:
            builder.field(insert.name, insert.schema)
        updated = builder.build()
        fills = defaults(schema) if self._fills else []
        sources = [insert.typed for insert in self._inserts]

        def change(value: Any, record: Record) -> Struct:
            values = filled(list(values_of(value, schema, _PURPOSE)), fills)
            values += [source(record) for source in sources]
            return Struct.of_checked(updated, values)

        return updated, change

    def _into_map(self, value: Any, record: Record) -> dict[str, Any]:
        made = dict(require_map(value, _PURPOSE))
        for insert in self._inserts:
            found = insert.plain(record)
            if found is not None:
                made[insert.name] = found
        return made


def _insertion(kind: str, spec: str, static: str | None) -> _Insertion:
    required = spec.endswith("!")
    name = spec[:-1] if spec.endswith(("!", "?")) else spec
    match kind:
        case "topic.field":
            return _Insertion(name, STRING if required else OPTIONAL_STRING, _topic, _topic)
        case "partition.field":
            return _Insertion(name, INT32 if required else OPTIONAL_INT32, _partition, _partition)
        case "offset.field":
            return _Insertion(name, INT64 if required else OPTIONAL_INT64, _offset, _offset)
        case "timestamp.field":
            schema = _TIMESTAMP if required else _OPTIONAL_TIMESTAMP
            return _Insertion(name, schema, _moment, lambda record: record.timestamp)
        case _:
            return _Insertion(
                name, STRING if required else OPTIONAL_STRING, lambda _: static, lambda _: static
            )


def _topic(record: Record) -> str:
    return record.topic


def _partition(record: Record) -> int | None:
    return record.partition


def _offset(record: Record) -> int:
    if not isinstance(record, SinkRecord):
        raise DataError(f"Only SinkRecord supported for [{_PURPOSE}], found: {class_name(record)}")
    return record.offset


def _moment(record: Record) -> Any:
    return from_primitive(_TIMESTAMP, record.timestamp)


class InsertFieldKey(InsertField):
    kafka_name = "org.apache.kafka.connect.transforms.InsertField$Key"
    on_key = True


class InsertFieldValue(InsertField):
    kafka_name = "org.apache.kafka.connect.transforms.InsertField$Value"
    on_key = False
