"""Paths to fields, as `field.syntax.version` reads them (KIP-821): V1 is one name, V2 has dots between names.

In V2, backticks enclose a name with dots in it; a backtick that ends before a dot and belongs to the name is written
with a backslash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, invalid
from klamm_base.errors import ConfigError
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Field, Schema, Struct
from klamm_plugins.schema import Type as SchemaType
from klamm_plugins.transforms._parts import class_name, require_map

SYNTAX: Final = "field.syntax.version"
_PURPOSE: Final = "nested field access"
_VERSIONS: Final = ("V1", "V2")


def with_syntax(config: ConfigDef) -> ConfigDef:
    """Returns `config` with the key for the syntax of field names."""
    return config.define(
        SYNTAX,
        Type.STRING,
        "V1",
        validator=_known_version,
        importance=Importance.HIGH,
        documentation="V1: the name of a field of the whole. V2: a path with dots, which reaches into nested structs "
        "and maps; backticks enclose a name that has dots itself, as in `foo.bar`.baz.",
    )


def _known_version(name: str, value: Any) -> None:
    if value is None or value.upper() not in _VERSIONS:
        raise invalid(name, value, f"String must be one of (case insensitive): {', '.join(_VERSIONS)}")


def parse_path(text: str, syntax: str) -> tuple[str, ...]:
    """Returns the names on the way to a field. Raises ConfigError for a backtick without its other half."""
    return (text,) if syntax.upper() == "V1" else tuple(_steps(text))


def _steps(path: str) -> list[str]:
    steps = []
    at = 0
    while at < len(path):
        if path[at] == "`":
            name, at = _quoted(path, at)
        else:
            end = path.find(".", at)
            end = len(path) if end < 0 else end
            name, at = path[at:end], end + 1
        steps.append(name)
    if path.endswith("."):
        steps.append("")
    return steps


def _quoted(path: str, begin: int) -> tuple[str, int]:
    """Returns a name in backticks that begins here, and the beginning of the next name."""
    name = ""
    start = search = begin + 1
    while (at := path.find("`", search)) >= 0:
        escaped = path[at - 1] == "\\"
        if at == len(path) - 1:
            if escaped:
                break
            return name + path[start:at], at + 1
        if path[at + 1] == ".":
            if not escaped:
                return name + path[start:at], at + 2
            name += path[start : at - 1] + "`"
            start = at + 1
        search = at + 1
    raise ConfigError(
        f"Incomplete backtick pair in path: [{path}], consider adding a backslash before backtick at position {begin} "
        "to escape it"
    )


def field_at(schema: Schema, path: tuple[str, ...]) -> Field | None:
    """Returns the field at the end of a path; None when there is none. Raises DataError when the path goes through a
    non-struct.
    """
    field: Field | None = None
    for name in path:
        if schema.type is not SchemaType.STRUCT:
            raise DataError(f"Cannot look up fields on non-struct type: {name} in {schema!r}")
        field = schema.field(name)
        if field is None:
            return None
        schema = field.schema
    return field


def struct_reader(schema: Schema, path: tuple[str, ...], *, fills: bool) -> Callable[[Any], Any]:
    """Returns a function that finds the value at an existing path in structs of `schema`; null where a struct on the way
    is null.

    With `fills` a null at the end becomes its field's default. Nulls on the way always do.
    """
    steps: list[tuple[int, Any]] = []
    for i, name in enumerate(path):
        field = schema.field(name)
        assert field is not None, "the caller has looked"
        last = i == len(path) - 1
        steps.append((field.index, field.schema.default if fills or not last else None))
        schema = field.schema

    def read(value: Any) -> Any:
        for index, default in steps:
            if value is None:
                return None
            if not isinstance(value, Struct):
                raise DataError(f"Only Struct objects supported for [{_PURPOSE}], found: {class_name(value)}")
            found = value.values[index]
            value = default if found is None else found
        return value

    return read


def map_value(value: dict[str, Any], path: tuple[str, ...]) -> Any:
    """Returns the value at a path in nested maps; null where a map is missing."""
    found: Any = value
    for i, name in enumerate(path):
        if found is None:
            return None
        found = (require_map(found, _PURPOSE) if i else found).get(name)
    return found
