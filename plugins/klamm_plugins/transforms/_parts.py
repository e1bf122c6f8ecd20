"""What transforms of the key or the value share: going through a list, schemas that are changed once, structs by place.

A transform makes a `Plan` for each schema that comes: the new schema, and what makes the new value of an old one. Records
of one schema then cost a call of that and a copy of the record. Structs are rebuilt by the places of their fields; what
was checked when it was put into the old struct is not checked again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, ClassVar, Final, NamedTuple, cast

from klamm_base.version import __version__
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, SchemaBuilder, Struct, Type
from klamm_plugins.transform import Record, Transformation

Change = Callable[[Any], Any]

# Kafka's transforms remember 16 schemas; a connector of many tables has more, and a plan is small.
PLANS_MAX: Final = 256


class Plan(NamedTuple):
    """What becomes of values of one schema."""

    schema: Schema | None
    change: Change


class KlammTransformation(Transformation):
    """What Klamm's own transforms have in common."""

    @classmethod
    def version(cls) -> str:
        return __version__

    def apply(self, record: Record) -> Record | None:
        return self.apply_many([record])[0]

    @abstractmethod
    def apply_many(self, records: Sequence[Record]) -> list[Record | None]: ...


class Plans:
    """Plans by schema, the oldest forgotten first."""

    def __init__(self, make: Callable[[Schema | None], Any]) -> None:
        self._make = make
        self._plans: dict[Schema | None, Any] = {}

    def __getitem__(self, schema: Schema | None) -> Any:
        plan = self._plans.get(schema)
        if plan is None:
            plan = self._make(schema)
            if len(self._plans) >= PLANS_MAX:
                del self._plans[next(iter(self._plans))]
            self._plans[schema] = plan
        return plan


class PartTransformation(KlammTransformation):
    """Changes the key or the value of records, and its schema, without a look at the rest of them."""

    on_key: ClassVar[bool]
    passes_null: ClassVar[bool] = True
    """Whether a record whose key or value is null stays as it is."""

    def __init__(self) -> None:
        self._plans = Plans(self.plan)

    @abstractmethod
    def plan(self, schema: Schema | None) -> Plan:
        """For values of this schema; None: without one. DataError for a schema that does not fit."""

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        return self._keys(records) if self.on_key else self._values(records)

    def _values(self, records: Sequence[Record]) -> list[Record | None]:
        plans, passes_null = self._plans, self.passes_null
        last: Any = self  # no schema
        made: list[Record | None] = []
        for record in records:
            value = record.value
            if value is None and passes_null:
                made.append(record)
                continue
            if record.value_schema is not last:
                last = record.value_schema
                schema, change = plans[last]
            changed = record.copy()
            changed.value_schema = schema
            changed.value = change(value)
            made.append(changed)
        return made

    def _keys(self, records: Sequence[Record]) -> list[Record | None]:
        plans, passes_null = self._plans, self.passes_null
        last: Any = self
        made: list[Record | None] = []
        for record in records:
            key = record.key
            if key is None and passes_null:
                made.append(record)
                continue
            if record.key_schema is not last:
                last = record.key_schema
                schema, change = plans[last]
            changed = record.copy()
            changed.key_schema = schema
            changed.key = change(key)
            made.append(changed)
        return made


def like(schema: Schema, type: Type | None = None) -> SchemaBuilder:
    """A builder with name, version, documentation and parameters of `schema`, but neither its fields nor whether it is
    optional, nor its default. The type is another one if given.
    """
    kind = type or schema.type
    inner = schema.value_schema if kind in {Type.ARRAY, Type.MAP} else None
    keys = schema.key_schema if kind is Type.MAP else None
    builder = SchemaBuilder(kind, key_schema=keys, value_schema=inner)
    builder.name(schema.name).version(schema.version).doc(schema.doc)
    for name, value in schema.parameters.items():
        builder.parameter(name, value)
    return builder


def class_name(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def require_map(value: Any, purpose: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(
            f"Only Map objects supported in absence of schema for [{purpose}], found: {class_name(value)}"
        )
    return value


def values_of(value: Any, schema: Schema, purpose: str) -> list[Any]:
    """The values of a struct in the order of the fields of `schema`, which must be its own."""
    if not isinstance(value, Struct):
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {class_name(value)}")
    if value.schema is not schema and value.schema.fields != schema.fields:
        raise DataError(f"[{purpose}]: the struct's fields are not those of the record's schema {schema!r}")
    return value.values


def require_struct_schema(schema: Schema, purpose: str) -> None:
    """For schemas whose fields a plan is made of."""
    if schema.type is not Type.STRUCT:
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {schema!r}")


def defaults(schema: Schema, places: Sequence[int] | None = None) -> list[tuple[int, Any]]:
    """Place and default value of the fields (those in `places`, numbered anew) that have a default."""
    chosen = schema.fields if places is None else [schema.fields[p] for p in places]
    return [(i, f.schema.default) for i, f in enumerate(chosen) if f.schema.default is not None]


def filled(values: list[Any], with_defaults: list[tuple[int, Any]]) -> list[Any]:
    """`values`, a list of its own, with defaults where they are null."""
    for place, default in with_defaults:
        if values[place] is None:
            values[place] = default
    return values


def picker(places: Sequence[int]) -> Callable[[list[Any]], list[Any]]:
    """Takes the values of these places out of a list, in C where it can."""
    if not places:
        return lambda _: []
    if len(places) == 1:
        only = places[0]
        return lambda values: [values[only]]
    pick = cast("Callable[[list[Any]], tuple[Any, ...]]", itemgetter(*places))
    return lambda values: list(pick(values))
