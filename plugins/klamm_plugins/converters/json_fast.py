"""The fast way from JSON to Connect values: one closure per schema, made once and used for every record.

These closures know the usual forms only. They refuse all others (a subclass of int, a value that does not fit)
with `NotFast`, and the caller asks `JsonReader`, which knows all forms and names the fault. So both
ways must agree on the forms that the closures accept; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm_plugins.schema import Schema, Struct, Type

Convert = Callable[[Any], Any]
Slow = Callable[[Schema, Any], Any]

_INT_MAX: Final = {Type.INT8: 2**7, Type.INT16: 2**15, Type.INT32: 2**31, Type.INT64: 2**63}


class NotFast(Exception):
    """An error for an unusual form: take the slow way, which names the fault."""


def compile_reader(schema: Schema, slow: Slow) -> Convert:
    """Returns a function from parsed JSON to a value of `schema`; `slow` does the other types, and nulls."""
    if schema.name is None or schema.type is Type.STRUCT:
        match schema.type:
            case Type.FLOAT64:
                return _read_double(schema, slow)
            case Type.ARRAY:
                return _list(schema, slow, compile_reader)
            case Type.MAP:
                return _map(schema, slow, compile_reader)
            case Type.STRUCT:
                return _read_struct(schema, slow)
            case kind if kind in _ATOMS:
                return _ATOMS[kind](schema, slow)
    return lambda value: slow(schema, value)


def _string(schema: Schema, slow: Slow) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is str:
            return value
        return _null(schema, value, slow)

    return convert


def _boolean(schema: Schema, slow: Slow) -> Convert:
    def convert(value: Any) -> Any:
        if value is True or value is False:
            return value
        return _null(schema, value, slow)

    return convert


def _integer(schema: Schema, slow: Slow) -> Convert:
    end = _INT_MAX[schema.type]

    def convert(value: Any) -> Any:
        if type(value) is int and -end <= value < end:
            return value
        return _null(schema, value, slow)

    return convert


_ATOMS: Final[dict[Type, Callable[[Schema, Slow], Convert]]] = {
    Type.STRING: _string,
    Type.BOOLEAN: _boolean,
    Type.INT8: _integer,
    Type.INT16: _integer,
    Type.INT32: _integer,
    Type.INT64: _integer,
}


def _null(schema: Schema, value: Any, slow: Slow) -> Any:
    if value is None:
        return slow(schema, None)
    raise NotFast


def _read_double(schema: Schema, slow: Slow) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is float:
            return value
        return slow(schema, value)

    return convert


def _list(schema: Schema, slow: Slow, compile_inner: Callable[[Schema, Slow], Convert]) -> Convert:
    assert schema.value_schema is not None
    inner = compile_inner(schema.value_schema, slow)

    def convert(value: Any) -> Any:
        if type(value) is list:
            return [inner(v) for v in value]
        return _null(schema, value, slow)

    return convert


def _map(schema: Schema, slow: Slow, compile_inner: Callable[[Schema, Slow], Convert]) -> Convert:
    assert schema.key_schema is not None
    assert schema.value_schema is not None
    if schema.key_schema.type is not Type.STRING or schema.key_schema.name is not None:
        return lambda value: slow(schema, value)
    inner = compile_inner(schema.value_schema, slow)

    def convert(value: Any) -> Any:
        if type(value) is dict and all(type(k) is str for k in value):
            return {k: inner(v) for k, v in value.items()}
        return _null(schema, value, slow)

    return convert


def _read_struct(schema: Schema, slow: Slow) -> Convert:
    fields = [(f.name, compile_reader(f.schema, slow)) for f in schema.fields]

    def convert(data: Any) -> Any:
        if type(data) is dict:
            get = data.get
            return Struct.of_checked(schema, [read(get(name)) for name, read in fields])
        return _null(schema, data, slow)

    return convert
