"""ExtractNewRecordState: the row after the change takes the place of the change event (Debezium's "unwrap").

A deleted row becomes a tombstone, or its last state with `__deleted`, or nothing. Other values than change events stay as
they are. Events without a schema are understood, too, which Debezium leaves as they are. Where Debezium makes a null with the row's schema, this makes a null without one: converters write nothing else
as a tombstone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from itertools import groupby
from typing import Any, Final, NamedTuple

from klamm_base.configdef import ConfigDef, Importance, Type, Validator, invalid
from klamm_plugins.batch import Batch
from klamm_plugins.errors import DataError
from klamm_plugins.original_keys import KeyTable
from klamm_plugins.records import NO_HEADERS, Header
from klamm_plugins.schema import OPTIONAL_STRING, STRING, Schema, Struct
from klamm_plugins.schema import Type as SchemaType
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import (
    KlammTransformation,
    Plans,
    defaults,
    filled,
    like,
    null_parts,
)
from klamm_plugins.transforms._validators import REPLACE_NULL
from klamm_plugins.transforms.debezium.batches import by_records
from klamm_plugins.transforms.debezium.dropped_fields import DroppedFields
from klamm_plugins.transforms.debezium.envelope import (
    AFTER,
    BEFORE,
    DELETE,
    OP,
    field_of,
    is_bare_event,
    is_envelope,
    one_of_words,
    row_schema,
    values_of,
    word,
)
from klamm_plugins.transforms.debezium.field_reference import FieldReference, Read, references

log = logging.getLogger(__name__)

MODE: Final = "delete.tombstone.handling.mode"
FORMER_MODE: Final = "delete.handling.mode"
FORMER_TOMBSTONES: Final = "drop.tombstones"
_DELETED: Final = "__deleted"
_DROP, _TOMBSTONE, _REWRITE = "drop", "tombstone", "rewrite"
# What becomes of a delete event, and of the tombstone behind it.
_MODES: Final = {
    "drop": (_DROP, False),
    "tombstone": (_TOMBSTONE, False),
    "rewrite": (_REWRITE, False),
    "rewrite-with-tombstone": (_REWRITE, True),
    "delete-to-tombstone": (_TOMBSTONE, False),
}
_FORMER_MODES: Final = {"drop": _DROP, "rewrite": _REWRITE, "none": _TOMBSTONE}


class _Row(NamedTuple):
    """The way from an event to its row as the new value."""

    place: int
    """The row's place in the envelope."""
    schema: Schema
    change: Callable[[list[Any]], Struct]
    topic: Callable[[list[Any]], str | None]
    """Returns the new topic; None: it stays."""


class _Plan(NamedTuple):
    schema: Schema
    headers: list[tuple[str, Schema, Read]]
    upsert: _Row
    delete: _Row

    def more(self, event: list[Any]) -> list[Header]:
        """Returns the headers to add."""
        return [Header(name, read(event), schema) for name, schema, read in self.headers]


class _Kind(Enum):
    """The fate of an event."""

    UPSERT = auto()
    DELETE = auto()
    TOMBSTONE = auto()
    NOTHING = auto()


class ExtractNewRecordState(KlammTransformation):
    kafka_name = "io.debezium.transforms.ExtractNewRecordState"
    original_keys = KeyTable(__package__, "ExtractNewRecordState", "ExtractNewRecordState.further")

    def __init__(self) -> None:
        self._plans = Plans(self._plan)

    @classmethod
    def config(cls) -> ConfigDef:
        return _config()

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._deletes, self._keeps_tombstones = _handling(settings)
        self._fields = references("add.fields", settings["add.fields"], settings["add.fields.prefix"])
        self._headers = references("add.headers", settings["add.headers"], settings["add.headers.prefix"])
        self._missing: set[tuple[str, str]] = set()
        self._added = frozenset(ref.name for ref in self._fields)
        self._route: str = settings["route.by.field"].strip()
        self._fills: bool = settings[REPLACE_NULL]
        self._dropped = DroppedFields(
            settings["drop.fields.header.name"],
            from_key=settings["drop.fields.from.key"],
            only_optional=settings["drop.fields.keep.schema.compatible"],
        )
        of_op = [ref.name for ref in self._headers if ref.field == OP]
        self._tombstone_headers = [Header(name, DELETE, STRING) for name in of_op]

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        plans = self._plans
        last: Any = self  # no schema
        plan: _Plan | None = None
        made: list[Record | None] = []
        for record in records:
            if record.value is None:
                made.append(self._tombstone(record))
                continue
            if record.value_schema is not last:
                last = record.value_schema
                plan = plans[last]
            if plan is not None:
                made.append(self._changed(record, plan))
            elif last is None and is_bare_event(record.value):
                made.append(self._changed_bare(record))
            else:
                made.append(record)
        return made

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        plan: _Plan | None = self._plans[batch.value_schema]
        if plan is not None and self._dropped:
            return by_records(self, batch)  # the schema depends on each record's headers
        if batch.value_schema is None and any(map(is_bare_event, batch.values)):
            return by_records(self, batch)
        if plan is None:
            parts = null_parts(batch, batch.values) if any(batch.nulls()) else [(False, batch)]
            return [made for null, part in parts for made in (self._tombstones(part) if null else [part])]
        events = [None if value is None else values_of(value, plan.schema) for value in batch.values]
        found: list[Batch] = []
        start = 0
        for (kind, topic), run in groupby(events, lambda event: self._fate(event, plan)):
            end = start + sum(1 for _ in run)
            part = batch if end - start == len(batch) else batch[start:end]
            if kind is _Kind.TOMBSTONE:
                found += self._tombstones(part)
            elif kind is not _Kind.NOTHING:
                part = part if topic is None else part.replace(topic=topic)
                row = plan.upsert if kind is _Kind.UPSERT else plan.delete
                found.append(self._rows(part, events[start:end], row, plan))
            start = end
        return found

    def _fate(self, event: list[Any] | None, plan: _Plan) -> tuple[_Kind, str | None]:
        """Returns the event's kind, and its new topic if it gets one."""
        if event is None:
            return _Kind.TOMBSTONE, None
        if event[plan.upsert.place] is not None:
            return _Kind.UPSERT, plan.upsert.topic(event)
        if event[plan.delete.place] is None or self._deletes == _DROP:
            return _Kind.NOTHING, None  # a truncated table, or a deleted row
        return _Kind.DELETE, plan.delete.topic(event)

    def _rows(self, batch: Batch, events: Sequence[Any], row: _Row, plan: _Plan) -> Batch:
        headers = batch.headers
        if plan.headers:
            old = [NO_HEADERS] * len(batch) if headers is None else headers
            headers = [each.with_all(plan.more(event)) for each, event in zip(old, events, strict=True)]
        if row is plan.delete and self._deletes == _TOMBSTONE:
            return batch.replace(value_schema=None, values=[None] * len(batch), headers=headers)
        return batch.replace(value_schema=row.schema, values=list(map(row.change, events)), headers=headers)

    def _tombstones(self, batch: Batch) -> list[Batch]:
        if not self._keeps_tombstones:
            return []
        if not self._tombstone_headers:
            return [batch]
        old = [NO_HEADERS] * len(batch) if batch.headers is None else batch.headers
        return [batch.replace(headers=[each.with_all(self._tombstone_headers) for each in old])]

    def _tombstone(self, record: Record) -> Record | None:
        if not self._keeps_tombstones:
            return None
        changed = record.copy()
        changed.headers = record.headers.with_all(self._tombstone_headers)
        return changed

    def _changed(self, record: Record, plan: _Plan) -> Record | None:
        event = values_of(record.value, plan.schema)
        kind, topic = self._fate(event, plan)
        if kind is _Kind.NOTHING:
            return None
        row = plan.upsert if kind is _Kind.UPSERT else plan.delete
        changed = record.copy()
        if plan.headers:
            changed.headers = record.headers.with_all(plan.more(event))
        if topic is not None:
            changed.topic = topic
        if row is plan.delete and self._deletes == _TOMBSTONE:
            changed.value_schema = changed.value = None
        else:
            changed.value_schema = row.schema
            changed.value = row.change(event)
        if self._dropped:
            # Of a deleted row, Debezium drops fields before it adds those of the event.
            self._dropped.drop(changed, self._added if row is plan.delete else frozenset())
        return changed

    def _changed_bare(self, record: Record) -> Record | None:
        """Does the same for a change event without a schema, whose row has none either."""
        event: Mapping[str, Any] = record.value
        name = BEFORE if event.get(AFTER) is None else AFTER
        deleted, row = name == BEFORE, event.get(name)
        if not isinstance(row, dict) or (deleted and self._deletes == _DROP):
            return None
        changed = record.copy()
        headers = [
            Header(n, value, None) for n, value in self._found(event, "add.headers", self._headers, record)
        ]
        changed.headers = record.headers.with_all(headers)
        topic = row.get(self._route) if self._route else None
        if isinstance(topic, str) and topic.strip():
            changed.topic = topic
        if deleted and self._deletes == _TOMBSTONE:
            changed.value = None
        else:
            mark = {_DELETED: "true" if deleted else "false"} if self._deletes == _REWRITE else {}
            changed.value = row | mark | dict(self._found(event, "add.fields", self._fields, record))
        if self._dropped:
            self._dropped.drop(changed, self._added if deleted else frozenset())
        return changed

    def _found(
        self, event: Mapping[str, Any], key: str, listed: Sequence[FieldReference], record: Record
    ) -> list[tuple[str, Any]]:
        """Returns names and values of the metadata that a change event has."""
        found = [(ref, *ref.found_in(event)) for ref in listed]
        for ref, there, _ in found:
            if not there:
                self._tell_absent(key, ref, record.topic)
        return [(ref.name, value) for ref, there, value in found if there]

    def _plan(self, schema: Schema | None) -> _Plan | None:
        if schema is None or not is_envelope(schema):
            return None
        self._tell_missing("add.fields", self._fields, schema)
        self._tell_missing("add.headers", self._headers, schema)
        rewrites = self._deletes == _REWRITE
        headers = [(ref.name, *found) for ref in self._headers if (found := ref.found(schema)) is not None]
        return _Plan(
            schema,
            headers,
            self._row(schema, AFTER, "false" if rewrites else None),
            self._row(schema, BEFORE, "true" if rewrites else None),
        )

    def _tell_missing(self, key: str, listed: Sequence[FieldReference], envelope: Schema) -> None:
        for ref in listed:
            if ref.found(envelope) is None:
                self._tell_absent(key, ref, envelope.name)

    def _tell_absent(self, key: str, ref: FieldReference, events: str | None) -> None:
        """Warns once of a field that change events do not have."""
        if (key, ref.text) not in self._missing:
            self._missing.add((key, ref.text))
            log.warning(
                "%s names %s, which change events %s do not have: nothing is added for it",
                key,
                ref.text,
                events,
            )

    def _row(self, envelope: Schema, name: str, mark: str | None) -> _Row:
        """Plans for the row `before` or `after`; with a `mark` it gets the field `__deleted`."""
        row = row_schema(envelope, name)
        index = field_of(envelope, name, "the change event").index
        builder = like(row)
        for field in row.fields:
            builder.field(field.name, field.schema)
        if mark is not None:
            builder.field(_DELETED, OPTIONAL_STRING)
        added = []
        for ref in self._fields:
            if (found := ref.found(envelope)) is not None:
                builder.field(ref.name, found[0])
                added.append(found[1])
        updated = builder.build()
        fills = defaults(row) if mark is not None and self._fills else []
        marks = [] if mark is None else [mark]

        def change(event: list[Any]) -> Struct:
            values = [*filled(list(values_of(event[index], row)), fills), *marks]
            values += [read(event) for read in added]
            return Struct.of_checked(updated, values)

        return _Row(index, updated, change, self._topic(index, row))

    def _topic(self, index: int, row: Schema) -> Callable[[list[Any]], str | None]:
        if not self._route:
            return lambda _: None
        field = field_of(row, self._route, f"route.by.field: the row {row.name}")
        if field.schema.type is not SchemaType.STRING:
            raise DataError(f"route.by.field={self._route} is {field.schema!r}, which should be a string")

        def topic(event: list[Any]) -> str | None:
            found: str | None = event[index].values[field.index]
            return found if found and not found.isspace() else None

        return topic


def _handling(settings: Mapping[str, Any]) -> tuple[str, bool]:
    """Returns what becomes of delete events, and True if tombstones stay. Raises ConfigError for two answers."""
    former, tombstones = settings[FORMER_MODE], settings[FORMER_TOMBSTONES]
    if former is None and tombstones is None:
        return _MODES[word(settings[MODE] or "tombstone")]
    if settings[MODE] is not None:
        given = FORMER_MODE if former is not None else FORMER_TOMBSTONES
        raise invalid(MODE, settings[MODE], f"{given} says it in another way; leave {given} out")
    return _FORMER_MODES[word(former or "drop")], tombstones is False


def _config() -> ConfigDef:
    return (
        ConfigDef()
        .define(MODE, Type.STRING, None, validator=_optional(one_of_words(*_MODES)), importance=Importance.MEDIUM, documentation="A deleted row: `drop` leaves nothing, `tombstone` (the default) and `delete-to-tombstone` leave one tombstone, `rewrite` its last state with `__deleted`=true, `rewrite-with-tombstone` that and the tombstone.")
        .define(FORMER_MODE, Type.STRING, None, validator=_optional(one_of_words(*_FORMER_MODES)), importance=Importance.LOW, documentation="The key of Debezium before 2.5: `drop`, `rewrite`, or `none` for a tombstone. Tombstones are dropped unless drop.tombstones=false.")
        .define(FORMER_TOMBSTONES, Type.BOOLEAN, None, importance=Importance.LOW, documentation="The key of Debezium before 2.5: false keeps the tombstones behind delete events.")
        .define("add.fields", Type.LIST, [], importance=Importance.LOW, documentation="Metadata to add as fields, for example `op,source.ts_ms:when`: a name alone is one of the source block, of the envelope (op, ts_ms, ts_us, ts_ns) or of the transaction (id, total_order, data_collection_order).")
        .define("add.fields.prefix", Type.STRING, "__", importance=Importance.LOW, documentation="Beginning of the names of added fields.")
        .define("add.headers", Type.LIST, [], importance=Importance.LOW, documentation="Metadata to add as headers, written as in add.fields.")
        .define("add.headers.prefix", Type.STRING, "__", importance=Importance.LOW, documentation="Beginning of the names of added headers.")
        .define("route.by.field", Type.STRING, "", importance=Importance.LOW, documentation="Field of the row, a text, whose value becomes the topic.")
        .define("drop.fields.header.name", Type.STRING, None, importance=Importance.LOW, documentation="Name of the header that lists fields to leave out.")
        .define("drop.fields.from.key", Type.BOOLEAN, False, importance=Importance.LOW, documentation="Leave them out of the key, too.")
        .define("drop.fields.keep.schema.compatible", Type.BOOLEAN, True, importance=Importance.LOW, documentation="Leave out only optional fields.")
        .define(REPLACE_NULL, Type.BOOLEAN, True, importance=Importance.LOW, documentation="When rows are rewritten, a null becomes its field's default.")
    )  # fmt: skip


def _optional(check: Validator) -> Validator:
    return lambda name, value: None if value is None else check(name, value)
