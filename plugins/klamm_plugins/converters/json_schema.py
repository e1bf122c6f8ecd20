"""Schemas in the JSON converter's envelope, both ways.

Field order is Kafka's: type, the inner schemas, optional, name, version, doc, parameters, default, field. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, SchemaBuilder, Type

ToJson = Callable[[Schema, Any], Any]
FromJson = Callable[[Schema, Any], Any]


def schema_to_json(schema: Schema | None, default_to_json: ToJson) -> dict[str, Any] | None:
    """Returns the schema as a JSON object; `default_to_json` writes its default values."""
    if schema is None:
        return None
    out: dict[str, Any] = {"type": str(schema.type)}
    match schema.type:
        case Type.ARRAY:
            out["items"] = schema_to_json(schema.value_schema, default_to_json)
        case Type.MAP:
            out["keys"] = schema_to_json(schema.key_schema, default_to_json)
            out["values"] = schema_to_json(schema.value_schema, default_to_json)
        case Type.STRUCT:
            out["fields"] = [
                {**(schema_to_json(f.schema, default_to_json) or {}), "field": f.name} for f in schema.fields
            ]
    out["optional"] = schema.optional
    for name in ("name", "version", "doc"):
        if getattr(schema, name) is not None:
            out[name] = getattr(schema, name)
    if schema.parameters:
        out["parameters"] = schema.parameters
    if schema.default is not None:
        out["default"] = default_to_json(schema, schema.default)
    return out


def schema_from_json(data: Any, default_from_json: FromJson, path: str = "schema") -> Schema | None:
    """Returns the schema of a JSON object. Raises DataError, with Kafka's words, that names the fault."""
    if data is None:
        return None
    if not isinstance(data, dict):
        raise DataError(f"{path}: a schema is a JSON object or null, not {data!r}")
    builder = _builder(data, default_from_json, path)
    if data.get("optional") is True:
        builder.optional()
    builder.name(_text(data, "name", path)).doc(_text(data, "doc", path)).version(_version(data, path))
    for name, value in _parameters(data, path).items():
        if not isinstance(value, str):
            raise DataError(f"{path}: schema parameters must have string values, {name} has {value!r}")
        builder.parameter(name, value)
    if data.get("default") is not None:
        # The schema is made twice: reading the default needs the schema that the default belongs to.
        builder.default(default_from_json(builder.build(), data["default"]))
    return builder.build()


def _builder(data: dict[str, Any], default_from_json: FromJson, path: str) -> SchemaBuilder:
    kind = data.get("type")
    if not isinstance(kind, str):
        raise DataError(f"{path}: Schema must contain 'type' field")
    match kind:
        case "array":
            return SchemaBuilder.array(
                _inner(
                    data, "items", "Array schema did not specify the element type", default_from_json, path
                )
            )
        case "map":
            return SchemaBuilder.map(
                _inner(data, "keys", "Map schema did not specify the key type", default_from_json, path),
                _inner(data, "values", "Map schema did not specify the value type", default_from_json, path),
            )
        case "struct":
            return _struct(data, default_from_json, path)
    try:
        return SchemaBuilder(Type(kind))
    except ValueError:
        raise DataError(f"{path}: Unknown schema type: {kind}") from None


def _struct(data: dict[str, Any], default_from_json: FromJson, path: str) -> SchemaBuilder:
    fields = data.get("fields")
    if not isinstance(fields, list):
        raise DataError(f'{path}: Struct schema\'s "fields" argument is not an array.')
    builder = SchemaBuilder.struct()
    for i, field in enumerate(fields):
        name = field.get("field") if isinstance(field, dict) else None
        if not isinstance(name, str):
            raise DataError(f"{path}: Struct schema's field name not specified properly (field {i})")
        schema = schema_from_json(field, default_from_json, f"{path}.{name}")
        assert schema is not None, "a field is an object here"
        builder.field(name, schema)
    return builder


def _inner(data: dict[str, Any], key: str, missing: str, default_from_json: FromJson, path: str) -> Schema:
    schema = schema_from_json(data.get(key), default_from_json, f"{path}.{key}")
    if schema is None:
        raise DataError(f"{path}: {missing}")
    return schema


def _text(data: dict[str, Any], key: str, path: str) -> str | None:
    value = data.get(key)
    if value is not None and not isinstance(value, str):
        raise DataError(f"{path}: schema {key} must be a string, not {value!r}")
    return value


def _version(data: dict[str, Any], path: str) -> int | None:
    value = data.get("version")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise DataError(f"{path}: Invalid schema version: {value!r}")
    return value


def _parameters(data: dict[str, Any], path: str) -> dict[str, Any]:
    value = data.get("parameters")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"{path}: Expected JSON object for schema parameters, not {value!r}")
    return value
