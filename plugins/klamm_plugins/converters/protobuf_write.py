"""Values of Connect as Protobuf messages (Confluent's ProtobufData, the way out).

A schema is matched with a message once, by the names of fields. Then a value becomes the arguments for the
constructor of the message's class: dicts, lists and scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.message import EncodeError

from klamm_plugins.converters.compiled import UNUSUAL
from klamm_plugins.converters.compiled_writer import Place, compile_writer
from klamm_plugins.converters.protobuf_names import (
    ENUM,
    GENERAL_ENUM,
    LOGICAL_TYPES,
    WRAPPERS,
    Settings,
    is_union,
)
from klamm_plugins.converters.protobuf_pool import message_class
from klamm_plugins.errors import DataError
from klamm_plugins.logical import (
    DATE,
    DECIMAL,
    TIME,
    decimal_scale,
    is_logical,
    primitive_writer,
    unscaled_bytes,
)
from klamm_plugins.schema import Field, Schema, Struct, Type, validate_value

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_INTS: Final = frozenset(
    getattr(_FIELD, f"TYPE_{name}")
    for name in [
        "INT32",
        "INT64",
        "UINT32",
        "UINT64",
        "SINT32",
        "SINT64",
        "FIXED32",
        "FIXED64",
        "SFIXED32",
        "SFIXED64",
    ]
)
_UNSIGNED_64: Final = (_FIELD.TYPE_UINT64, _FIELD.TYPE_FIXED64)
_FITS: Final = {
    **dict.fromkeys((Type.INT8, Type.INT16, Type.INT32, Type.INT64), _INTS),
    **dict.fromkeys((Type.FLOAT32, Type.FLOAT64), frozenset({_FIELD.TYPE_FLOAT, _FIELD.TYPE_DOUBLE})),
    Type.BOOLEAN: frozenset({_FIELD.TYPE_BOOL}),
    Type.STRING: frozenset({_FIELD.TYPE_STRING}),
    Type.BYTES: frozenset({_FIELD.TYPE_BYTES}),
}
_U64: Final = (1 << 64) - 1

Convert = Callable[[Any], Any]


class ProtoWriter:
    """A writer of values of one Connect schema as one message, behind `head`. It is the form of `compile_writer`, too.

    Raises DataError when the message has no place for the values.
    """

    null_items = False

    def __init__(self, schema: Schema, message: Any, settings: Settings, *, head: bytes = b"") -> None:
        self._head = head
        self._schema = schema
        self._settings = settings
        self._class = message_class(message)
        self._serialize: Callable[[Any], bytes] = self._class.SerializeToString
        self._fast: Convert | None = None
        if schema.type is Type.STRUCT:
            self._convert = self._struct(schema, message)
            self._fast = compile_writer(schema, message, self)
        else:
            inner = self._scalar(schema, _field_of(message, "value"), message.full_name)
            self._convert = lambda value: {"value": inner(value)}

    def __call__(self, value: Any) -> bytes:
        if self._fast is not None:
            with suppress(*UNUSUAL, EncodeError):
                return self._head + self._serialize(self._class(**self._fast(value)))
        validate_value(self._schema, value)
        try:
            return self._head + self._serialize(self._class(**self._convert(value)))
        except (ValueError, TypeError, EncodeError, OverflowError) as e:
            raise DataError(f"Failed to serialize Protobuf data: {e}") from e

    def many(self, values: Sequence[Any]) -> list[bytes]:
        return list(map(self, values))

    def places(self, schema: Schema, target: Any) -> Sequence[Place] | None:
        if any(is_union(field.schema) for field in schema.fields):
            return None
        found = []
        for field in schema.fields:
            of_field, _ = self._target(field, target)
            default = None if self._settings.ignore_default_for_nullables else field.schema.default
            place = self.item(field.schema, of_field)
            found.append(Place(field.index, of_field.name, field.schema, place, default))
        return found

    def item(self, schema: Schema, target: Any) -> Any:
        """Returns what describes a value of a field: the message of a struct, the field itself of others."""
        return target.message_type if schema.type is Type.STRUCT else target

    def leaf(self, schema: Schema, target: Any) -> Convert | None:
        if schema.type is Type.STRUCT:  # with unions in it
            return self._struct(schema, target)
        single = schema.type.is_primitive
        convert = (
            self._single(schema, target, target.name) if single else self._of(schema, target, target.name)
        )
        return None if convert is _same else convert

    def _struct(self, schema: Schema, message: Any) -> Convert:
        plain: list[tuple[int, str, Convert, Any]] = []
        unions: list[tuple[int, Convert]] = []
        for field in schema.fields:
            if is_union(field.schema):
                unions.append((field.index, self._union(field, message)))
                continue
            target, name = self._target(field, message)
            default = None if self._settings.ignore_default_for_nullables else field.schema.default
            plain.append((field.index, target.name, self._of(field.schema, target, name), default))

        def convert(value: Struct) -> dict[str, Any]:
            values = value.values
            made = {}
            for index, name, c, default in plain:
                found = values[index]
                if found is None:
                    found = default
                if found is not None:
                    made[name] = c(found)
            for index, union in unions:
                if values[index] is not None:
                    made |= union(values[index])
            return made

        return convert

    def _target(self, field: Field, message: Any) -> tuple[Any, str]:
        name = f"{message.full_name}.{field.name}"
        return _field_of(message, self._settings.name(field.name, "the field")), name

    def _union(self, union: Field, message: Any) -> Convert:
        branches = []
        for field in union.schema.fields:
            target, name = self._target(field, message)
            if target.containing_oneof is None:
                raise DataError(f"{name}: it is in no oneof of the Protobuf schema")
            branches.append((field.name, target.name, self._of(field.schema, target, name)))

        def convert(value: Struct) -> dict[str, Any]:
            for name, target, c in branches:
                found = (
                    value.get_without_default(name)
                    if self._settings.ignore_default_for_nullables
                    else value.get(name)
                )
                if found is not None:
                    return {target: c(found)}
            raise DataError(f"{union.name}: Cannot find non-null field")

        return convert

    def _of(self, schema: Schema, target: Any, name: str) -> Convert:
        keys, values = schema.key_schema, schema.value_schema
        if schema.type is Type.ARRAY and values is not None:
            _must(target.is_repeated, name, schema)
            item = self._single(values, target, name)
            return lambda value: [item(_present(v, name)) for v in value]
        if schema.type is Type.MAP and values is not None and keys is not None:
            return self._map(keys, values, target, name)
        _must(not target.is_repeated, name, schema)
        return self._single(schema, target, name)

    def _map(self, keys: Schema, values: Schema, target: Any, name: str) -> Convert:
        entry = target.message_type
        _must(target.is_repeated and entry is not None, name, Schema(Type.MAP, value_schema=values))
        key = self._of(keys, _field_of(entry, "key"), f"{name}.key")
        value = self._of(values, _field_of(entry, "value"), f"{name}.value")

        def convert(given: dict[Any, Any]) -> list[dict[str, Any]]:
            made = []
            for k, v in given.items():
                pair = {} if k is None else {"key": key(k)}
                if v is not None:
                    pair["value"] = value(v)
                made.append(pair)
            return made

        return convert

    def _single(self, schema: Schema, target: Any, name: str) -> Convert:
        message = target.message_type
        if is_logical(schema):
            wanted = LOGICAL_TYPES[schema.name or ""][0]
            _must(message is not None and message.full_name == wanted, name, schema)
            return _logical(schema)
        if schema.type is Type.STRUCT:
            _must(message is not None and not is_union(schema), name, schema)
            return self._struct(schema, message)
        if message is not None:
            _must(message.full_name in WRAPPERS, name, schema)
            inner = self._scalar(schema, _field_of(message, "value"), name)
            return lambda value: {"value": inner(value)}
        return self._scalar(schema, target, name)

    def _scalar(self, schema: Schema, target: Any, name: str) -> Convert:
        if target.enum_type is not None:
            return _enum(schema, target, name)
        _must(target.type in _FITS[schema.type], name, schema)
        if target.type in _UNSIGNED_64:
            return lambda value: value & _U64  # as Java's long, which has no other 64 bit
        return bytes if schema.type is Type.BYTES else _same


def _same(value: Any) -> Any:
    return value


def _present(value: Any, name: str) -> Any:
    if value is None:
        raise DataError(f"{name}: Protobuf cannot hold a null in an array")
    return value


def _field_of(message: Any, name: str) -> Any:
    found = message.fields_by_name.get(name)
    if found is None:
        known = ", ".join(f.name for f in message.fields)
        raise DataError(
            f"{name} is no field of the Protobuf message {message.full_name}; it has: {known or 'none'}"
        )
    return found


def _must(fits: bool, name: str, schema: Schema) -> None:
    if not fits:
        raise DataError(f"{name}: {schema!r} does not fit the field of the Protobuf schema")


def _enum(schema: Schema, target: Any, name: str) -> Convert:
    _must(schema.type in {Type.STRING, Type.INT32}, name, schema)
    if schema.type is Type.INT32:
        return _same
    numbers: dict[str, int] = {v.name: v.number for v in target.enum_type.values}
    prefixes = [f"{p}." for p in (ENUM, GENERAL_ENUM)]
    for key, value in schema.parameters.items():
        for prefix in prefixes:
            if key.startswith(prefix) and value.lstrip("-").isdigit():
                numbers.setdefault(key.removeprefix(prefix), int(value))

    def convert(value: str) -> int:
        if value not in numbers:
            raise DataError(f"{name}: {value!r} is no symbol of {target.enum_type.full_name}")
        return numbers[value]

    return convert


def _logical(schema: Schema) -> Convert:
    if schema.name == DECIMAL:
        return _decimal(schema)
    if schema.name in {DATE, TIME}:
        return _date if schema.name == DATE else _time
    return _timestamp(schema)


def _decimal(schema: Schema) -> Convert:
    scale = decimal_scale(schema)

    def convert(value: Decimal) -> dict[str, Any]:
        digits = value.adjusted() + scale + 1
        return {"value": unscaled_bytes(value, scale), "precision": digits, "scale": scale}

    return convert


def _date(value: date) -> dict[str, int]:
    return {"year": value.year, "month": value.month, "day": value.day}


def _time(value: time) -> dict[str, int]:
    nanos = value.microsecond // 1000 * 1_000_000
    return {"hours": value.hour, "minutes": value.minute, "seconds": value.second, "nanos": nanos}


def _timestamp(schema: Schema) -> Convert:
    to_ms = primitive_writer(schema)

    def convert(value: datetime) -> dict[str, int]:
        seconds, ms = divmod(to_ms(value), 1000)
        return {"seconds": seconds, "nanos": ms * 1_000_000}

    return convert
