"""A Python type as JSON Schema (2020-12), for the types that `shapes` uses and no others."""

from __future__ import annotations

import inspect
import types
import typing
from typing import Any, Final

Schema = dict[str, Any]

_PLAIN: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}


class Schemas:
    """Collects the schemas of TypedDicts by name while others refer to them."""

    def __init__(self) -> None:
        self.by_name: dict[str, Schema] = {}

    def of(self, shape: Any) -> Schema:
        """Returns the schema of a type. Raises TypeError for a type that `shapes` does not use."""
        if typing.is_typeddict(shape):
            return self._reference(shape)
        if shape in _PLAIN:
            return dict(_PLAIN[shape])
        origin, arguments = typing.get_origin(shape), typing.get_args(shape)
        if origin is typing.Annotated:
            return self.of(arguments[0]) | {"description": arguments[1]}
        if origin in {typing.NotRequired, typing.Required}:
            return self.of(arguments[0])
        if origin is typing.Literal:
            return {"type": "string", "enum": list(arguments)}
        if origin is list:
            return {"type": "array", "items": self.of(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin in {typing.Union, types.UnionType}:
            return self._either([self.of(a) for a in arguments])
        raise TypeError(f"no JSON schema for {shape!r}")

    @staticmethod
    def _either(schemas: list[Schema]) -> Schema:
        """Joins schemas: plain types in one list, as `["string", "null"]`, others side by side."""
        if all(s.keys() == {"type"} for s in schemas):
            return {"type": [s["type"] for s in schemas]}
        return {"anyOf": schemas}

    def _reference(self, shape: Any) -> Schema:
        name = shape.__name__
        if name not in self.by_name:
            self.by_name[name] = {}  # a shape may contain itself
            hints = typing.get_type_hints(shape, include_extras=True)
            required = sorted(shape.__required_keys__ & _not_optional(hints))
            self.by_name[name] = {
                "type": "object",
                "description": inspect.getdoc(shape),
                "properties": {key: self.of(hint) for key, hint in hints.items()},
                **({"required": required} if required else {}),
            }
        return {"$ref": f"#/components/schemas/{name}"}


def _not_optional(hints: dict[str, Any]) -> set[str]:
    """Returns the required fields. Under `from __future__ import annotations` a TypedDict does not notice
    NotRequired itself.
    """
    return {key for key, hint in hints.items() if typing.get_origin(hint) is not typing.NotRequired}
