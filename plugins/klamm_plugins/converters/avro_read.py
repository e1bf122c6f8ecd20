"""Avro's schemas as Connect's, and Connect's values from those that fastavro reads (Confluent's AvroData, the way
back).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import fastavro

from klamm_plugins.converters.avro_decode import compile_decoder
from klamm_plugins.converters.avro_names import (
    DEFAULT_RECORD,
    ENUM,
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
    UNION,
    Avro,
)
from klamm_plugins.converters.avro_write import bare
from klamm_plugins.converters.compiled import UNUSUAL
from klamm_plugins.converters.registry_defaults import set_default
from klamm_plugins.errors import DataError
from klamm_plugins.logical import DECIMAL, from_primitive, is_logical
from klamm_plugins.schema import STRING, Schema, SchemaBuilder, Struct, Type

_TYPES: Final = {
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "bytes": Type.BYTES,
}
_CONNECT_TYPES: Final = {"int8": Type.INT8, "int16": Type.INT16}
_LOGICAL: Final = {
    (avro, _base): name for name, avro in LOGICAL.items() for _base in ("int", "long", "bytes", "fixed")
}
_FITS: Final = {
    "date": ("int",),
    "time-millis": ("int",),
    "timestamp-millis": ("long",),
    "decimal": ("bytes", "fixed"),
}

Convert = Callable[[Any], Any]


def parse(text: str, references: Mapping[str, str]) -> tuple[Avro, dict[str, Any]]:
    """Returns the schema, and the named schemas that it refers to, as JSON. Raises DataError."""
    named: dict[str, Any] = {}
    try:
        for reference in references.values():
            _collect(json.loads(reference), None, named)
        return json.loads(text), named
    except (ValueError, KeyError, TypeError) as e:
        raise DataError(f"the registry's Avro schema cannot be read: {e}") from e


def _collect(avro: Avro, namespace: str | None, named: dict[str, Any]) -> None:
    if isinstance(avro, dict) and "name" in avro:
        named[_full_name(avro, namespace)] = avro
    elif isinstance(avro, list):
        for each in avro:
            _collect(each, namespace, named)


def _full_name(avro: Mapping[str, Any], namespace: str | None) -> str:
    name: str = avro["name"]
    if "." in name:
        return name
    space = avro.get("namespace", namespace)
    return f"{space}.{name}" if space else name


class AvroReader:
    """A reader of values of one Avro schema. `schema` is Connect's. `meta` decides whether documentation is kept as
    parameters.
    """

    def __init__(
        self, text: str, references: Mapping[str, str], *, version: int | None = None, meta: bool = True
    ) -> None:
        avro, self._named = parse(text, references)
        self._open: list[str] = []
        self._meta = meta
        named: dict[str, Any] = {}
        try:
            for each in self._named.values():
                fastavro.parse_schema(bare(each), named_schemas=named)
            self._parsed = fastavro.parse_schema(bare(avro), named_schemas=named)
        except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, KeyError, TypeError) as e:
            raise DataError(f"the registry's Avro schema cannot be read: {e}") from e
        self.schema, self._convert = self._of(avro, None, version=version)
        self._fast = compile_decoder(self.schema, self._parsed, named)

    def __call__(self, data: bytes, start: int = 0) -> Any:
        if self._fast is not None:
            with suppress(*UNUSUAL):
                return self._fast(data, start)
        return self._slow(memoryview(data)[start:])

    def many(self, data: Sequence[bytes], start: int) -> list[Any]:
        fast = self._fast
        if fast is not None:
            with suppress(*UNUSUAL):
                return [fast(each, start) for each in data]
        return [self(each, start) for each in data]

    def _slow(self, data: memoryview) -> Any:
        stream = io.BytesIO(data)
        try:
            read = fastavro.schemaless_reader(
                stream, self._parsed, None, return_record_name=True, return_named_type=True
            )
        except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, StopIteration) as e:
            raise DataError(f"Failed to deserialize Avro data: {e or type(e).__name__}") from e
        if stream.tell() != len(data):
            raise DataError(
                f"Failed to deserialize Avro data: {len(data) - stream.tell()} bytes are left over"
            )
        return self._convert(read)

    def _of(
        self,
        avro: Avro,
        namespace: str | None,
        *,
        optional: bool = False,
        default: Any = None,
        version: int | None = None,
    ) -> tuple[Schema, Convert]:
        if isinstance(avro, list):
            return self._union(avro, namespace, optional=optional, default=default)
        if isinstance(avro, str):
            known = self._named.get(avro) or self._named.get(f"{namespace}.{avro}")
            avro = known if known is not None and avro not in _TYPES else {"type": avro}
        if not isinstance(avro["type"], str):
            return self._of(avro["type"], namespace, optional=optional, default=default, version=version)
        builder, convert = self._builder(avro, namespace)
        self._decorate(builder, avro, namespace, version)
        if optional:
            builder.optional()
        given = avro.get("connect.default") if default is None else default
        if given is not None:
            if default is not None and "connect.default" not in avro and self._meta:
                builder.parameter(FIELD_DEFAULT, "true")
            set_default(builder, given, _default)
        schema = builder.build()
        if is_logical(schema):
            return schema, lambda value: from_primitive(schema, _unnamed(value))
        return schema, convert(schema)

    def _builder(
        self, avro: dict[str, Any], namespace: str | None
    ) -> tuple[SchemaBuilder, Callable[[Schema], Convert]]:
        kind = avro["type"]
        match kind:
            case "record" | "error":
                return self._record(avro, namespace)
            case "array":
                return self._array(avro, namespace)
            case "map":
                schema, convert = self._of(avro["values"], namespace)
                return SchemaBuilder.map(
                    STRING, schema
                ), lambda _: lambda v: {k: convert(i) for k, i in v.items()}
            case "enum":
                self._name(avro, namespace)
                builder = SchemaBuilder(Type.STRING).parameter(ENUM, _full_name(avro, namespace))
                for symbol in avro["symbols"]:
                    builder.parameter(f"{ENUM}.{symbol}", symbol)
                return builder, lambda _: _unnamed
            case "fixed":
                self._name(avro, namespace)
                builder = SchemaBuilder(Type.BYTES).parameter(FIXED_SIZE, str(avro["size"]))
                return builder, lambda _: _unnamed
            case "null":
                raise DataError("Standalone null schemas are not supported by this converter")
            case _ if kind not in _TYPES:
                raise DataError(f"the registry's Avro schema refers to {kind}, which does not exist")
        type_ = _CONNECT_TYPES.get(avro.get("connect.type", ""), _TYPES[kind])
        return SchemaBuilder(type_ if kind == "int" else _TYPES[kind]), lambda _: _same

    def _name(self, avro: dict[str, Any], namespace: str | None) -> str:
        full = _full_name(avro, namespace)
        self._named.setdefault(full, avro)
        return full

    def _record(
        self, avro: dict[str, Any], namespace: str | None
    ) -> tuple[SchemaBuilder, Callable[[Schema], Convert]]:
        full = self._name(avro, namespace)
        if full in self._open:
            raise DataError(f"{full} contains itself; Klamm's schemas cannot be recursive")
        self._open.append(full)
        inner = full.rpartition(".")[0] or None
        builder = SchemaBuilder.struct()
        if self._meta and avro.get("doc") is not None:
            builder.parameter(RECORD_DOC, avro["doc"])
        names, converts = [], []
        for field in avro["fields"]:
            if self._meta and field.get("doc") is not None:
                builder.parameter(FIELD_DOC + field["name"], field["doc"])
            schema, convert = self._of(field["type"], inner, default=field.get("default"))
            builder.field(field["name"], schema)
            names.append(field["name"])
            converts.append(convert)
        self._open.pop()

        def made(schema: Schema) -> Convert:
            def struct(value: Any) -> Struct:
                found = _unnamed(value)
                return Struct.of_checked(schema, [c(found[n]) for n, c in zip(names, converts, strict=True)])

            return struct

        return builder, made

    def _array(
        self, avro: dict[str, Any], namespace: str | None
    ) -> tuple[SchemaBuilder, Callable[[Schema], Convert]]:
        items = avro["items"]
        if isinstance(items, str):
            items = self._named.get(items, items)
        if isinstance(items, dict) and _is_entry(items, namespace):
            inner = _full_name(items, namespace).rpartition(".")[0] or None
            fields = {f["name"]: f["type"] for f in items["fields"]}
            (keys, key), (values, value) = (self._of(fields[n], inner) for n in ("key", "value"))
            return SchemaBuilder.map(
                keys, values
            ), lambda _: lambda pairs: {key(p["key"]): value(p["value"]) for p in map(_unnamed, pairs)}
        schema, convert = self._of(avro["items"], namespace)
        return SchemaBuilder.array(schema), lambda _: lambda found: [convert(v) for v in found]

    def _decorate(
        self, builder: SchemaBuilder, avro: dict[str, Any], namespace: str | None, version: int | None
    ) -> None:
        logical = avro.get("logicalType")
        name = (
            _LOGICAL.get((logical, avro["type"]))
            if logical in _FITS and avro["type"] in _FITS[logical]
            else None
        )
        if name is not None:
            builder.name(name).version(1)
        if name == DECIMAL:
            builder.parameter("scale", str(avro.get("scale", 0)))
            if avro.get("precision", PRECISION_DEFAULT) != PRECISION_DEFAULT:
                builder.parameter(PRECISION, str(avro["precision"]))
        for key, value in (avro.get("connect.parameters") or {}).items():
            builder.parameter(key, value)
        if self._meta and avro.get("connect.doc") is not None:
            builder.doc(avro["connect.doc"])
        given = avro.get("connect.version", None if name else version)
        if given is not None:
            builder.version(int(given))
        named = avro.get("connect.name")
        if named is None and avro["type"] in {"record", "error", "enum", "fixed"} and name is None:
            named = _full_name(avro, namespace)
        if named is not None and not named.startswith(f"{NAMESPACE}.{DEFAULT_RECORD}"):
            builder.name(named)

    def _union(
        self, avro: list[Avro], namespace: str | None, *, optional: bool, default: Any
    ) -> tuple[Schema, Convert]:
        branches = [a for a in avro if a != "null"]
        may_be_null = optional or len(branches) < len(avro)
        if len(branches) == 1:
            schema, convert = self._of(branches[0], namespace, optional=may_be_null, default=default)
            return schema, lambda value: None if value is None else convert(value)
        builder = SchemaBuilder.struct(UNION)
        converts: dict[str, tuple[int, Convert]] = {}
        for index, branch in enumerate(branches):
            name = self._branch_name(branch, namespace)
            schema, convert = self._of(branch, namespace, optional=True)
            builder.field(name, schema)
            converts[name] = (index, convert)
        if may_be_null:
            builder.optional()
        union = builder.build()
        full_names = {n: n.rpartition(".")[2] for n in self._named}

        def struct(value: Any) -> Struct | None:
            if value is None:
                return None
            index, convert = converts[_branch_of(value, converts, full_names)]
            made: list[Any] = [None] * len(converts)
            made[index] = convert(value)
            return Struct.of_checked(union, made)

        return union, struct

    def _branch_name(self, branch: Avro, namespace: str | None) -> str:
        """Returns the field of a union's struct: the type, or the name without its namespace."""
        if isinstance(branch, str):
            return branch.rpartition(".")[2]
        if "name" in branch:
            return str(branch["name"]).rpartition(".")[2]
        kind = branch["type"]
        return kind if isinstance(kind, str) else self._branch_name(kind, namespace)


def _branch_of(value: Any, branches: Mapping[str, Any], full_names: Mapping[str, str]) -> str:
    """Returns the branch of a union that a value belongs to. Named values tell their branch; others are judged by their
    Python type.
    """
    if isinstance(value, tuple):
        return full_names.get(value[0]) or str(value[0]).rpartition(".")[2]
    wide = isinstance(value, int) and not -(2**31) <= value < 2**31
    for kinds, names in (
        ((bool,), ("boolean",)),
        ((int,), ("int", "long")),
        ((float,), ("double", "float")),
        ((str,), ("string",)),
        ((bytes,), ("bytes",)),
        ((list,), ("array",)),
        ((dict,), ("map",)),
    ):
        if isinstance(value, kinds):
            for name in names:
                if name in branches and not (wide and name == "int"):
                    return name
    raise DataError(f"{type(value).__name__} belongs to no branch of the union {', '.join(branches)}")


def _unnamed(value: Any) -> Any:
    """Returns the value that fastavro read, without the name of its branch."""
    return value[1] if isinstance(value, tuple) else value


def _same(value: Any) -> Any:
    return value


def _is_entry(avro: Mapping[str, Any], namespace: str | None) -> bool:
    if avro.get("type") != "record" or {f["name"] for f in avro["fields"]} != {"key", "value"}:
        return False
    return (
        avro.get("connect.internal.type") == MAP_ENTRY
        or _full_name(avro, namespace) == f"{NAMESPACE}.{MAP_ENTRY}"
    )


def _default(schema: Schema, given: Any) -> Any:
    match schema.type:
        case _ if given is None:
            return None
        case Type.BYTES:
            return from_primitive(schema, given.encode("latin-1"))
        case Type.ARRAY if schema.value_schema is not None:
            return [_default(schema.value_schema, v) for v in given]
        case Type.MAP if schema.value_schema is not None and schema.key_schema is not None:
            pairs = given.items() if isinstance(given, dict) else given
            return {_default(schema.key_schema, k): _default(schema.value_schema, v) for k, v in pairs}
        case Type.STRUCT:
            struct = Struct(schema)
            for field in schema.fields:
                if given.get(field.name) is not None:
                    struct.put(field.name, _default(field.schema, given[field.name]))
            return struct
        case Type.FLOAT32 | Type.FLOAT64:
            return float(given)
        case _:
            return from_primitive(schema, given)


assert set(_TYPES) >= set(PRIMITIVES.values())
