"""Connect's schemas as JSON Schema and back, by the properties of Confluent's converter (JsonSchemaData). No values."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from klamm_plugins.converters.registry_defaults import set_default
from klamm_plugins.errors import DataError
from klamm_plugins.logical import from_primitive, is_decimal, to_primitive
from klamm_plugins.schema import Field, Schema, SchemaBuilder, Struct, Type

ONE_OF: Final = "io.confluent.connect.json.OneOf"
ENUM: Final = "io.confluent.connect.json.Enum"
_FIELD: Final = f"{ONE_OF}.field."
_DEPTH_MAX: Final = 100

_JSON: Final = {
    Type.INT8: ("integer", "int8"),
    Type.INT16: ("integer", "int16"),
    Type.INT32: ("integer", "int32"),
    Type.INT64: ("integer", "int64"),
    Type.FLOAT32: ("number", "float32"),
    Type.FLOAT64: ("number", "float64"),
    Type.BOOLEAN: ("boolean", None),
    Type.STRING: ("string", None),
    Type.BYTES: ("string", "bytes"),
}
_CONNECT: Final = {
    "int8": Type.INT8,
    "int16": Type.INT16,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "float32": Type.FLOAT32,
    "float64": Type.FLOAT64,
    "bytes": Type.BYTES,
}
_PLAIN: Final = {
    "integer": Type.INT64,
    "number": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
}

Json = dict[str, Any]


def plain_map(schema: Schema) -> bool:
    """Returns whether a map is an object in JSON, whose keys are strings. Other maps are lists of entries."""
    keys = schema.key_schema
    return keys is not None and keys.type is Type.STRING and not keys.optional


def is_one_of(schema: Schema) -> bool:
    return schema.type is Type.STRUCT and schema.name == ONE_OF


def to_json_schema(schema: Schema) -> Json:
    """Returns a Connect schema as JSON Schema."""
    if is_one_of(schema):
        branches = [_bare(f.schema) for f in schema.fields]
        return {"oneOf": [{"type": "null"}, *branches] if schema.optional else branches}
    made = _bare(schema)
    if not schema.optional:
        return made
    union: Json = {"oneOf": [{"type": "null"}, made]}
    if "default" in made:
        union["default"] = made["default"]
    return union


def _bare(schema: Schema) -> Json:
    made = _typed(schema)
    if schema.name is not None:
        made["title"] = schema.name
    if schema.doc is not None:
        made["description"] = schema.doc
    if schema.version is not None:
        made["connect.version"] = schema.version
    if schema.parameters:
        made["connect.parameters"] = dict(schema.parameters)
    if schema.default is not None:
        made["default"] = _default_json(schema, schema.default)
    return made


def _typed(schema: Schema) -> Json:
    keys, values = schema.key_schema, schema.value_schema
    match schema.type:
        case Type.ARRAY if values is not None:
            return {"type": "array", "items": to_json_schema(values)}
        case Type.MAP if values is not None and keys is not None:
            if plain_map(schema):
                return {
                    "type": "object",
                    "connect.type": "map",
                    "additionalProperties": to_json_schema(values),
                }
            pair = (Field("key", 0, keys), Field("value", 1, values))
            return {
                "type": "array",
                "connect.type": "map",
                "items": {"type": "object", "properties": _properties(pair)},
            }
        case Type.STRUCT:
            return {"type": "object", "properties": _properties(schema.fields)}
    if is_decimal(schema):
        return {"type": "number", "connect.type": "bytes"}
    kind, connect = _JSON[schema.type]
    return {"type": kind} | ({"connect.type": connect} if connect else {})


def _properties(fields: tuple[Field, ...]) -> Json:
    return {f.name: {**to_json_schema(f.schema), "connect.index": f.index} for f in fields}


def _default_json(schema: Schema, value: Any) -> Any:
    value = to_primitive(schema, value)
    match schema.type:
        case _ if value is None:
            return None
        case Type.BYTES:
            return base64.b64encode(value).decode()
        case Type.ARRAY if schema.value_schema is not None:
            return [_default_json(schema.value_schema, v) for v in value]
        case Type.MAP if schema.value_schema is not None and schema.key_schema is not None:
            keys, values = schema.key_schema, schema.value_schema
            if plain_map(schema):
                return {k: _default_json(values, v) for k, v in value.items()}
            return [
                {"key": _default_json(keys, k), "value": _default_json(values, v)} for k, v in value.items()
            ]
        case Type.STRUCT:
            return {f.name: _default_json(f.schema, value.get(f.name)) for f in schema.fields}
        case _:
            return value


class SchemaReader:
    """A translator from JSON Schema to Connect's. `references` are parsed texts, by the names that `$ref` uses."""

    def __init__(self, root: Json, references: Mapping[str, Json]) -> None:
        self._root = root
        self._references = references
        self._depth = 0

    def read(self, *, version: int | None = None) -> Schema:
        """Returns Connect's schema. Raises DataError for a type that Connect does not have."""
        return self._of(self._root, version=version)

    def _of(self, given: Any, *, optional: bool = False, version: int | None = None) -> Schema:
        if not isinstance(given, dict):
            raise DataError(f"JSON Schema {given!r} does not say the type")
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise DataError(
                "the JSON Schema contains itself, or is nested too deeply; Klamm's schemas cannot be recursive"
            )
        made = self._resolved(given, optional=optional, version=version)
        self._depth -= 1
        return made

    def _resolved(self, given: Json, *, optional: bool, version: int | None) -> Schema:
        if "$ref" in given:
            return self._of(self._target(given["$ref"]), optional=optional, version=version)
        for key in ("oneOf", "anyOf"):
            if key in given:
                return self._union(
                    given[key], optional=optional, default=given.get("default"), version=version
                )
        kind = given.get("type")
        if isinstance(kind, list):
            branches = [{**given, "type": k} for k in kind]
            return self._union(branches, optional=optional, default=None, version=version)
        builder = self._builder(given, kind)
        _decorate(builder, given, version)
        if optional:
            builder.optional()
        if given.get("default") is not None:
            set_default(builder, given["default"], _default)
        return builder.build()

    def _target(self, ref: str) -> Any:
        name, _, pointer = ref.partition("#")
        place: Any = self._references.get(name) if name else self._root
        if place is None:
            raise DataError(f"the JSON Schema refers to {ref}, which does not exist")
        for step in filter(None, pointer.split("/")):
            try:
                place = place[step.replace("~1", "/").replace("~0", "~")]
            except (KeyError, TypeError):
                raise DataError(f"the JSON Schema refers to {ref}, which does not exist") from None
        return place

    def _union(self, given: list[Any], *, optional: bool, default: Any, version: int | None) -> Schema:
        branches = [b for b in given if not (isinstance(b, dict) and b.get("type") == "null")]
        may_be_null = optional or len(branches) < len(given)
        if len(branches) == 1:
            only = branches[0]
            if default is not None and isinstance(only, dict) and "default" not in only:
                only = {**only, "default": default}
            return self._of(only, optional=may_be_null, version=version)
        builder = SchemaBuilder.struct(ONE_OF)
        for index, branch in enumerate(branches):
            builder.field(f"{_FIELD}{index}", self._of(branch, optional=True))
        return (builder.optional() if may_be_null else builder).build()

    def _builder(self, given: Json, kind: Any) -> SchemaBuilder:
        connect = given.get("connect.type")
        match kind:
            case "array" if connect == "map":
                entry = given["items"]["properties"]
                return SchemaBuilder.map(self._of(entry["key"]), self._of(entry["value"]))
            case "array":
                return SchemaBuilder.array(self._of(given.get("items")))
            case "object" if connect == "map" or (
                "properties" not in given and isinstance(given.get("additionalProperties"), dict)
            ):
                return SchemaBuilder.map(Schema(Type.STRING), self._of(given["additionalProperties"]))
            case "object" | None if kind or "properties" in given:
                return self._struct(given)
            case "number" if connect == "bytes":
                return SchemaBuilder(Type.BYTES)
        if "enum" in given and kind in {None, "string"}:
            builder = SchemaBuilder(Type.STRING).parameter(ENUM, "")
            for symbol in given["enum"]:
                builder.parameter(f"{ENUM}.{symbol}", str(symbol))
            return builder
        if kind not in _PLAIN:
            raise DataError(f"JSON Schema type {kind!r} has no counterpart in Connect")
        return SchemaBuilder(_CONNECT.get(connect or "", _PLAIN[kind]))

    def _struct(self, given: Json) -> SchemaBuilder:
        builder = SchemaBuilder.struct()
        properties = given.get("properties", {})
        places = {name: p.get("connect.index", len(properties)) for name, p in properties.items()}
        for name in sorted(properties, key=lambda n: places[n]):
            builder.field(name, self._of(properties[name]))
        return builder


def _decorate(builder: SchemaBuilder, given: Json, version: int | None) -> None:
    if isinstance(given.get("title"), str):
        builder.name(given["title"])
    if isinstance(given.get("description"), str):
        builder.doc(given["description"])
    found = given.get("connect.version", version)
    if found is not None:
        builder.version(int(found))
    for name, value in (given.get("connect.parameters") or {}).items():
        builder.parameter(name, str(value))


def _default(schema: Schema, given: Any) -> Any:
    keys, values = schema.key_schema, schema.value_schema
    match schema.type:
        case _ if given is None:
            return None
        case Type.BYTES:
            return from_primitive(schema, base64.b64decode(given))
        case Type.ARRAY if values is not None:
            return [_default(values, v) for v in given]
        case Type.MAP if values is not None and keys is not None:
            pairs = given.items() if isinstance(given, dict) else ((e["key"], e["value"]) for e in given)
            return {_default(keys, k): _default(values, v) for k, v in pairs}
        case Type.STRUCT:
            found = [_default(f.schema, given.get(f.name)) for f in schema.fields]
            return Struct.of_checked(schema, found)
        case Type.FLOAT32 | Type.FLOAT64:
            return float(given)
        case _:
            return from_primitive(schema, given)
