"""Functions, written for one Connect schema and one of Avro, that check a value and write its bytes without a step between.

They know the usual schemas (all but unions of several types, and maps as lists of entries) and the usual forms of values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm_plugins.converters.avro_names import PRIMITIVES, Avro, plain_map
from klamm_plugins.converters.compiled import Misfit, Source, fits
from klamm_plugins.logical import is_logical, primitive_writer
from klamm_plugins.schema import Schema, Type, is_judged

Encode = Callable[[Any], bytes]

_FLOATS: Final = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_LONGS: Final = ("int", "long")
_SHORT: Final = tuple(bytes((n << 1,)) for n in range(64))


class _Unusual(Exception):
    """An error for a schema that these functions do not know."""


def compile_encoder(schema: Schema, avro: Avro, named: Mapping[str, Avro]) -> Encode | None:
    """Returns the function for a schema and a parsed Avro schema to write it by; None for an unusual one.

    The function raises Misfit, DataError, ValueError, OverflowError or struct.error for a value that may not fit.
    """
    source = Source()
    lines = _Lines(source, named)
    try:
        lines.value(schema, avro, "value")
    except _Unusual:
        return None
    return source.compile("value")


class _Lines:
    """Adds lines that put the bytes of a value in the place of the value."""

    def __init__(self, source: Source, named: Mapping[str, Avro]) -> None:
        self._source = source
        self._named = named
        source.name("write_long", write_long)
        source.name("SHORT", _SHORT)

    def value(self, schema: Schema, avro: Avro, name: str, default: Any = None) -> None:
        """Adds the lines for a value in the variable `name`, where a null becomes `default` if there is one."""
        add, block = self._source.add, self._source.block
        if default is not None:
            with block(f"if {name} is None:"):
                add(f"{name} = {self._source.constant(default)}")
        if not isinstance(avro, list):
            add(f"{name} = {self._present(schema, avro, name)}")
            return
        if len(avro) != 2 or "null" not in avro:
            raise _Unusual
        null = avro.index("null")
        if default is not None or not schema.optional:
            add(f"{name} = {bytes((2 - 2 * null,))!r} + {self._present(schema, avro[1 - null], name)}")
            return
        with block(f"if {name} is None:"):
            add(f"{name} = {bytes((2 * null,))!r}")
        with block("else:"):
            add(f"{name} = {bytes((2 - 2 * null,))!r} + {self._present(schema, avro[1 - null], name)}")

    def _present(self, schema: Schema, avro: Avro, name: str) -> str:
        """Returns the expression of the bytes of a value that is no null."""
        if isinstance(avro, str):
            avro = self._named.get(avro, {"type": avro})
        kind = avro["type"]
        if not isinstance(kind, str):
            return self._present(schema, kind, name)
        if schema.type.is_primitive:
            return self._simple(schema, kind, name)
        if is_judged(schema):
            raise _Unusual
        match kind:
            case "record" if schema.type is Type.STRUCT:
                return self._record(schema, avro, name)
            case "array" if schema.type is Type.ARRAY and schema.value_schema is not None:
                item = self._function(schema.value_schema, avro["items"])
                return f"{self._source.constant(_list_writer(item))}({name})"
            case "map" if plain_map(schema) and schema.value_schema is not None:
                item = self._function(schema.value_schema, avro["values"])
                return f"{self._source.constant(_map_writer(item))}({name})"
        raise _Unusual

    def _function(self, schema: Schema, avro: Avro) -> Encode:
        made = compile_encoder(schema, avro, self._named)
        if made is None:
            raise _Unusual
        return made

    def _simple(self, schema: Schema, kind: str, name: str) -> str:
        add, constant = self._source.add, self._source.constant
        usual = PRIMITIVES[schema.type]
        test = fits(self._source, schema, name)
        if test is None or (kind != usual and not (kind in _LONGS and usual in _LONGS)):
            raise _Unusual
        self._must(test)
        if is_logical(schema):
            add(f"{name} = {constant(primitive_writer(schema))}({name})")
        match kind:
            case "int" | "long":
                return f"(SHORT[{name}] if 0 <= {name} < 64 else write_long({name}))"
            case "string" | "bytes":
                if kind == "string":
                    add(f"{name} = {name}.encode()")
                return f"(SHORT[len({name})] if len({name}) < 64 else write_long(len({name}))) + {name}"
            case "boolean":
                return f"(b'\\1' if {name} else b'\\0')"
        return f"{constant(_FLOATS[kind].pack)}({name})"

    def _must(self, test: str) -> None:
        with self._source.block(f"if not ({test}):"):
            self._source.add("raise Misfit")

    def _record(self, schema: Schema, avro: Mapping[str, Any], name: str) -> str:
        mine = self._source.constant(schema)
        same = f"{name}.schema is {mine} or {name}.schema.fields == {mine}.fields"
        self._must(f"type({name}) is Struct and ({same})")
        places = {field["name"]: field["type"] for field in avro["fields"]}
        values = {field.name: self._source.variable() for field in schema.fields}
        if set(places) != set(values):
            raise _Unusual
        if values:
            self._source.add(f"{', '.join(values.values())}, = {name}._values")
        for field in schema.fields:
            self.value(field.schema, places[field.name], values[field.name], field.schema.default)
        pieces = ", ".join(values[place] for place in places)
        return f"b''.join(({pieces},))" if values else "b''"


def _list_writer(item: Encode) -> Encode:
    def write(value: Any) -> bytes:
        if type(value) is not list:
            raise Misfit
        if not value:
            return b"\0"
        return b"".join((write_long(len(value)), *map(item, value), b"\0"))

    return write


def _map_writer(item: Encode) -> Encode:
    def write(value: Any) -> bytes:
        if type(value) is not dict or any(type(key) is not str for key in value):
            raise Misfit
        if not value:
            return b"\0"
        pieces = [write_long(len(value))]
        for key, each in value.items():
            name = key.encode()
            pieces += write_long(len(name)), name, item(each)
        return b"".join((*pieces, b"\0"))

    return write


def write_long(value: int) -> bytes:
    """Writes a number of 64 bits as Avro's long: zigzag, 7 bits a byte."""
    value = value << 1 if value >= 0 else ~(value << 1)
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
