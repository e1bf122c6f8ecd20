"""Shared parts of the transforms of key or value: the way through a list, schemas changed once, structs by place.

A transform makes a `Plan` for each schema that comes: the new schema, and a function from an old value to the new
one. A record then costs a call of that function and a copy of the record. Structs are rebuilt by the places of
their fields; values that were checked when they came into the old struct are not checked again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, Final, NamedTuple, TypeGuard, cast

from klamm_base.version import __version__
from klamm_plugins.batch import Batch
from klamm_plugins.columns import StructColumn
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, SchemaBuilder, Struct, Type
from klamm_plugins.transform import Record, Transformation

Change = Callable[[Any], Any]

# Kafka's transforms remember 16 schemas; a connector of many tables has more, and a plan is small.
PLANS_MAX: Final = 256


class Plan(NamedTuple):
    """The change for values of one schema. `columns` does it for structs in columns, without a look at one."""

    schema: Schema | None
    change: Change
    columns: Callable[[StructColumn], Sequence[Any]] | None = None


class KlammTransformation(Transformation):
    """The common part of Klamm's own transforms."""

    @classmethod
    def version(cls) -> str:
        return __version__

    def apply(self, record: Record) -> Record | None:
        return self.apply_many([record])[0]

    @abstractmethod
    def apply_many(self, records: Sequence[Record]) -> list[Record | None]: ...


class Plans:
    """A cache of plans by schema. It forgets the oldest first."""

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
    """A transform of the key or the value of records, and its schema, that ignores the rest of them."""

    on_key: ClassVar[bool]
    passes_null: ClassVar[bool] = True
    """True: a record whose key or value is null stays as it is."""

    def __init__(self) -> None:
        self._plans = Plans(self.plan)

    @abstractmethod
    def plan(self, schema: Schema | None) -> Plan:
        """Returns the plan for values of this schema; None means no schema. Raises DataError for a schema that does not fit."""

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        return self._keys(records) if self.on_key else self._values(records)

    def leaves_values(self) -> bool:
        return self.on_key

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        schema, column = part_of(batch, on_key=self.on_key)
        if self.passes_null and (parts := null_parts(batch, column)):
            return [after for null, part in parts for after in ([part] if null else self.apply_batch(part))]
        plan: Plan = self._plans[schema]
        if plan.columns is not None and in_columns(column, schema):
            made = plan.columns(column)
        else:
            made = list(map(plan.change, column))
        return [with_part(batch, plan.schema, made, on_key=self.on_key)]

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
                schema, change, _ = plans[last]
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
                schema, change, _ = plans[last]
            changed = record.copy()
            changed.key_schema = schema
            changed.key = change(key)
            made.append(changed)
        return made


def part_of(batch: Batch, *, on_key: bool) -> tuple[Schema | None, Sequence[Any]]:
    """Returns the schema and the column of a batch's keys or values."""
    if not on_key:
        return batch.value_schema, batch.values
    return batch.key_schema, [None] * len(batch) if batch.keys is None else batch.keys


def with_part(batch: Batch, schema: Schema | None, column: Sequence[Any], *, on_key: bool) -> Batch:
    """Returns the batch with other keys or values."""
    if on_key:
        return batch.replace(key_schema=schema, keys=column)
    return batch.replace(value_schema=schema, values=column)


def in_columns(column: Sequence[Any], schema: Schema | None) -> TypeGuard[StructColumn]:
    """Returns True for structs in columns, of this schema."""
    return isinstance(column, StructColumn) and column.schema is schema


def null_parts(batch: Batch, column: Sequence[Any]) -> list[tuple[bool, Batch]]:
    """Returns the parts of a batch whose keys or values are all null, or all not, in order; empty if there is no null."""
    if isinstance(column, StructColumn):
        return []
    nulls = [value is None for value in column]
    if True not in nulls:
        return []
    parts, start = [], 0
    for null, run in groupby(nulls):
        end = start + sum(1 for _ in run)
        parts.append((null, batch[start:end]))
        start = end
    return parts


def like(schema: Schema, type: Type | None = None) -> SchemaBuilder:
    """Returns a builder with name, version, documentation and parameters of `schema`, but without its fields, its
    optional flag and its default. `type` replaces the type if given.
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
    """Returns the values of a struct in the order of the fields of `schema`, which must be its own."""
    if not isinstance(value, Struct):
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {class_name(value)}")
    if value.schema is not schema and value.schema.fields != schema.fields:
        raise DataError(f"[{purpose}]: the struct's fields are not those of the record's schema {schema!r}")
    return value.values


def require_struct_schema(schema: Schema, purpose: str) -> None:
    """Raises DataError for a schema that is no struct, where a plan needs fields."""
    if schema.type is not Type.STRUCT:
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {schema!r}")


def defaults(schema: Schema, places: Sequence[int] | None = None) -> list[tuple[int, Any]]:
    """Returns place and default value of the fields (those in `places`, numbered anew) that have a default."""
    chosen = schema.fields if places is None else [schema.fields[p] for p in places]
    return [(i, f.schema.default) for i, f in enumerate(chosen) if f.schema.default is not None]


def filled(values: list[Any], with_defaults: list[tuple[int, Any]]) -> list[Any]:
    """Puts defaults into `values`, a list of the caller's own, where they are null."""
    for place, default in with_defaults:
        if values[place] is None:
            values[place] = default
    return values


def filled_columns(
    columns: Sequence[Sequence[Any]], with_defaults: list[tuple[int, Any]]
) -> list[Sequence[Any]]:
    """Returns the columns with defaults where they have nulls."""
    made = list(columns)
    for place, default in with_defaults:
        made[place] = [default if value is None else value for value in made[place]]
    return made


def picker(places: Sequence[int]) -> Callable[[list[Any]], list[Any]]:
    """Returns a function that takes the values of these places out of a list, in C where it can."""
    if not places:
        return lambda _: []
    if len(places) == 1:
        only = places[0]
        return lambda values: [values[only]]
    pick = cast("Callable[[list[Any]], tuple[Any, ...]]", itemgetter(*places))
    return lambda values: list(pick(values))
