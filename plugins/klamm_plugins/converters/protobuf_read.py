"""Protobuf messages as Connect's schemas and values (Confluent's ProtobufData, the way back).

A message is read once into a schema and the functions that take values out of its Python object. Fields may have
the names of methods, so methods are called through the class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from keyword import iskeyword
from operator import attrgetter
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from klamm_plugins.converters.compiled import Source
from klamm_plugins.converters.protobuf_names import (
    CONNECT_PRECISION,
    CONNECT_TYPE,
    ENTRY,
    GENERAL_UNION,
    LOGICAL_TYPES,
    PRECISION,
    SCALE,
    TAG,
    TYPE,
    UNION,
    WRAPPER,
    WRAPPERS,
    Settings,
    from_entry_name,
)
from klamm_plugins.converters.protobuf_pool import ProtoSchema, message_class
from klamm_plugins.errors import DataError
from klamm_plugins.logical import (
    DATE,
    DECIMAL,
    TIME,
    date_builder,
    decimal_builder,
    primitive_reader,
    scaled,
    time_builder,
    timestamp_builder,
)
from klamm_plugins.schema import Schema, SchemaBuilder, Struct, Type

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_TYPE_NAMES: Final = {
    n: name.removeprefix("TYPE_").lower() for name, n in descriptor_pb2.FieldDescriptorProto.Type.items()
}
_SCALARS: Final = {
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "bool": Type.BOOLEAN,
    "string": Type.STRING,
    "bytes": Type.BYTES,
    **dict.fromkeys(("int32", "sint32", "sfixed32"), Type.INT32),
    **dict.fromkeys(("uint32", "fixed32", "int64", "uint64", "sint64", "fixed64", "sfixed64"), Type.INT64),
}
_SMALL: Final = {"int8": Type.INT8, "int16": Type.INT16}
_LOGICAL: Final = {proto: name for name, (proto, _) in LOGICAL_TYPES.items()}
_SCALE_MAX: Final = 10_000

Convert = Callable[[Any], Any]
Get = Callable[[Source], str]
"""Returns the expression of a field's value in Connect, where `value` is the message's Python object."""


class ProtoReader:
    """A reader of values of one message. `schema` is Connect's; `version` is the registry's of the subject."""

    def __init__(
        self, proto: ProtoSchema, message: Any, settings: Settings, *, version: int | None = None
    ) -> None:
        self._proto = proto
        self._settings = settings
        self._open: list[str] = []
        self._known: dict[str, tuple[list[tuple[str, Schema]], Callable[[Schema], Convert]]] = {}
        self._from_string = message_class(message).FromString
        wrapped = WRAPPERS.get(message.full_name)
        if wrapped is not None and settings.wrapper_for_raw_primitives:
            builder, made = SchemaBuilder(wrapped), _unwrapped(message)
        else:
            builder, made = self._message(message)
        self.schema = builder.version(version).build()
        self._convert = made(self.schema)

    def __call__(self, data: bytes, start: int = 0) -> Any:
        return self.many([data], start)[0]

    def many(self, data: Sequence[bytes], start: int) -> list[Any]:
        parse = self._from_string
        try:
            messages = [parse(each[start:]) for each in data]
        except (DecodeError, UnicodeDecodeError) as e:  # the latter of the runtime without C
            raise DataError(f"Failed to deserialize Protobuf data: {e}") from e
        return list(map(self._convert, messages))

    def _message(self, message: Any) -> tuple[SchemaBuilder, Callable[[Schema], Convert]]:
        full = message.full_name
        builder = SchemaBuilder.struct(self._name(message))
        if full not in self._known:
            if full in self._open:
                raise DataError(f"{full} contains itself; Klamm's schemas cannot be recursive")
            self._open.append(full)
            self._known[full] = self._fields(message)
            self._open.pop()
        fields, made = self._known[full]
        for name, schema in fields:
            builder.field(name, schema)
        return builder, made

    def _name(self, holder: Any) -> str:
        return str(holder.full_name if self._settings.enhanced_protobuf_schema_support else holder.name)

    def _fields(self, message: Any) -> tuple[list[tuple[str, Schema]], Callable[[Schema], Convert]]:
        """Returns the fields of its struct, oneofs first, and the function that makes the struct."""
        fields: list[tuple[str, Schema]] = []
        gets: list[Get] = []
        in_oneof = set()
        for oneof in message.oneofs:
            if any(f.full_name in self._proto.optional for f in oneof.fields):
                continue
            in_oneof |= {f.name for f in oneof.fields}
            if self._settings.flatten_unions:
                for field in oneof.fields:
                    schema, convert = self._field(field, member=True)
                    fields.append((field.name, schema))
                    gets.append(_present(message, field.name, convert))
            else:
                name, schema, get = self._oneof(message, oneof)
                fields.append((name, schema))
                gets.append(get)
        for field in message.fields:
            if field.name not in in_oneof:
                schema, convert = self._field(field, member=False)
                fields.append((field.name, schema))
                always = self._always(field)
                gets.append(
                    _always(field.name, convert) if always else _present(message, field.name, convert)
                )

        def made(schema: Schema) -> Convert:
            source = Source()
            values = ", ".join([get(source) for get in gets])
            return source.compile(source.struct(schema, f"[{values}]"))

        return fields, made

    def _always(self, field: Any) -> bool:
        """Returns whether a field has a value even where none was written."""
        if field.is_repeated:
            return True
        if self._settings.generate_struct_for_nulls:  # there is no day 0, nor a decimal without digits
            return field.message_type is None or field.message_type.full_name not in _LOGICAL
        return field.message_type is None and not (
            field.full_name in self._proto.optional
            or (self._settings.optional_for_proto2 and self._has_keyword(field))
        )

    def _has_keyword(self, field: Any) -> bool:
        """Returns whether the field is written with `optional`."""
        if field.full_name in self._proto.optional:
            return True
        return (
            field.has_presence
            and field.message_type is None
            and not field.is_required
            and field.containing_oneof is None
        )

    def _oneof(self, message: Any, oneof: Any) -> tuple[str, Schema, Get]:
        name = oneof.name
        builder = SchemaBuilder.struct()
        if self._settings.generalized_sum_type_support:
            builder.name(name).parameter(GENERAL_UNION, name)
        else:
            builder.name(f"{UNION}.{self._name(oneof)}")
        converts: dict[str, tuple[int, Convert]] = {}
        for index, field in enumerate(oneof.fields):
            schema, convert = self._field(field, member=True)
            builder.field(field.name, schema)
            converts[field.name] = (index, convert)
        union = builder.optional().build()
        which = message_class(message).WhichOneof

        def get(value: Any) -> Struct | None:
            found = which(value, name)
            if found is None:
                return None
            index, convert = converts[found]
            made: list[Any] = [None] * len(converts)
            made[index] = convert(getattr(value, found))
            return Struct.of_checked(union, made)

        field_name = f"{name}_{oneof.index}" if self._settings.generate_index_for_unions else name
        return field_name, union, lambda source: f"{source.constant(get)}(value)"

    def _field(self, field: Any, *, member: bool) -> tuple[Schema, Convert]:
        builder, made = self._single(field)
        if field.is_repeated and not _is_map(field):
            item = builder.optional().build()
            convert_item = made(item)
            builder = SchemaBuilder.array(item).optional()
            made = lambda _: lambda values: [convert_item(v) for v in values]  # noqa: E731
        settings = self._settings
        if member:
            builder.optional()
            if settings.wrapper_for_nullables and _wrapped(field) is not None:
                builder.parameter(WRAPPER, "true")
        elif settings.optional_for_nullables:
            if self._has_keyword(field):
                builder.optional()
        elif not settings.wrapper_for_nullables:
            builder.optional()
        schema = builder.parameter(TAG, str(field.number)).build()
        return schema, made(schema)

    def _single(self, field: Any) -> tuple[SchemaBuilder, Callable[[Schema], Convert]]:
        """Returns schema and conversion of a single value of a field, whether or not the field is repeated."""
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        if field.message_type is not None:
            return self._inner(field)
        type_ = _TYPE_NAMES[field.type]
        params = self._proto.params.get(field.full_name, {})
        kind = _SCALARS[type_]
        if kind is Type.INT32:
            kind = _SMALL.get(params.get(CONNECT_TYPE, ""), kind)
        builder = SchemaBuilder(kind)
        if kind in {Type.INT32, Type.INT64} and type_ not in {"int32", "int64"}:
            builder.parameter(TYPE, type_)
        convert = _signed if type_ in {"uint64", "fixed64"} else _narrow.get(kind, _same)
        return builder, lambda _: convert

    def _enum(self, enum: Any) -> tuple[SchemaBuilder, Callable[[Schema], Convert]]:
        parameter = self._settings.enum_parameter
        builder = SchemaBuilder(Type.INT32 if self._settings.int_for_enums else Type.STRING)
        builder.name(self._name(enum)).parameter(parameter, enum.name).optional()
        for value in enum.values:
            builder.parameter(f"{parameter}.{value.name}", str(value.number))
        if self._settings.int_for_enums:
            return builder, lambda _: _same
        names = {v.number: v.name for v in reversed(enum.values)}  # the first of aliases
        return builder, lambda _: lambda n: names.get(n) or f"UNKNOWN_ENUM_VALUE_{enum.name}_{n}"

    def _inner(self, field: Any) -> tuple[SchemaBuilder, Callable[[Schema], Convert]]:
        if field.type == _FIELD.TYPE_GROUP:
            raise DataError(f"Unknown Connect schema type: GROUP, of {field.full_name}")
        message = field.message_type
        logical = _LOGICAL.get(message.full_name)
        if logical is not None:
            builder, made = _logical(logical, self._proto.params.get(field.full_name, {}))
        elif _wrapped(field) is not None and self._settings.wrapper_for_nullables:
            builder, made = SchemaBuilder(WRAPPERS[message.full_name]), _unwrapped(message)
        elif _is_map(field):
            builder, made = self._map(message)
        else:
            builder, made = self._message(message)
        return builder.optional(), made

    def _map(self, entry: Any) -> tuple[SchemaBuilder, Callable[[Schema], Convert]]:
        (keys, key), (values, value) = (self._field(f, member=False) for f in entry.fields)
        builder = SchemaBuilder.map(keys, values).name(from_entry_name(self._name(entry)))
        get_key, get_value = (
            _function(_always(name, convert) if self._whole(field) else _present(entry, name, convert))
            for name, convert, field in zip(("key", "value"), (key, value), entry.fields, strict=True)
        )
        return builder, lambda _: lambda pairs: {get_key(p): get_value(p) for p in pairs}

    def _whole(self, field: Any) -> bool:
        """Returns whether an entry's absent field has a value: numbers and texts become 0 and empty, messages null."""
        return field.message_type is None


def _same(value: Any) -> Any:
    return value


def _always(name: str, convert: Convert) -> Get:
    return lambda source: _converted(source, _attribute(name), convert)


def _present(message: Any, name: str, convert: Convert) -> Get:
    has = message_class(message).HasField

    def get(source: Source) -> str:
        found = _converted(source, _attribute(name), convert)
        return f"({found} if {source.constant(has)}(value, {name!r}) else None)"

    return get


def _attribute(name: str) -> str:
    plain = name.isidentifier() and not iskeyword(name)
    return f"value.{name}" if plain else f"getattr(value, {name!r})"


def _converted(source: Source, value: str, convert: Convert) -> str:
    return value if convert is _same else f"{source.constant(convert)}({value})"


def _function(get: Get) -> Convert:
    source = Source()
    return source.compile(get(source))


def _signed(value: int) -> int:
    """Returns 64 bits without a sign as Java's long."""
    return value - (1 << 64) if value >> 63 else value


def _wrap(bits: int) -> Convert:
    half = 1 << (bits - 1)
    return lambda value: (value + half) % (half << 1) - half


_narrow: Final = {Type.INT8: _wrap(8), Type.INT16: _wrap(16)}


def _wrapped(field: Any) -> Type | None:
    return None if field.message_type is None else WRAPPERS.get(field.message_type.full_name)


def _unwrapped(message: Any) -> Callable[[Schema], Convert]:
    get: Convert = attrgetter("value")
    if message.full_name == "google.protobuf.UInt64Value":
        return lambda _: lambda value: _signed(value.value)
    return lambda _: get


def _is_map(field: Any) -> bool:
    if field.message_type is None:
        return False
    inner = list(field.message_type.fields)
    return (
        field.is_repeated is True
        and field.message_type.name.endswith(ENTRY)
        and [f.name for f in inner] == ["key", "value"]
        and not any(f.is_repeated for f in inner)
    )


def _logical(name: str, params: Mapping[str, str]) -> tuple[SchemaBuilder, Callable[[Schema], Convert]]:
    if name == DECIMAL:
        builder = decimal_builder(_number(params.get(SCALE)) or 0)
        precision = _number(params.get(PRECISION))
        if precision is not None:
            builder.parameter(CONNECT_PRECISION, str(precision))
        return builder, _decimal
    if name == DATE:
        return date_builder(), lambda _: _date
    if name == TIME:
        return time_builder(), lambda _: _time
    return timestamp_builder(), _timestamp


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _decimal(schema: Schema) -> Convert:
    """Returns the decimal with the scale of the schema where that loses nothing, else with its own scale."""
    wanted = int(schema.parameters["scale"])

    def convert(value: Any) -> Decimal:
        scale, unscaled = value.scale, int.from_bytes(value.value, "big", signed=True)
        if scale == wanted:
            return scaled(unscaled, wanted)
        if abs(scale) > _SCALE_MAX:
            raise DataError(f"Decimal: scale {scale} is beyond {_SCALE_MAX}")
        missing = wanted - scale
        if missing > 0:
            return scaled(unscaled * 10**missing, wanted)
        if missing < 0 and unscaled % 10**-missing == 0:
            return scaled(unscaled // 10**-missing, wanted)
        return scaled(unscaled, scale)

    return convert


def _timestamp(schema: Schema) -> Convert:
    read = primitive_reader(schema)
    return lambda value: read(value.seconds * 1000 + value.nanos // 1_000_000)


def _date(value: Any) -> date:
    try:
        return date(value.year, value.month, value.day)
    except ValueError as e:
        raise DataError(f"Date {value.year}-{value.month}-{value.day}: {e}") from e


def _time(value: Any) -> time:
    try:
        return time(value.hours, value.minutes, value.seconds, value.nanos // 1_000_000 * 1000)
    except ValueError as e:
        raise DataError(f"Time {value.hours}:{value.minutes}:{value.seconds}: {e}") from e
