"""JsonSchemaConverter: JSON with its JSON Schema in a schema registry, as Confluent's converter of the same name."""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import orjson

from klamm_base.configdef import ConfigDef, Importance, Type, invalid
from klamm_plugins.converters.compiled import UNUSUAL
from klamm_plugins.converters.compiled_writer import Place, compile_writer
from klamm_plugins.converters.json_decode import compile_decoder, holds_decimals
from klamm_plugins.converters.json_read import JsonReader, loads
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
    ValueWriter,
    needs,
    registry_config,
)
from klamm_plugins.errors import DataError
from klamm_plugins.logical import is_decimal, is_logical, primitive_writer
from klamm_plugins.schema import Schema, Struct, validate_value
from klamm_plugins.schema import Type as SchemaType
from klamm_plugins.text import is_plain_double

Convert = Callable[[Any], Any]

_INTEGERS: Final = (SchemaType.INT8, SchemaType.INT16, SchemaType.INT32, SchemaType.INT64)
_SAME_IN_JSON: Final = frozenset({SchemaType.STRING, SchemaType.BOOLEAN, *_INTEGERS})


def _decimal_format(name: str, value: Any) -> None:
    if str(value).upper() not in {"BASE64", "NUMERIC"}:
        raise invalid(name, value, "String must be one of (case insensitive): BASE64, NUMERIC")


class JsonSchemaConverter(RegistryConverter):
    kafka_name = "io.confluent.connect.json.JsonSchemaConverter"
    kind = "JSON"
    null_items = True  # as the form of `compile_writer`

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
        self._numeric = settings["decimal.format"].upper() == "NUMERIC"
        self._writer = JsonWriter(numeric_decimals=self._numeric, replace_null_with_default=True)
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

    def writer(self, schema: Schema | None, registered: RegisteredSchema | None) -> ValueWriter:
        needed = _needed(schema)
        slow = self._to_json(needed)
        fast = compile_writer(needed, None, self)
        text = self.schema_text(schema) if registered is None else registered.text
        check = self._checker(_parsed(text))

        def write(value: Any) -> bytes:
            made = None
            with suppress(*UNUSUAL):
                made = dumps(fast(value))
            if made is None:
                validate_value(needed, value)
                made = dumps(slow(value))
            check(made)
            return made

        return _Writer(write)

    def places(self, schema: Schema, target: Any) -> Sequence[Place] | None:
        if is_one_of(schema):
            return None
        return [Place(f.index, f.name, f.schema, None, f.schema.default) for f in schema.fields]

    def item(self, schema: Schema, target: Any) -> Any:
        return None

    def leaf(self, schema: Schema, target: Any) -> Convert | None:
        if schema.type in _SAME_IN_JSON:
            return primitive_writer(schema) if is_logical(schema) else None
        if is_decimal(schema) and not self._numeric:
            unscaled = primitive_writer(schema)
            return lambda value: b2a_base64(unscaled(value), newline=False).decode()
        json_of = self._json_of(schema)
        if schema.type is SchemaType.FLOAT64:
            return lambda value: value if is_plain_double(value) else json_of(value)
        return json_of

    def reading(self, registered: RegisteredSchema, references: Mapping[str, str], head: bytes) -> Reading:
        root = _parsed(registered.text)
        others = {name: _parsed(text) for name, text in references.items()}
        schema = SchemaReader(root, others).read(version=registered.version)
        check = self._checker(root)
        exact, slow = holds_decimals(schema), self._from_json(schema)
        fast = compile_decoder(schema, self._from_json, replace_null=True, is_rare=is_one_of)

        def read(text: bytes) -> Any:
            check(text)
            with suppress(*UNUSUAL):
                return fast(orjson.loads(text))
            return slow(loads(text, exact=exact))

        return Reading(schema, _Reader(read))

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


class _Writer:
    def __init__(self, write: Callable[[Any], bytes]) -> None:
        self._write = write

    def __call__(self, value: Any) -> bytes:
        return self._write(value)

    def many(self, values: Sequence[Any]) -> list[bytes]:
        return list(map(self._write, values))


class _Reader:
    def __init__(self, read: Callable[[bytes], Any]) -> None:
        self._read = read

    def __call__(self, data: bytes, start: int = 0) -> Any:
        return self._read(data[start:])

    def many(self, data: Sequence[bytes], start: int) -> list[Any]:
        read = self._read
        return [read(each[start:]) for each in data]


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
