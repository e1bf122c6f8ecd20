"""Functions, written for one Avro schema, that read the bytes of a value without a step between: values of Connect come out.

They know the usual schemas (all but unions of several types, and maps as lists of entries), and values as all writers make them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from klamm_plugins.converters.avro_names import Avro
from klamm_plugins.converters.compiled import Misfit, Source
from klamm_plugins.logical import is_logical, primitive_reader
from klamm_plugins.schema import Schema, Type

Decode = Callable[[bytes, int], Any]
"""A function from bytes, and the place in them where a value begins, to the value. The bytes end with the value."""

_FLOATS: Final = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_LONG_BYTES_MAX: Final = 10


class _Unusual(Exception):
    """An error for a schema that these functions do not know."""


def compile_decoder(schema: Schema, avro: Avro, named: Mapping[str, Avro]) -> Decode | None:
    """Returns the function for a parsed Avro schema and the schema that it is in Connect; None for an unusual one.

    The function raises Misfit, IndexError, struct.error or ValueError for bytes that it does not understand, and DataError.
    """
    source = Source("value, at")
    try:
        _Lines(source, named).value(schema, avro, "made_")
    except _Unusual:
        return None
    with source.block("if at != len(value):"):
        source.add("raise Misfit")
    return source.compile("made_")


class _Lines:
    """Adds lines that read at `at`, and move it behind what they have read."""

    def __init__(self, source: Source, named: Mapping[str, Avro]) -> None:
        self._source = source
        self._named = named
        source.name("read_long", _read_long)

    def value(self, schema: Schema, avro: Avro, name: str) -> None:
        """Adds the lines that read a value into the variable `name`."""
        if isinstance(avro, list):
            self._optional(schema, avro, name)
            return
        if isinstance(avro, str):
            avro = self._named.get(avro, {"type": avro})
        kind = avro["type"]
        if kind == "record" and schema.type is Type.STRUCT:
            self._record(schema, avro, name)
        elif kind == "array" and schema.type is Type.ARRAY:
            self._array(schema, avro, name)
        elif kind == "map":
            self._map(schema, avro, name)
        elif isinstance(kind, str):
            self._simple(kind, avro, name)
        else:
            self.value(schema, kind, name)
            return
        if is_logical(schema):
            self._source.add(f"{name} = {self._source.constant(primitive_reader(schema))}({name})")

    def _optional(self, schema: Schema, avro: list[Avro], name: str) -> None:
        if len(avro) != 2 or "null" not in avro:
            raise _Unusual
        other = 1 - avro.index("null")
        add, block = self._source.add, self._source.block
        add(f"{name} = value[at]")
        add("at += 1")
        with block(f"if {name} == {2 * other}:"):
            self.value(schema, avro[other], name)
        with block(f"elif {name} == {2 - 2 * other}:"):
            add(f"{name} = None")
        with block("else:"):
            add("raise Misfit")

    def _simple(self, kind: str, avro: Mapping[str, Any], name: str) -> None:
        add, constant = self._source.add, self._source.constant
        match kind:
            case "int" | "long":
                self._long(name)
            case "string":
                self._bytes()
                add(f"{name} = str(value[at:end], 'utf-8')")
                add("at = end")
            case "bytes":
                self._bytes()
                add(f"{name} = value[at:end]")
                add("at = end")
            case "boolean":
                add(f"{name} = value[at] != 0")
                add("at += 1")
            case "float" | "double":
                add(f"{name}, = {constant(_FLOATS[kind].unpack_from)}(value, at)")
                add(f"at += {_FLOATS[kind].size}")
            case "fixed":
                add(f"{name} = value[at:at + {int(avro['size'])}]")
                add(f"at += {int(avro['size'])}")
            case "enum":
                self._long(name)
                with self._source.block(f"if {name} < 0:"):
                    add("raise Misfit")
                add(f"{name} = {constant(list(avro['symbols']))}[{name}]")
            case _:
                raise _Unusual

    def _long(self, name: str) -> None:
        add = self._source.add
        add(f"{name} = value[at]")
        with self._source.block(f"if {name} < 128:"):
            add("at += 1")
            add(f"{name} = ({name} >> 1) ^ -({name} & 1)")
        with self._source.block("else:"):
            add(f"{name}, at = read_long(value, at)")

    def _bytes(self) -> None:
        """Adds the lines that read a length, after which `at` to `end` are its bytes, all of them there."""
        add = self._source.add
        self._long("end")
        add("end += at")
        with self._source.block("if not at <= end <= len(value):"):
            add("raise Misfit")

    def _record(self, schema: Schema, avro: Mapping[str, Any], name: str) -> None:
        names = []
        for field, each in zip(schema.fields, avro["fields"], strict=True):
            names.append(self._source.variable())
            self.value(field.schema, each["type"], names[-1])
        made = self._source.struct(schema, f"[{', '.join(names)}]")
        self._source.add(f"{name} = {made}")

    def _array(self, schema: Schema, avro: Mapping[str, Any], name: str) -> None:
        assert schema.value_schema is not None, "the builder gives arrays their inner schema"
        item = self._source.variable()
        self._source.add(f"{name} = []")
        with self._items():
            self.value(schema.value_schema, avro["items"], item)
            self._source.add(f"{name}.append({item})")

    def _map(self, schema: Schema, avro: Mapping[str, Any], name: str) -> None:
        assert schema.value_schema is not None, "the builder gives maps their schemas"
        key, item = self._source.variable(), self._source.variable()
        self._source.add(f"{name} = {{}}")
        with self._items():
            self._simple("string", {}, key)
            self.value(schema.value_schema, avro["values"], item)
            self._source.add(f"{name}[{key}] = {item}")

    @contextmanager
    def _items(self) -> Iterator[None]:
        """Adds the loop around the lines of an item: items come in blocks, each with their number before it."""
        add, block = self._source.add, self._source.block
        left = self._source.variable()
        with block("while True:"):
            self._long(left)
            with block(f"if {left} == 0:"):
                add("break")
            # An item takes a byte or more; without this limit, a few spoiled bytes could ask for all the memory.
            with block(f"if not 0 < {left} <= len(value) - at:"):
                add("raise Misfit")
            with block(f"for _ in range({left}):"):
                yield


def _read_long(value: bytes, at: int) -> tuple[int, int]:
    """Returns a number and the place behind it."""
    found = shift = 0
    while True:
        byte = value[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            if found >> 64:
                raise Misfit
            return (found >> 1) ^ -(found & 1), at
        shift += 7
        if shift >= 7 * _LONG_BYTES_MAX:
            raise Misfit
