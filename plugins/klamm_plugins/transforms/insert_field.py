"""InsertField: adds fields with the record's topic, partition, offset or timestamp, or of a fixed value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple

from klamm_base.configdef import ConfigDef, Importance, Type, invalid
from klamm_base.errors import ConfigError
from klamm_plugins.batch import Batch, SinkBatch
from klamm_plugins.columns import Repeated, StructColumn
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
    filled_columns,
    in_columns,
    like,
    null_parts,
    part_of,
    require_map,
    require_struct_schema,
    values_of,
    with_part,
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


class _Insertion(NamedTuple):
    """A field to add: its schema, the source of its value, for a record and for all records of a batch, and what makes of
    that a value of the schema.
    """

    name: str
    schema: Schema
    source: Callable[[Record], Any]
    column: Callable[[Batch], Iterable[Any]]
    typed: Callable[[Any], Any] | None = None


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
            added = [insert.source(record) for insert in self._inserts]
            if on_key:
                changed.key_schema, changed.key = updated, change(value, added)
            else:
                changed.value_schema, changed.value = updated, change(value, added)
            made.append(changed)
        return made

    def leaves_values(self) -> bool:
        return self.on_key

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        schema, column = part_of(batch, on_key=self.on_key)
        if parts := null_parts(batch, column):
            return [after for null, part in parts for after in ([part] if null else self.apply_batch(part))]
        updated, change = self._plans[schema]
        added = [insert.column(batch) for insert in self._inserts]
        if in_columns(column, schema):
            return [with_part(batch, updated, self._beside(column, updated, added), on_key=self.on_key)]
        if schema is None and all(isinstance(each, repeat) for each in added):
            same = self._into_map({}, [next(iter(each)) for each in added])
            made = [{**require_map(value, _PURPOSE), **same} for value in column]
        else:
            made = [change(value, row) for value, row in zip(column, zip(*added, strict=False), strict=False)]
        return [with_part(batch, updated, made, on_key=self.on_key)]

    def _plan(self, schema: Schema | None) -> tuple[Schema | None, Callable[[Any, Sequence[Any]], Any]]:
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
        typed = [insert.typed for insert in self._inserts]

        def change(value: Any, added: Sequence[Any]) -> Struct:
            values = filled(list(values_of(value, schema, _PURPOSE)), fills)
            values += [each if to is None else to(each) for to, each in zip(typed, added, strict=True)]
            return Struct.of_checked(updated, values)

        return updated, change

    def _beside(self, structs: StructColumn, updated: Schema, added: Sequence[Iterable[Any]]) -> StructColumn:
        count = len(structs)
        columns = filled_columns(structs.columns, defaults(structs.schema) if self._fills else [])
        for insert, values in zip(self._inserts, added, strict=True):
            to = insert.typed or _as_it_is
            if isinstance(values, repeat):
                columns.append(Repeated(to(next(values)), count))
            else:
                columns.append(list(map(to, values)))
        return StructColumn(updated, columns, count)

    def _into_map(self, value: Any, added: Sequence[Any]) -> dict[str, Any]:
        made = dict(require_map(value, _PURPOSE))
        for insert, found in zip(self._inserts, added, strict=True):
            if found is not None:
                made[insert.name] = found
        return made


def _as_it_is(value: Any) -> Any:
    return value


def _insertion(kind: str, spec: str, static: str | None) -> _Insertion:
    required = spec.endswith("!")
    name = spec[:-1] if spec.endswith(("!", "?")) else spec
    text = STRING if required else OPTIONAL_STRING
    match kind:
        case "topic.field":
            return _Insertion(name, text, attrgetter("topic"), lambda batch: repeat(batch.topic))
        case "partition.field":
            schema = INT32 if required else OPTIONAL_INT32
            return _Insertion(name, schema, attrgetter("partition"), lambda batch: repeat(batch.partition))
        case "offset.field":
            return _Insertion(name, INT64 if required else OPTIONAL_INT64, _offset, _offsets)
        case "timestamp.field":
            schema = _TIMESTAMP if required else _OPTIONAL_TIMESTAMP
            return _Insertion(name, schema, attrgetter("timestamp"), attrgetter("timestamps"), _moment)
        case _:
            return _Insertion(name, text, lambda _: static, lambda _: repeat(static))


def _offset(record: Record) -> int:
    if not isinstance(record, SinkRecord):
        raise DataError(f"Only SinkRecord supported for [{_PURPOSE}], found: {class_name(record)}")
    return record.offset


def _offsets(batch: Batch) -> Sequence[int]:
    if not isinstance(batch, SinkBatch):
        raise DataError(f"Only SinkRecord supported for [{_PURPOSE}], found: {class_name(batch)}")
    return batch.offsets


def _moment(timestamp: int | None) -> Any:
    return from_primitive(_TIMESTAMP, timestamp)


class InsertFieldKey(InsertField):
    kafka_name = "org.apache.kafka.connect.transforms.InsertField$Key"
    on_key = True


class InsertFieldValue(InsertField):
    kafka_name = "org.apache.kafka.connect.transforms.InsertField$Value"
    on_key = False
