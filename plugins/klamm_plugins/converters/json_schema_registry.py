"""JsonSchemaConverter: JSON with its JSON Schema in a schema registry, as Confluent's converter of the same name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type, invalid
from klamm_plugins.converters.json_read import JsonReader, holds_decimals, loads
from klamm_plugins.converters.json_text import dumps
from klamm_plugins.converters.json_write import JsonWriter
from klamm_plugins.converters.jsonschema_model import (
    Json,
    SchemaReader,
    is_one_of,
    plain_map,
    to_json_schema,
)
from klamm_plugins.converters.registry import RegisteredSchema
from klamm_plugins.converters.registry_converter import (
    Reading,
    RegistryConverter,
    needs,
    registry_config,
)
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema, Struct, validate_value
from klamm_plugins.schema import Type as SchemaType

Convert = Callable[[Any], Any]


def _decimal_format(name: str, value: Any) -> None:
    if str(value).upper() not in {"BASE64", "NUMERIC"}:
        raise invalid(name, value, "String must be one of (case insensitive): BASE64, NUMERIC")


class JsonSchemaConverter(RegistryConverter):
    kafka_name = "io.confluent.connect.json.JsonSchemaConverter"
    kind = "JSON"

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            registry_config()
            .define(
                "decimal.format",
                Type.STRING,
                "BASE64",
                validator=_decimal_format,
                importance=Importance.LOW,
                documentation="How decimals are written: BASE64 (their unscaled bytes) or NUMERIC. Both are read.",
            )
            .define(
                "json.fail.invalid.schema",
                Type.BOOLEAN,
                default=False,
                importance=Importance.MEDIUM,
                documentation="Whether what is written and read is checked against its JSON Schema.",
            )
        )

    def set_up(self, settings: Mapping[str, Any]) -> None:
        self._writer = JsonWriter(
            numeric_decimals=settings["decimal.format"].upper() == "NUMERIC", replace_null_with_default=True
        )
        self._reader = JsonReader(replace_null_with_default=True)
        self._validates: bool = settings["json.fail.invalid.schema"]
        if self._validates:
            with needs("jsonschema", self.kafka_name):
                import jsonschema
            self._jsonschema = jsonschema

    def schema_text(self, schema: Schema | None) -> str:
        return json.dumps(to_json_schema(_needed(schema)), separators=(",", ":"), ensure_ascii=False)

    def record_name(self, schema: Schema | None) -> str | None:
        return None if schema is None else schema.name

    def writer(self, schema: Schema | None, registered: RegisteredSchema | None) -> Callable[[Any], bytes]:
        needed = _needed(schema)
        convert = self._to_json(needed)
        text = self.schema_text(schema) if registered is None else registered.text
        check = self._checker(_parsed(text))

        def write(value: Any) -> bytes:
            validate_value(needed, value)
            made = dumps(convert(value))
            check(made)
            return made

        return write

    def reading(self, registered: RegisteredSchema, references: Mapping[str, str], head: bytes) -> Reading:
        root = _parsed(registered.text)
        others = {name: _parsed(text) for name, text in references.items()}
        schema = SchemaReader(root, others).read(version=registered.version)
        exact, convert, check = holds_decimals(schema), self._from_json(schema), self._checker(root)

        def decode(data: memoryview) -> Any:
            check(bytes(data))
            return convert(loads(bytes(data), exact=exact))

        return Reading(schema, decode)

    def _checker(self, schema: Json) -> Callable[[bytes], None]:
        if not self._validates:
            return lambda _: None
        validator = self._jsonschema.validators.validator_for(schema)(schema)

        def check(text: bytes) -> None:
            wrong = next(iter(validator.iter_errors(json.loads(text))), None)
            if wrong is not None:
                raise DataError(f"The value does not fit its JSON Schema: {wrong.json_path}: {wrong.message}")

        return check

    def _to_json(self, schema: Schema) -> Convert:
        """Returns a function from a checked value to JSON's values; a null becomes the default at every depth."""
        convert, default = self._json_of(schema), schema.default
        return convert if default is None else lambda value: convert(default if value is None else value)

    def _json_of(self, schema: Schema) -> Convert:
        keys, values = schema.key_schema, schema.value_schema
        match schema.type:
            case SchemaType.STRUCT:
                return _one_of_json(schema, self._to_json) if is_one_of(schema) else self._struct_json(schema)
            case SchemaType.ARRAY if values is not None:
                item = self._to_json(values)
                return lambda value: None if value is None else [item(v) for v in value]
            case SchemaType.MAP if values is not None and keys is not None:
                key, item = self._to_json(keys), self._to_json(values)
                if plain_map(schema):
                    return lambda value: None if value is None else {k: item(v) for k, v in value.items()}
                return lambda value: (
                    None if value is None else [{"key": key(k), "value": item(v)} for k, v in value.items()]
                )
        compiled: Convert = self._writer.compiled(schema)
        return compiled

    def _struct_json(self, schema: Schema) -> Convert:
        fields = [(f.name, self._to_json(f.schema)) for f in schema.fields]

        def convert(value: Struct | None) -> Any:
            if value is None:
                return None
            return {name: c(v) for (name, c), v in zip(fields, value.values, strict=True)}

        return convert

    def _from_json(self, schema: Schema) -> Convert:
        """Returns a function from parsed JSON to a value; a null becomes the default, as above."""
        convert, default = self._value_of(schema), schema.default
        if default is None:
            return convert
        return lambda value: default if value is None else convert(value)

    def _value_of(self, schema: Schema) -> Convert:
        keys, values = schema.key_schema, schema.value_schema
        match schema.type:
            case SchemaType.STRUCT:
                return _one_of(schema, self._from_json) if is_one_of(schema) else self._struct(schema)
            case SchemaType.ARRAY if values is not None:
                item = self._from_json(values)
                return lambda value: None if value is None else [item(v) for v in _list(value)]
            case SchemaType.MAP if values is not None and keys is not None:
                return _map(self._from_json(keys), self._from_json(values))
        compiled: Convert = self._reader.compiled(schema)
        return compiled

    def _struct(self, schema: Schema) -> Convert:
        fields = [(f.name, self._from_json(f.schema)) for f in schema.fields]

        def convert(value: Any) -> Struct | None:
            if value is None:
                return None
            if not isinstance(value, dict):
                raise DataError(f"{type(value).__name__} instead of a JSON object for {schema!r}")
            return Struct.of_checked(schema, [c(value.get(name)) for name, c in fields])

        return convert


def _map(key: Convert, item: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, dict):
            return {key(k): item(v) for k, v in value.items()}
        return {key(e["key"]): item(e["value"]) for e in _list(value)}

    return convert


def _one_of_json(schema: Schema, compiled: Callable[[Schema], Convert]) -> Convert:
    converts = [compiled(f.schema) for f in schema.fields]

    def convert(value: Struct | None) -> Any:
        pairs = () if value is None else zip(converts, value.values, strict=True)
        return next((c(v) for c, v in pairs if v is not None), None)

    return convert


def _one_of(schema: Schema, compiled: Callable[[Schema], Convert]) -> Convert:
    """Returns a function that converts by the first branch that the value fits."""
    branches = [(f, compiled(f.schema)) for f in schema.fields]

    def convert(value: Any) -> Struct | None:
        if value is None:
            return None
        for field, c in branches:
            try:
                found = c(value)
                validate_value(field.schema, found)
            except (DataError, TypeError, KeyError):
                continue
            made: list[Any] = [None] * len(branches)
            made[field.index] = found
            return Struct.of_checked(schema, made)
        raise DataError(f"{type(value).__name__} fits no branch of {schema!r}")

    return convert


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"{type(value).__name__} instead of a JSON array")
    return value


def _parsed(text: str) -> Json:
    try:
        found = json.loads(text)
    except ValueError as e:
        raise DataError(f"the registry's JSON Schema cannot be read: {e}") from e
    if not isinstance(found, dict):
        raise DataError(f"the registry's JSON Schema is {text[:80]}, which does not say the type")
    return found


def _needed(schema: Schema | None) -> Schema:
    if schema is None:
        raise DataError("JsonSchemaConverter needs values with a schema; this one has none")
    return schema
