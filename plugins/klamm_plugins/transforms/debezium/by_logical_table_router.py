"""ByLogicalTableRouter: change events of several tables go to one topic, with one schema and keys that stay apart."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, invalid, non_empty
from klamm_plugins.batch import Batch
from klamm_plugins.errors import DataError
from klamm_plugins.original_keys import KeyTable
from klamm_plugins.schema import STRING, Schema, SchemaBuilder, Struct
from klamm_plugins.schema import Type as SchemaType
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import (
    Change,
    KlammTransformation,
    defaults,
    filled,
    like,
    null_parts,
)
from klamm_plugins.transforms._validators import regex
from klamm_plugins.transforms.debezium.envelope import (
    AFTER,
    BEFORE,
    SUFFIX,
    is_envelope,
    one_of_words,
    row_schema,
    values_of,
    word,
)
from klamm_plugins.transforms.debezium.renaming import ADJUSTMENTS, NONE, Renaming, schema_adjuster

log = logging.getLogger(__name__)

_PLANS_MAX: Final = 1024
_ROWS: Final = (BEFORE, AFTER)
_ANY: Final = "(.*)"
_NO_STRUCT: Final = (
    "the key of {} is no struct: ByLogicalTableRouter needs keys with fields, as key.format=struct makes"
)


class ByLogicalTableRouter(KlammTransformation):
    kafka_name = "io.debezium.transforms.ByLogicalTableRouter"
    original_keys = KeyTable(__package__, "ByLogicalTableRouter")

    def __init__(self) -> None:
        self._keys: dict[tuple[Schema, str, str], tuple[Schema, Change]] = {}
        self._routes: dict[str, str | None] = {}
        self._shared: dict[Schema, Schema] = {}  # tables with the same columns get the very same schemas
        self._values: dict[tuple[Schema, str], tuple[Schema, Change]] = {}

    @classmethod
    def config(cls) -> ConfigDef:
        return _config()

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._topics = Renaming(
            settings["topic.regex"], settings["topic.replacement"], key="topic.replacement"
        )
        self._field: str | None = settings["key.field.name"] if settings["key.enforce.uniqueness"] else None
        pattern = (settings["key.field.regex"] or "").strip()
        replacement = settings["key.field.replacement"] or ""
        if pattern and not replacement.strip():
            raise invalid("key.field.replacement", replacement, "must be non-empty if key.field.regex is set")
        self._tables = Renaming(
            pattern or _ANY, replacement if pattern else "$1", key="key.field.replacement"
        )
        self._adjust = schema_adjuster(word(settings["schema.name.adjustment.mode"]))

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        return [self._routed(record) for record in records]

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        topic = self._topic(batch.topic)
        if topic is None:
            return [batch]
        keys = [None] * len(batch) if batch.keys is None else batch.keys
        for column in (keys, batch.values):
            if parts := null_parts(batch, column) if not _is_even(column) else None:
                return [made for _, part in parts for made in self.apply_batch(part)]
        changes: dict[str, Any] = {"topic": topic}
        if keys[0] is not None:
            schema, change = self._key(batch.key_schema, batch.topic, topic)
            changes |= {"key_schema": schema, "keys": list(map(change, keys))}
        else:
            changes["key_schema"] = None
        if batch.values[0] is not None and is_envelope(batch.value_schema):
            assert batch.value_schema is not None, "an envelope has one"
            schema, change = self._event(batch.value_schema, topic)
            changes |= {"value_schema": schema, "values": list(map(change, batch.values))}
        return [batch.replace(**changes)]

    def _topic(self, former: str) -> str | None:
        """Returns the new topic; None where the former one stays."""
        if former not in self._routes:
            topic = self._topics.of(former)
            if topic == "":
                log.warning("topic.replacement makes an empty topic of %s, so its records stay there", former)
            _remember(self._routes, former, topic or None)
        return self._routes[former]

    def _routed(self, record: Record) -> Record:
        topic = self._topic(record.topic)
        if topic is None:
            return record
        changed = record.copy()
        changed.topic = topic
        if record.key is None:
            changed.key_schema = None
        else:
            changed.key_schema, change = self._key(record.key_schema, record.topic, topic)
            changed.key = change(record.key)
        if record.value is not None and record.value_schema is not None and is_envelope(record.value_schema):
            changed.value_schema, change = self._event(record.value_schema, topic)
            changed.value = change(record.value)
        return changed

    def _key(self, schema: Schema | None, former: str, topic: str) -> tuple[Schema | None, Change]:
        """Returns the schema of new keys, and the way from an old key to a new one."""
        if schema is None:
            return None, self._bare_key(former)
        if schema.type is not SchemaType.STRUCT:
            raise DataError(_NO_STRUCT.format(former))
        known = self._keys.get((schema, former, topic))
        if known is None:
            known = self._key_plan(schema, former, topic)
            _remember(self._keys, (schema, former, topic), known)
        return known

    def _bare_key(self, former: str) -> Change:
        more = {} if self._field is None else {self._field: self._table_of(former)}

        def change(key: Any) -> dict[str, Any]:
            if not isinstance(key, dict):
                raise DataError(_NO_STRUCT.format(former))
            return key | more

        return change

    def _table_of(self, former: str) -> str:
        table = self._tables.of(former)
        return former if table is None else table

    def _key_plan(self, schema: Schema, former: str, topic: str) -> tuple[Schema, Change]:
        more = [] if self._field is None else [self._table_of(former)]
        updated = self._same(self._key_schema(schema, topic))
        return updated, lambda key: Struct.of_checked(updated, [*values_of(key, schema), *more])

    def _same(self, schema: Schema) -> Schema:
        """Returns the schema that another table got, if it is equal."""
        if schema not in self._shared:
            _remember(self._shared, schema, schema)
        return self._shared[schema]

    def _key_schema(self, schema: Schema, topic: str) -> Schema:
        builder = _renamed(schema, self._adjust(f"{topic}.Key"))
        for field in schema.fields:
            builder.field(field.name, field.schema)
        if self._field is not None:
            builder.field(self._field, STRING)
        return builder.build()

    def _event(self, schema: Schema, topic: str) -> tuple[Schema, Change]:
        """Returns the schema of new events, and the way from an old event to a new one."""
        known = self._values.get((schema, topic))
        if known is None:
            known = self._plan(schema, topic)
            _remember(self._values, (schema, topic), known)
        return known

    def _plan(self, schema: Schema, topic: str) -> tuple[Schema, Change]:
        old = row_schema(schema, BEFORE)
        if row_schema(schema, AFTER).fields != old.fields:
            raise DataError(f"before and after of {schema.name} have different fields")
        builder = _renamed(old, self._adjust(f"{topic}.Value"))
        for field in old.fields:
            builder.field(field.name, field.schema)
        row = builder.build()
        envelope = _renamed(schema, self._adjust(f"{topic}{SUFFIX}"))
        for field in schema.fields:
            envelope.field(field.name, row if field.name in _ROWS else field.schema)
        rows = [(field.index, field.schema) for field in schema.fields if field.name in _ROWS]
        fills = defaults(schema)
        updated = self._same(envelope.build())
        row = row_schema(updated, BEFORE)

        def change(event: Any) -> Struct:
            values = filled(list(values_of(event, schema)), fills)
            for index, former in rows:
                if values[index] is not None:
                    values[index] = Struct.of_checked(row, list(values_of(values[index], former)))
            return Struct.of_checked(updated, values)

        return updated, change


def _is_even(column: Sequence[Any]) -> bool:
    """Returns whether a column is null throughout, or nowhere."""
    nulls = sum(value is None for value in column)
    return nulls in {0, len(column)}


def _renamed(schema: Schema, name: str) -> SchemaBuilder:
    """Returns a builder for a struct like another, without its fields."""
    builder = like(schema).name(name)
    return builder.optional() if schema.optional else builder


def _remember(known: dict[Any, Any], key: Any, made: Any) -> None:
    if len(known) >= _PLANS_MAX:
        known.clear()
    known[key] = made


def _config() -> ConfigDef:
    return (
        ConfigDef()
        .define("topic.regex", Type.STRING, validator=_some_regex, importance=Importance.LOW, documentation="Regular expression (Java's syntax) that the whole topic must match; records of other topics stay as they are.")
        .define("topic.replacement", Type.STRING, validator=non_empty, importance=Importance.LOW, documentation="The new topic: $1 or ${name} is a group of topic.regex.")
        .define("key.enforce.uniqueness", Type.BOOLEAN, True, importance=Importance.LOW, documentation="Add a field to keys that tells the tables apart. False where keys are unique over all tables.")
        .define("key.field.name", Type.STRING, "__dbz__physicalTableIdentifier", importance=Importance.LOW, documentation="Name of that field.")
        .define("key.field.regex", Type.STRING, None, validator=regex, importance=Importance.LOW, documentation="Regular expression for the field's value, which the whole former topic must match. Without it, or where it does not match, the value is the former topic.")
        .define("key.field.replacement", Type.STRING, None, importance=Importance.LOW, documentation="The field's value: $1 or ${name} is a group of key.field.regex.")
        .define("schema.name.adjustment.mode", Type.STRING, NONE, validator=one_of_words(*ADJUSTMENTS), importance=Importance.LOW, documentation="Characters that Avro does not accept in the names of the new schemas: `none` keeps them, `avro` writes _, `avro_unicode` _uXXXX.")
    )  # fmt: skip


def _some_regex(name: str, value: Any) -> None:
    non_empty(name, value)
    regex(name, value)
