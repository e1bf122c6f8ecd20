"""Fields that a header of the record lists to be left out, as another transform wrote them there."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, Struct, Type
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import PLANS_MAX, defaults, filled, like, picker
from klamm_plugins.transforms.debezium.envelope import values_of


class DroppedFields:
    """Leaves out the fields that the header `name` lists; false without a name.

    `only_optional` keeps the fields that readers of the schema need.
    """

    def __init__(self, name: str | None, *, from_key: bool, only_optional: bool) -> None:
        self._name = (name or "").strip()
        self._from_key = from_key
        self._only_optional = only_optional
        self._plans: dict[tuple[Schema, frozenset[str]], Any] = {}

    def __bool__(self) -> bool:
        return bool(self._name)

    def drop(self, record: Record, kept: Set[str]) -> None:
        """Changes key and value of a record, which is the caller's own. Fields in `kept` stay in the value."""
        header = next((h for h in record.headers if h.name == self._name), None)
        if header is None or not header.value:
            return
        if not isinstance(header.value, list | tuple):
            kind = type(header.value).__name__
            raise DataError(f"the header {self._name} should be a list of names of fields, and is a {kind}")
        names = frozenset(header.value)
        if self._from_key and record.key is not None:
            record.key_schema, record.key = self._without(record.key_schema, record.key, names)
        if record.value is not None:
            record.value_schema, record.value = self._without(record.value_schema, record.value, names - kept)

    def _without(self, schema: Schema | None, value: Any, names: frozenset[str]) -> tuple[Schema | None, Any]:
        if schema is None and isinstance(value, dict):
            return None, {name: field for name, field in value.items() if name not in names}
        if schema is None or schema.type is not Type.STRUCT:
            raise DataError(f"{schema!r} has no fields to leave out, as the header {self._name} says")
        plan = self._plans.get((schema, names))
        if plan is None:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            plan = self._plans[schema, names] = self._plan(schema, names)
        if plan is _NOTHING:
            return schema, value
        updated, pick, fills = plan
        return updated, Struct.of_checked(updated, filled(pick(values_of(value, schema)), fills))

    def _plan(self, schema: Schema, names: frozenset[str]) -> Any:
        places = [
            field.index
            for field in schema.fields
            if field.name not in names or (self._only_optional and not field.schema.optional)
        ]
        if len(places) == len(schema.fields):
            return _NOTHING
        builder = like(schema)
        for place in places:
            builder.field(schema.fields[place].name, schema.fields[place].schema)
        return builder.build(), picker(places), defaults(schema, places)


_NOTHING = object()
