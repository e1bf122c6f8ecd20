"""Functions that check a value of one schema and turn it into what a library writes: dicts, lists and scalars.

A form (Avro, Protobuf, JSON) says which fields a struct has there and what becomes of other values; the checks are those of
`validate_value`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from klamm_plugins.converters.compiled import Source, fits
from klamm_plugins.schema import Schema, Type, is_judged, validate_value

Convert = Callable[[Any], Any]


class Place(NamedTuple):
    """A field of a struct: its place among the struct's values, its name in the form, what a null becomes."""

    at: int
    name: str
    schema: Schema
    target: Any
    default: Any = None


class Form(Protocol):
    """A format's way to write. `target` is the format's own description of a value, if it has one."""

    null_items: bool
    """True if an array may have nulls."""

    def places(self, schema: Schema, target: Any) -> Sequence[Place] | None:
        """Returns the fields of a struct in order; None for a struct that is written in another way."""
        ...

    def item(self, schema: Schema, target: Any) -> Any:
        """Returns the target of an array's items."""
        ...

    def leaf(self, schema: Schema, target: Any) -> Convert | None:
        """Returns the way of a checked value that is no null; None for a value that stays as it is."""
        ...


def compile_writer(schema: Schema, target: Any, form: Form) -> Convert:
    """Returns a function from a value that is no null to the form's. A value that may not fit raises Misfit or DataError."""
    source = Source()
    return source.compile(_Lines(source, form).value(schema, target, "value"))


class _Lines:
    def __init__(self, source: Source, form: Form) -> None:
        self._source = source
        self._form = form

    def value(self, schema: Schema, target: Any, name: str) -> str:
        """Adds the lines for the value in the variable `name`, and returns the expression that takes its place."""
        if schema.type is Type.STRUCT and not is_judged(schema):
            places = self._form.places(schema, target)
            if places is not None:
                return self._struct(schema, places, name)
        elif schema.type is Type.ARRAY and not is_judged(schema):
            return self._array(schema, target, name)
        test = fits(self._source, schema, name)
        constant = self._source.constant
        if test is None:
            self._source.add(f"{constant(validate_value)}({constant(schema)}, {name})")
        else:
            self._must(test)
        convert = self._form.leaf(schema, target)
        return name if convert is None else f"{constant(convert)}({name})"

    def _must(self, test: str) -> None:
        with self._source.block(f"if not ({test}):"):
            self._source.add("raise Misfit")

    def _struct(self, schema: Schema, places: Sequence[Place], name: str) -> str:
        add, constant = self._source.add, self._source.constant
        mine = constant(schema)
        self._must(
            f"type({name}) is Struct and ({name}.schema is {mine} or {name}.schema.fields == {mine}.fields)"
        )
        values = [self._source.variable() for _ in schema.fields]
        if values:
            add(f"{', '.join(values)}, = {name}._values")
        made = []
        for place in places:
            value = values[place.at]
            self._field(place, value)
            made.append(f"{place.name!r}: {value}")
        return f"{{{', '.join(made)}}}"

    def _field(self, place: Place, name: str) -> None:
        schema = place.schema
        if place.default is not None:
            with self._source.block(f"if {name} is None:"):
                self._source.add(f"{name} = {self._source.constant(place.default)}")
            self._assign(schema, place.target, name)
        elif schema.optional or schema.default is not None:
            with self._source.block(f"if {name} is not None:"):
                self._assign(schema, place.target, name)
        else:
            self._assign(schema, place.target, name)

    def _assign(self, schema: Schema, target: Any, name: str) -> None:
        made = self.value(schema, target, name)
        if made != name:
            self._source.add(f"{name} = {made}")

    def _array(self, schema: Schema, target: Any, name: str) -> str:
        inner = schema.value_schema
        assert inner is not None, "the builder gives arrays their inner schema"
        item = compile_writer(inner, self._form.item(inner, target), self._form)
        self._must(f"type({name}) is list")
        each = f"{self._source.constant(item)}(x)"
        if inner.optional and inner.default is None and self._form.null_items:
            each = f"None if x is None else {each}"
        return f"[{each} for x in {name}]"
