"""Connect's schemas as Avro's, and Connect's values as fastavro writes them (Confluent's AvroData, the way out).

A schema is translated once: to the text that the registry keeps, with Connect's properties, and to the bare
schema for writing values. Logical types are written as their primitives.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import fastavro

from klamm_plugins.converters.avro_encode import compile_encoder
from klamm_plugins.converters.avro_names import (
    DEFAULT_RECORD,
    FIELD_DEFAULT,
    FIELD_DOC,
    FIXED_SIZE,
    LOGICAL,
    MAP_ENTRY,
    NAMESPACE,
    PRECISION,
    PRECISION_DEFAULT,
    PRIMITIVES,
    RECORD_DOC,
    Avro,
    check_name,
    is_union,
    plain_map,
    split_name,
)
from klamm_plugins.converters.compiled import UNUSUAL
from klamm_plugins.errors import DataError
from klamm_plugins.logical import decimal_scale, is_decimal, is_logical, primitive_writer, to_primitive
from klamm_plugins.schema import Field, Schema, SchemaBuilder, Struct, Type, validate_value

_CONNECT_TYPES: Final = {Type.INT8: "int8", Type.INT16: "int16"}

_TWICE: Final = "{}: one Avro schema cannot have two types of one name"

Convert = Callable[[Any], Any]


class AvroSchema:
    """The Avro schema of a Connect schema. `meta` decides whether Connect's own properties are kept in it. Raises
    DataError.
    """

    def __init__(self, schema: Schema, *, meta: bool = True) -> None:
        self._meta = meta
        self._records: dict[str, Schema] = {}
        self._unnamed: dict[Schema, str] = {}
        self._entries = 0
        self._space: str | None = None  # the namespace that names are in here
        self.json: Avro = self._of(schema)

    @property
    def text(self) -> str:
        return json.dumps(self.json, separators=(",", ":"), ensure_ascii=False)

    def _of(self, schema: Schema) -> Avro:
        """Returns the Avro schema; a union with null, where the schema is optional."""
        if is_union(schema):
            branches = [self._bare(_required(f.schema)) for f in schema.fields]
            return ["null", *branches] if schema.optional else branches
        bare = self._bare(schema)
        if not schema.optional:
            return bare
        return [bare, "null"] if schema.default is not None else ["null", bare]

    def _bare(self, schema: Schema) -> Avro:
        if schema.type is Type.STRUCT:
            return self._record(schema)
        made: dict[str, Any] = {"type": PRIMITIVES.get(schema.type)}
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None, "the builder gives arrays their inner schema"
            made = {"type": "array", "items": self._of(schema.value_schema)}
        elif schema.type is Type.MAP:
            made = self._map(schema)
        elif schema.type is Type.BYTES and FIXED_SIZE in schema.parameters:
            made = self._fixed(schema)
        made |= self._properties(schema)
        if is_logical(schema):
            made |= _logical_properties(schema)
        return made["type"] if made.keys() == {"type"} else made

    def _record(self, schema: Schema) -> Avro:
        """Returns the definition of a record at its first place, and its name after that."""
        full = schema.name or self._unnamed.get(schema)
        if full is not None and self._records.get(full) == _required(schema):
            return split_name(full)[1] if split_name(full)[0] == self._space else full
        if full is None:
            count = len(self._unnamed) + 1
            full = f"{NAMESPACE}.{DEFAULT_RECORD}{count if count > 1 else ''}"
            self._unnamed[schema] = full
        elif full in self._records:
            raise DataError(_TWICE.format(full))
        self._records[full] = _required(schema)
        made = {"type": "record", **self._named(full)}
        if RECORD_DOC in schema.parameters:
            made["doc"] = schema.parameters[RECORD_DOC]
        made["fields"] = self._fields(schema, full)
        return made | self._properties(schema)

    def _named(self, full: str) -> dict[str, Any]:
        """Returns name and namespace. The namespace is not repeated within a record of the same namespace, as in Java's
        parser.
        """
        namespace, name = split_name(full)
        return {"name": name} if namespace == self._space else {"name": name, "namespace": namespace or ""}

    def _fields(self, schema: Schema, full: str) -> list[dict[str, Any]]:
        outer, self._space = self._space, split_name(full)[0]
        made = [self._field(f, schema) for f in schema.fields]
        self._space = outer
        return made

    def _field(self, field: Field, of: Schema) -> dict[str, Any]:
        made = {"name": check_name(field.name, f"the field of {of!r}"), "type": self._of(field.schema)}
        doc = of.parameters.get(FIELD_DOC + field.name)
        if doc is not None:
            made["doc"] = doc
        if field.schema.default is not None:
            made["default"] = json_default(field.schema, field.schema.default)
        elif field.schema.optional:
            made["default"] = None
        return made

    def _map(self, schema: Schema) -> dict[str, Any]:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None, "the builder gives maps their schemas"
        assert values is not None, "as above"
        if plain_map(schema):
            return {"type": "map", "values": self._of(values)}
        full = schema.name
        if full is None:
            self._entries += 1
            full = f"{NAMESPACE}.{MAP_ENTRY}{self._entries if self._entries > 1 else ''}"
        elif full in self._records:
            raise DataError(_TWICE.format(full))
        self._records[full] = _required(schema)
        entry = {"type": "record", **self._named(full)}
        if schema.name is not None or self._entries > 1:
            entry["connect.internal.type"] = MAP_ENTRY
        pair = Schema(Type.STRUCT, fields=(Field("key", 0, keys), Field("value", 1, values)))
        entry["fields"] = self._fields(pair, full)
        return {"type": "array", "items": entry}

    def _fixed(self, schema: Schema) -> dict[str, Any]:
        if schema.name is None:
            raise DataError(f"{schema!r}: bytes of a fixed size need a name in Avro")
        return {"type": "fixed", **self._named(schema.name), "size": int(schema.parameters[FIXED_SIZE])}

    def _properties(self, schema: Schema) -> dict[str, Any]:
        if not self._meta:
            return {}
        parameters = {k: v for k, v in schema.parameters.items() if k != FIELD_DEFAULT}
        made: dict[str, Any] = {
            "connect.doc": schema.doc,
            "connect.version": schema.version,
            "connect.parameters": parameters or None,
            "connect.default": None
            if schema.default is None or FIELD_DEFAULT in schema.parameters
            else json_default(schema, schema.default),
            "connect.name": schema.name,
            "connect.type": _CONNECT_TYPES.get(schema.type),
        }
        return {k: v for k, v in made.items() if v is not None}


def _required(schema: Schema) -> Schema:
    """Returns the same schema, not optional, since branches of a union are optional by themselves."""
    if not schema.optional:
        return schema
    builder = SchemaBuilder(schema.type, key_schema=schema.key_schema, value_schema=schema.value_schema)
    builder.name(schema.name).version(schema.version).doc(schema.doc)
    for name, value in schema.parameters.items():
        builder.parameter(name, value)
    for field in schema.fields:
        builder.field(field.name, field.schema)
    return builder.build()


def _logical_properties(schema: Schema) -> dict[str, Any]:
    assert schema.name is not None, "a logical type has one"
    made: dict[str, Any] = {"logicalType": LOGICAL[schema.name]}
    if is_decimal(schema):
        precision = int(schema.parameters.get(PRECISION, PRECISION_DEFAULT))
        made = {"scale": decimal_scale(schema), "precision": precision, **made}
    return made


def json_default(schema: Schema, value: Any) -> Any:
    """Returns a default value in Avro's JSON: bytes become text of their codes."""
    value = to_primitive(schema, value)
    match schema.type:
        case _ if value is None:
            return None
        case Type.BYTES:
            return bytes(value).decode("latin-1")
        case Type.ARRAY if schema.value_schema is not None:
            return [json_default(schema.value_schema, v) for v in value]
        case Type.MAP if schema.value_schema is not None and plain_map(schema):
            return {k: json_default(schema.value_schema, v) for k, v in value.items()}
        case Type.MAP if schema.value_schema is not None and schema.key_schema is not None:
            keys, values = schema.key_schema, schema.value_schema
            return [[json_default(keys, k), json_default(values, v)] for k, v in value.items()]
        case Type.STRUCT:
            return {f.name: json_default(f.schema, value.get(f.name)) for f in schema.fields}
        case _:
            return value


def bare(avro: Avro) -> Avro:
    """Returns an Avro schema with only the parts that decide the bytes; logical types go, too."""
    if isinstance(avro, list):
        return [bare(a) for a in avro]
    if not isinstance(avro, dict):
        return avro
    kind = avro["type"]
    if not isinstance(kind, str):
        return bare(kind)
    made = {k: avro[k] for k in ("type", "name", "namespace", "symbols", "size", "default") if k in avro}
    match kind:
        case "record" | "error":
            made |= {"type": "record", "fields": [_bare_field(f) for f in avro["fields"]]}
        case "array":
            made["items"] = bare(avro["items"])
        case "map":
            made["values"] = bare(avro["values"])
        case "enum" | "fixed":
            return made
        case _:
            return kind
    return made


def _bare_field(field: dict[str, Any]) -> dict[str, Any]:
    made = {"name": field["name"], "type": bare(field["type"])}
    return made | ({"default": field["default"]} if "default" in field else {})


class AvroWriter:
    """A writer of values of one Connect schema by an Avro schema (its own, or another that has its fields)."""

    def __init__(self, schema: Schema, avro: Avro, named: dict[str, Any] | None = None) -> None:
        self._schema = schema
        known = dict(named or {})
        self._parsed = fastavro.parse_schema(bare(avro), named_schemas=known)
        self._convert = converter(schema)
        self._fast = compile_encoder(schema, self._parsed, known)

    def __call__(self, value: Any) -> bytes:
        if self._fast is not None:
            with suppress(*UNUSUAL):
                return self._fast(value)
        validate_value(self._schema, value)
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._parsed, self._convert(value))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as e:
            raise DataError(f"Failed to serialize Avro data: {e or type(e).__name__}") from e
        return out.getvalue()

    def many(self, values: Sequence[Any]) -> list[bytes]:
        if self._fast is not None:
            with suppress(*UNUSUAL):
                return list(map(self._fast, values))
        return list(map(self, values))


def converter(schema: Schema) -> Convert:
    """Returns a function that turns checked values of a schema into those that fastavro takes."""
    if is_logical(schema):
        convert: Convert = primitive_writer(schema)
    elif is_union(schema):
        convert = _union(schema)
    elif schema.type is Type.STRUCT:
        convert = _struct(schema)
    elif schema.type is Type.ARRAY and schema.value_schema is not None:
        items = converter(schema.value_schema)
        convert = lambda value: [items(v) for v in value]  # noqa: E731
    elif schema.type is Type.MAP and schema.value_schema is not None and schema.key_schema is not None:
        convert = _map(schema, converter(schema.key_schema), converter(schema.value_schema))
    else:
        convert = _same
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _struct(schema: Schema) -> Convert:
    fields = [(f.name, converter(f.schema), f.schema.default) for f in schema.fields]

    def convert(value: Struct) -> dict[str, Any]:
        return {
            name: c(default if v is None else v)
            for (name, c, default), v in zip(fields, value.values, strict=True)
        }

    return convert


def _map(schema: Schema, keys: Convert, values: Convert) -> Convert:
    if plain_map(schema):
        return lambda value: {k: values(v) for k, v in value.items()}
    return lambda value: [{"key": keys(k), "value": values(v)} for k, v in value.items()]


def _union(schema: Schema) -> Convert:
    """Writes the branch of the first field that is set, by its name, so that fastavro need not guess."""
    branches = [(_branch(f.schema), converter(_required(f.schema))) for f in schema.fields]

    def convert(value: Struct) -> Any:
        for (name, c), found in zip(branches, value.values, strict=True):
            if found is not None:
                return (name, c(found)) if name else c(found)
        return None

    return convert


def _branch(schema: Schema) -> str | None:
    """Returns fastavro's name of a union's branch; None for branches that only their form tells."""
    if schema.type is Type.STRUCT or FIXED_SIZE in schema.parameters:
        return schema.name
    return PRIMITIVES.get(schema.type)
