"""EventRouter: rows of an outbox table become events of their own, each on the topic that a column names.

Only inserted rows are events. Deletes and tombstones are dropped, other values than change events stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from json import JSONDecodeError
from operator import itemgetter
from typing import Any, Final, NamedTuple

from klamm_base.configdef import ConfigDef
from klamm_plugins.batch import Batch, SourceBatch
from klamm_plugins.errors import ConnectError, DataError
from klamm_plugins.logical import TIMESTAMP, to_primitive
from klamm_plugins.original_keys import KeyTable
from klamm_plugins.records import NO_HEADERS, Header, SourceRecord
from klamm_plugins.schema import Schema, SchemaBuilder, Struct, Type
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import KlammTransformation, Plans
from klamm_plugins.transforms.debezium.envelope import (
    AFTER,
    OP,
    field_of,
    is_bare_event,
    is_envelope,
    reader,
    row_schema,
    values_of,
    word,
)
from klamm_plugins.transforms.debezium.event_router_config import (
    ENVELOPE,
    FATAL,
    HEADER,
    MISSING_IGNORED,
    NULLS_KEPT,
    Placement,
    definition,
    placements,
)
from klamm_plugins.transforms.debezium.json_payload import JsonPayload
from klamm_plugins.transforms.debezium.renaming import Renaming, field_adjuster

log = logging.getLogger(__name__)

_SCHEMAS_MAX: Final = 10_000
_PAYLOAD: Final = "payload"
_ID: Final = "id"
_TS_MS: Final = "ts_ms"
# Debezium's moments, as a multiple of a millisecond.
_UNITS: Final = {
    "io.debezium.time.Timestamp": 1,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1_000_000,
}

Read = Callable[[list[Any]], Any]
"""A function from the values of a row to one of them."""


class _Place(NamedTuple):
    """A further column: its new name, its schema, and the way to its value."""

    name: str
    schema: Schema
    read: Read


class _Plan(NamedTuple):
    """The places of an outbox table's columns, for the schema of its events."""

    schema: Schema
    row: Schema
    op: int
    after: int
    moment: Callable[[list[Any], list[Any]], int | None]
    """The event's time, from the envelope's values and the row's."""
    route: Read
    key: _Place
    event_id: _Place
    payload: _Place
    version: Read | None
    partition: Read | None
    headers: list[_Place]
    fields: list[_Place]


class _Event(NamedTuple):
    """The parts of an event. `partition` None: the table does not say it."""

    topic: str
    partition: int | None
    timestamp: int | None
    key: Any
    schema: Schema | None
    value: Any
    headers: list[Header]


class EventRouter(KlammTransformation):
    kafka_name = "io.debezium.transforms.outbox.EventRouter"
    original_keys = KeyTable(__package__, "EventRouter", "EventRouter.further")

    def __init__(self) -> None:
        self._plans = Plans(self._plan)
        self._bare: set[str] = set()
        self._schemas: dict[tuple[Schema, Schema, int | None, str], Schema] = {}

    @classmethod
    def config(cls) -> ConfigDef:
        return definition()

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._settings = settings
        self._invalid = word(settings["table.op.invalid.behavior"])
        self._tombstones: bool = settings["route.tombstone.on.empty.payload"]
        self._topics = Renaming(
            settings["route.topic.regex"], settings["route.topic.replacement"], key="route.topic.replacement"
        )
        self._placements = placements(settings["table.fields.additional.placement"] or [])
        self._skips_missing = word(settings["table.field.additional.missing"]) == MISSING_IGNORED
        self._wraps = any(placement.place == ENVELOPE for placement in self._placements)
        self._json: JsonPayload | None = None
        if settings["table.expand.json.payload"]:
            self._json = JsonPayload(
                field_adjuster(word(settings["field.name.adjustment.mode"])),
                keeps_nulls=word(settings["table.json.payload.null.behavior"]) == NULLS_KEPT,
            )

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        plans = self._plans
        last: Any = self  # no schema
        plan: _Plan | None = None
        made: list[Record | None] = []
        for record in records:
            if record.value is None:
                made.append(None)
                continue
            if record.value_schema is not last:
                last = record.value_schema
                plan = plans[last]
            if last is None:
                self._tell_bare(record.topic, record.value)
            made.append(record if plan is None else self._record(record, plan))
        return made

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        plan: _Plan | None = self._plans[batch.value_schema]
        if plan is None:
            rows = [row for row, null in enumerate(batch.nulls()) if not null]
            if batch.value_schema is None and rows:
                self._tell_bare(batch.topic, batch.values[rows[0]])
            return [] if not rows else [batch if len(rows) == len(batch) else batch.select(rows)]
        events = [None if value is None else self._event(value, batch.topic, plan) for value in batch.values]
        of_source = isinstance(batch, SourceBatch)
        runs = groupby(
            ((row, event) for row, event in enumerate(events) if event is not None),
            lambda each: (each[1].topic, each[1].partition, id(each[1].schema)),
        )
        found: list[Batch] = []
        for _, run in runs:
            rows, made = zip(*run, strict=True)
            part = batch.select(rows)
            changes: dict[str, Any] = {"topic": made[0].topic, "timestamp": [e.timestamp for e in made]}
            if of_source or made[0].partition is not None:
                changes["partition"] = made[0].partition
            old = [NO_HEADERS] * len(rows) if part.headers is None else part.headers
            changes |= {
                "key_schema": plan.key.schema,
                "keys": [event.key for event in made],
                "value_schema": made[0].schema,
                "values": [event.value for event in made],
                "headers": [each.with_all(event.headers) for each, event in zip(old, made, strict=True)],
            }
            found.append(part.replace(**changes))
        return found

    def _tell_bare(self, topic: str, value: Any) -> None:
        """Warns once of a topic whose change events have no schemas."""
        if topic not in self._bare and len(self._bare) < _SCHEMAS_MAX and is_bare_event(value):
            self._bare.add(topic)
            log.warning(
                "change events of %s have no schema, so EventRouter leaves them as they are: set schemas.enable=true for the "
                "converter, or let the source route them",
                topic,
            )

    def _record(self, record: Record, plan: _Plan) -> Record | None:
        event = self._event(record.value, record.topic, plan)
        if event is None:
            return None
        changed = record.copy()
        changed.topic, changed.timestamp = event.topic, event.timestamp
        changed.key_schema, changed.key = plan.key.schema, event.key
        changed.value_schema, changed.value = event.schema, event.value
        changed.headers = record.headers.with_all(event.headers)
        if isinstance(record, SourceRecord) or event.partition is not None:
            changed.partition = event.partition
        return changed

    def _event(self, value: Any, topic: str, plan: _Plan) -> _Event | None:
        """Returns the event of a change event in `topic`; None for one that is left out."""
        event = values_of(value, plan.schema)
        match event[plan.op]:
            case "d":
                return None
            case "u":
                self._unexpected(topic)
                return None
        if event[plan.after] is None:
            raise DataError(f"an event of {topic} with op={event[plan.op]} has no row after the change")
        row = values_of(event[plan.after], plan.row)
        route = plan.route(row)
        if not isinstance(route, str):
            raise DataError(f"{self._settings['route.by.field']} is null, so the event has no topic")
        schema: Schema | None
        schema, payload = self._payload(plan, row)
        if self._tombstones and _is_empty(payload):
            schema = payload = None
        elif self._wraps:
            schema = self._wrapped(plan, schema, row, route)
            payload = Struct.of_checked(schema, [payload, *(f.read(row) for f in plan.fields)])
        return _Event(
            self._topics.of(route) or route,
            None if plan.partition is None else plan.partition(row),
            plan.moment(event, row),
            plan.key.read(row),
            schema,
            payload,
            [Header(place.name, place.read(row), place.schema) for place in (plan.event_id, *plan.headers)],
        )

    def _unexpected(self, topic: str) -> None:
        said = f"the outbox table has a changed row ({topic}): rows of an outbox are inserted and deleted"
        if self._invalid == FATAL:
            raise ConnectError(said)
        level = logging.ERROR if self._invalid == "error" else logging.WARNING
        log.log(level, "%s; it is no event, and left out", said)

    def _payload(self, plan: _Plan, row: list[Any]) -> tuple[Schema, Any]:
        payload = plan.payload.read(row)
        if self._json is None or payload is None:
            return plan.payload.schema, payload
        if isinstance(payload, str):
            try:
                return self._json.read(self._settings["table.field.event.payload"], payload)
            except (ValueError, DataError, RecursionError) as e:
                log.warning(
                    "a payload cannot be expanded, and stays the text that it is: %s", _without_text(e)
                )
        else:
            log.warning("a payload is no text, so it is not expanded: %r", plan.payload.schema)
        return plan.payload.schema, payload

    def _wrapped(self, plan: _Plan, payload: Schema, row: list[Any], route: str) -> Schema:
        """Returns the schema of an event with further fields beside its payload."""
        version = None if plan.version is None else plan.version(row)
        known = (plan.row, payload, version, route)
        schema = self._schemas.get(known)
        if schema is None:
            builder = SchemaBuilder.struct(_schema_name(plan.row.name, route)).version(version)
            builder.field(_PAYLOAD, payload)
            for place in plan.fields:
                builder.field(place.name, place.schema)
            if len(self._schemas) >= _SCHEMAS_MAX:
                self._schemas.clear()
            schema = self._schemas[known] = builder.build()
        return schema

    def _plan(self, schema: Schema | None) -> _Plan | None:
        if schema is None or not is_envelope(schema):
            return None
        row = row_schema(schema, AFTER)
        version = self._settings["table.field.event.schema.version"]
        placed = {place: list(self._places(row, place)) for place in (HEADER, ENVELOPE)}
        partitions = [p.field for p in self._placements if p.place not in placed and self._has(row, p)]
        return _Plan(
            schema,
            row,
            field_of(schema, OP, "the change event").index,
            field_of(schema, AFTER, "the change event").index,
            self._moment(schema, row),
            self._column(row, "route.by.field", Type.STRING).read,
            self._column(row, "table.field.event.key"),
            self._column(row, "table.field.event.id")._replace(name=_ID),
            self._column(row, "table.field.event.payload"),
            self._column(row, "table.field.event.schema.version", Type.INT32).read if version else None,
            _place(row, Placement(partitions[-1], "", ""), Type.INT32).read if partitions else None,
            placed[HEADER],
            placed[ENVELOPE],
        )

    def _column(self, row: Schema, key: str, kind: Type | None = None) -> _Place:
        """Returns the column that a setting names."""
        name = self._settings[key]
        return _place(row, Placement(name, "", name), kind, key=key)

    def _has(self, row: Schema, placement: Placement) -> bool:
        return row.field(placement.field) is not None or not self._skips_missing

    def _places(self, row: Schema, place: str) -> list[_Place]:
        return [_place(row, p) for p in self._placements if p.place == place and self._has(row, p)]

    def _moment(self, envelope: Schema, row: Schema) -> Callable[[list[Any], list[Any]], int | None]:
        processed = field_of(envelope, _TS_MS, "the change event").index
        name = self._settings["table.field.event.timestamp"]
        if not name:
            return lambda event, _: event[processed]
        column = self._column(row, "table.field.event.timestamp", Type.INT64)
        in_ms = _in_ms(name, column.schema)

        def moment(event: list[Any], values: list[Any]) -> int | None:
            found = column.read(values)
            return event[processed] if found is None else in_ms(found)

        return moment


def _place(row: Schema, placement: Placement, kind: Type | None = None, *, key: str = "") -> _Place:
    where = f"{key or 'table.fields.additional.placement'}: the outbox table"
    field = field_of(row, placement.field, where)
    if kind is not None and field.schema.type is not kind:
        raise DataError(f"{where}'s {field.name} is {field.schema!r}, which should be {kind.name}")
    # As with Debezium, defaults count for what the event shows, not for what rules it.
    return _Place(placement.name, field.schema, reader(field) if kind is None else itemgetter(field.index))


def _in_ms(name: str, schema: Schema) -> Callable[[Any], int]:
    """Returns the function from a column's moments to milliseconds."""
    if schema.name == TIMESTAMP:
        return lambda moment: int(to_primitive(schema, moment))
    unit = _UNITS.get(schema.name or "")
    if unit is None:
        raise DataError(
            f"table.field.event.timestamp={name} is {schema!r}, which should be one of {', '.join((*_UNITS, TIMESTAMP))}"
        )
    return lambda moment: moment // unit if moment >= 0 else -(-moment // unit)


def _schema_name(row: str | None, route: str) -> str:
    """Returns the row's name with the route before its last part."""
    head, dot, last = (row or "").rpartition(".")
    return f"{head}{dot}{route}.{last}" if last else route


def _is_empty(payload: Any) -> bool:
    return payload is None or (isinstance(payload, str) and not payload.strip())


def _without_text(error: Exception) -> str:
    """Returns what is wrong with a payload, but nothing of it: errors of its parser and of its schema quote it."""
    match error:
        case JSONDecodeError():
            return error.msg
        case ValueError():
            return str(error)
        case DataError():
            return "objects of an array have a field in several types"
        case _:
            return "its parts are too deep in each other"
