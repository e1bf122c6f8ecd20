"""Functions, written for one schema, that make Connect's values of parsed JSON.

They take the usual forms, and must agree with `JsonReader.from_json` on these; a test compares both.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable
from typing import Any, Final

from klamm_plugins.converters.compiled import Source, fits
from klamm_plugins.logical import is_decimal, is_logical, primitive_reader
from klamm_plugins.schema import Schema, Type, is_judged
from klamm_plugins.text import to_float32

Decode = Callable[[Any], Any]

_PLAIN: Final = {kind: Schema(kind) for kind in Type if kind.is_primitive}


def compile_decoder(
    schema: Schema,
    slow: Callable[[Schema], Decode],
    *,
    replace_null: bool,
    is_rare: Callable[[Schema], bool] = lambda _: False,
) -> Decode:
    """Returns a function that raises one of UNUSUAL for values of rarer forms. `slow` makes the function for rarer schemas.

    A decimal that is a number raises as well: only who parses the text again can take it exactly.
    """
    source = Source()
    _Lines(source, slow, replace_null, is_rare).value(schema, "value")
    return source.compile("value")


def holds_decimals(schema: Schema | None) -> bool:
    """Returns whether values of this schema may hold numbers that a double would spoil."""
    if schema is None:
        return False
    inner = (schema.key_schema, schema.value_schema, *(f.schema for f in schema.fields))
    return is_decimal(schema) or any(holds_decimals(s) for s in inner)


class _Lines:
    """Adds lines that replace parsed JSON in a variable by the value."""

    def __init__(
        self,
        source: Source,
        slow: Callable[[Schema], Decode],
        replace_null: bool,
        is_rare: Callable[[Schema], bool],
    ) -> None:
        self._source = source
        self._slow = slow
        self._replace_null = replace_null
        self._is_rare = is_rare

    def value(self, schema: Schema, name: str) -> None:
        block, default = self._source.block, schema.default
        if default is not None and self._replace_null:
            with block(f"if {name} is None:"):
                self._source.add(f"{name} = {self._source.constant(default)}")
            with block("else:"):
                self._present(schema, name)
        elif schema.optional:
            with block(f"if {name} is not None:"):
                self._present(schema, name)
        else:
            self._present(schema, name)

    def _present(self, schema: Schema, name: str) -> None:
        """Adds the lines for a value that is no null; a null raises Misfit."""
        keys, values = schema.key_schema, schema.value_schema
        if self._is_rare(schema) or (is_judged(schema) and not is_logical(schema)):
            self._by_slow(schema, name)
        elif schema.type.is_primitive:
            self._primitive(schema, name)
        elif schema.type is Type.STRUCT:
            self._struct(schema, name)
        elif schema.type is Type.ARRAY and values is not None:
            self._must(f"type({name}) is list")
            self._source.add(f"{name} = [{self._function(values)}(i) for i in {name}]")
        elif keys is not None and values is not None and keys.type is Type.STRING and keys.name is None:
            self._must(f"type({name}) is dict")
            self._source.add(f"{name} = {{k: {self._function(values)}(i) for k, i in {name}.items()}}")
        else:
            self._by_slow(schema, name)

    def _by_slow(self, schema: Schema, name: str) -> None:
        if holds_decimals(schema):
            self._source.add("raise Misfit")
        self._source.add(f"{name} = {self._source.constant(self._slow(schema))}({name})")

    def _primitive(self, schema: Schema, name: str) -> None:
        add, constant = self._source.add, self._source.constant
        if schema.type is Type.BYTES:
            self._must(f"type({name}) is str")
            add(f"{name} = {constant(_from_base64)}({name})")
        else:
            test = fits(self._source, _PLAIN[schema.type], name)
            assert test is not None, "a primitive type has a test"
            self._must(test)
        if schema.type is Type.FLOAT32:
            add(f"{name} = {constant(to_float32)}({name})")
        if is_logical(schema):
            add(f"{name} = {constant(primitive_reader(schema))}({name})")

    def _struct(self, schema: Schema, name: str) -> None:
        add = self._source.add
        self._must(f"type({name}) is dict")
        get = self._source.variable()
        add(f"{get} = {name}.get")
        values = []
        for field in schema.fields:
            values.append(self._source.variable())
            add(f"{values[-1]} = {get}({field.name!r})")
            self.value(field.schema, values[-1])
        made = self._source.struct(schema, f"[{', '.join(values)}]")
        add(f"{name} = {made}")

    def _function(self, schema: Schema) -> str:
        made = compile_decoder(schema, self._slow, replace_null=self._replace_null, is_rare=self._is_rare)
        return self._source.constant(made)

    def _must(self, test: str) -> None:
        with self._source.block(f"if not ({test}):"):
            self._source.add("raise Misfit")


def _from_base64(text: str) -> bytes:
    return a2b_base64(text, strict_mode=True)
