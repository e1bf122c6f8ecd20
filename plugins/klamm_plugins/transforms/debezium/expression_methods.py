"""The methods and properties that conditions may use. There are no others, whatever the values' classes have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, Struct, Type


class Method(NamedTuple):
    """A method: the classes that have it, the number of values that it takes, and its function."""

    of: type | tuple[type, ...]
    takes: int
    call: Callable[..., Any]
    takes_pattern: bool = False


_SIZED: Final = (str, list, tuple, dict)
_HOLDERS: Final = (str, list, tuple)


def _get(of: Struct | dict[str, Any], name: str) -> Any:
    return of.get(name)


def _getter(*kinds: Type) -> Method:
    """Returns a struct's method for a field of these types, without its default."""

    def call(struct: Struct, name: str) -> Any:
        field = struct.schema.field(name)
        if field is None or field.schema.type not in kinds:
            raise DataError(f"{struct.schema!r} has no field {name} of type {kinds[0].name}")
        return struct.get_without_default(name)

    return Method(Struct, 1, call)


def _matches(text: str, pattern: re.Pattern[str]) -> bool:
    return pattern.fullmatch(text) is not None


def _field(schema: Schema, name: str) -> Schema | None:
    field = schema.field(name)
    return None if field is None else field.schema


_STRUCTS: Final = {
    "get": Method((Struct, dict), 1, _get),
    "getStruct": _getter(Type.STRUCT),
    "getString": _getter(Type.STRING),
    "getBoolean": _getter(Type.BOOLEAN),
    "getInt8": _getter(Type.INT8),
    "getInt16": _getter(Type.INT16),
    "getInt32": _getter(Type.INT32),
    "getInt64": _getter(Type.INT64),
    "getFloat32": _getter(Type.FLOAT32),
    "getFloat64": _getter(Type.FLOAT64),
    "name": Method(Schema, 0, lambda schema: schema.name),
    "version": Method(Schema, 0, lambda schema: schema.version),
    "field": Method(Schema, 1, _field),
}
_TEXTS: Final = {
    "startsWith": Method(str, 1, str.startswith),
    "endsWith": Method(str, 1, str.endswith),
    "trim": Method(str, 0, str.strip),
}
METHODS: Final[Mapping[str, Mapping[str, Method]]] = {
    "Groovy": {
        **_STRUCTS,
        **_TEXTS,
        "contains": Method(_HOLDERS, 1, lambda of, item: item in of),
        "containsKey": Method(dict, 1, lambda of, name: name in of),
        "equals": Method(str, 1, lambda text, other: text == other),
        "equalsIgnoreCase": Method(
            str, 1, lambda text, other: isinstance(other, str) and text.lower() == other.lower()
        ),
        "isEmpty": Method(_SIZED, 0, lambda of: not of),
        "length": Method(str, 0, len),
        "matches": Method(str, 1, _matches, takes_pattern=True),
        "size": Method(_SIZED, 0, len),
        "toLowerCase": Method(str, 0, str.lower),
        "toUpperCase": Method(str, 0, str.upper),
    },
    "JavaScript": {
        **_TEXTS,
        "name": _STRUCTS["name"],
        "version": _STRUCTS["version"],
        "field": _STRUCTS["field"],
        "includes": Method(_HOLDERS, 1, lambda of, item: item in of),
        "toLowerCase": Method(str, 0, str.lower),
        "toUpperCase": Method(str, 0, str.upper),
    },
}
PROPERTIES: Final[Mapping[str, Mapping[Any, Callable[[Any], Any]]]] = {
    "Groovy": {},
    "JavaScript": {"length": len},
}
