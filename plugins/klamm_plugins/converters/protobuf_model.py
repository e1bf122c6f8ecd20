"""Connect's schemas in the Protobuf language, as Confluent's ProtobufData makes them. No values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2

from klamm_plugins.converters.protobuf_names import (
    CONNECT_PRECISION,
    CONNECT_TYPE,
    DECIMAL_TYPE,
    DEFAULT_NAME,
    ENUM,
    GENERAL_ENUM,
    GENERAL_UNION,
    LOGICAL_TYPES,
    PRECISION,
    SCALE,
    TAG,
    UNION,
    WRAPPER,
    WRAPPERS_FILE,
    Settings,
    enum_type,
    is_union,
    scalar_type,
    to_entry_name,
    wrapper_type,
)
from klamm_plugins.converters.protobuf_parser import SCALARS
from klamm_plugins.converters.protobuf_pool import known_file
from klamm_plugins.converters.protobuf_print import text_of
from klamm_plugins.errors import DataError
from klamm_plugins.logical import is_logical
from klamm_plugins.schema import Field, Schema, Type

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SMALL: Final = {Type.INT8: "int8", Type.INT16: "int16"}
_TAG_MAX: Final = 536_870_911


@dataclass(frozen=True, slots=True)
class ProtoText:
    """A schema's text, and the full name of the message of its values."""

    text: str
    message: str


def proto_text(schema: Schema, settings: Settings) -> ProtoText:
    """Returns a Connect schema in the Protobuf language. Raises DataError for a type that Protobuf does not have."""
    if schema.type is Type.STRUCT and not is_union(schema):
        return _Builder(settings).root(schema)
    if schema.type in {Type.ARRAY, Type.MAP, Type.STRUCT} or is_logical(schema) or enum_type(schema):
        what = schema.type.name if schema.type in {Type.ARRAY, Type.MAP} else f"{schema!r}"
        raise DataError(
            f"Unsupported root schema of type {what}: Protobuf has messages there, of structs and of numbers, texts, "
            "bytes; put it into a struct (transform HoistField)"
        )
    return ProtoText(text_of(known_file(WRAPPERS_FILE), {}), wrapper_type(_plain(schema)))


def _plain(schema: Schema) -> Schema:
    """Returns the schema without its former Protobuf type: at the root, 64 bits are always Int64Value."""
    return Schema(schema.type)


class _Builder:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._file = descriptor_pb2.FileDescriptorProto(syntax="proto3")
        self._params: dict[str, dict[str, str]] = {}
        self._unnamed = 0
        self._scope: list[str] = []
        self._types: dict[str, tuple[Field, ...]] = {}  # what is defined, by full names

    def root(self, schema: Schema) -> ProtoText:
        package, name = self._settings.split(self._named(schema.name))
        if package:
            self._file.package = package
            self._scope = [package]
        self._message(self._file.message_type, name, schema.fields)
        return ProtoText(text_of(self._file, self._params), ".".join([*self._scope, name]))

    def _named(self, name: str | None) -> str:
        if name:
            return name
        self._unnamed += 1
        return f"{DEFAULT_NAME}{self._unnamed}"

    def _simple(self, name: str | None) -> str:
        full = self._named(name)
        return self._settings.name(full.rpartition(".")[2], f"the schema name {full!r},")

    def _message(self, messages: Any, name: str, fields: tuple[Field, ...]) -> None:
        message = messages.add(name=name)
        self._scope.append(name)
        self._types[".".join(self._scope)] = fields
        numbers = _numbers(fields)
        optional = []
        for field, number in zip(fields, numbers, strict=True):
            if is_union(field.schema):
                self._oneof(message, field)
                continue
            made = self._field(message, field.schema, self._field_name(field), number, member=False)
            if self._settings.optional_for_nullables and _may_be_optional(field.schema):
                made.proto3_optional = True
                optional.append(made)
        for made in optional:
            made.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{made.name}")
        self._scope.pop()

    def _field_name(self, field: Field) -> str:
        return self._settings.name(field.name, f"the field of {'.'.join(self._scope)},")

    def _oneof(self, message: Any, field: Field) -> None:
        union = field.schema
        general = union.parameters.get(GENERAL_UNION)
        name = general if general and self._settings.generalized_sum_type_support else None
        if name is None:
            if not (union.name or "").startswith(f"{UNION}."):
                raise DataError(f"{field.name}: {union!r} is a union without a name, which a oneof needs")
            name = self._simple((union.name or "").removeprefix(f"{UNION}."))
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=name)
        for branch in union.fields:
            if TAG not in branch.schema.parameters:
                raise DataError(f"{field.name}.{branch.name}: a field of a oneof needs the parameter {TAG}")
            self._field(
                message, branch.schema, self._field_name(branch), _tag(branch), member=True
            ).oneof_index = index

    def _field(self, message: Any, schema: Schema, name: str, number: int, *, member: bool) -> Any:
        made = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
        if schema.type is Type.ARRAY and schema.value_schema is not None:
            made.label = _FIELD.LABEL_REPEATED
            schema = schema.value_schema
            if schema.type in {Type.ARRAY, Type.MAP} or is_union(schema):
                raise DataError(f"{name}: Array cannot be nested, nor hold {schema!r}, in Protobuf")
        if is_logical(schema):
            made.type_name = self._logical(schema, name)
        elif schema.type is Type.STRUCT:
            if is_union(schema):
                raise DataError(f"{name}: a union must be in a struct, not in a map or another union")
            made.type_name = self._struct(message, schema, name)
        elif schema.type is Type.MAP:
            made.label = _FIELD.LABEL_REPEATED
            made.type_name = self._map(message, schema)
        elif enum_type(schema) is not None:
            made.type_name = self._enum(message, schema)
        else:
            self._scalar(made, schema, name, member=member)
        return made

    def _logical(self, schema: Schema, name: str) -> str:
        assert schema.name is not None, "a logical type has one"
        type_, file = LOGICAL_TYPES[schema.name]
        self._import(file)
        if type_ == DECIMAL_TYPE:
            given = {PRECISION: CONNECT_PRECISION, SCALE: SCALE}
            params = {k: schema.parameters[p] for k, p in given.items() if p in schema.parameters}
            self._note(name, params)
        return type_

    def _note(self, name: str, params: dict[str, str]) -> None:
        self._params[".".join([*self._scope, name])] = params

    def _import(self, file: str) -> None:
        if file not in self._file.dependency:
            self._file.dependency.append(file)

    def _scalar(self, made: Any, schema: Schema, name: str, *, member: bool) -> None:
        if schema.type in _SMALL:
            self._note(name, {CONNECT_TYPE: _SMALL[schema.type]})
        if wraps(schema, self._settings, member=member):
            made.type_name = wrapper_type(schema)
            self._import(WRAPPERS_FILE)
            return
        scalar = scalar_type(schema)
        if scalar not in SCALARS:
            raise DataError(f"{name}: {scalar!r} is no type in Protobuf")
        made.type = SCALARS[scalar]

    def _struct(self, message: Any, schema: Schema, field: str) -> str:
        """Defines the struct in the message where it comes first, and returns its name."""
        name = self._simple(schema.name)
        if name == field:  # no message and field of one name
            name += "Message"
        known = self._types.get(".".join([*self._scope, name]))
        if known is None and name == message.name:
            known = self._types[".".join(self._scope)]
        if known is None:
            self._message(message.nested_type, name, schema.fields)
        elif known != schema.fields:
            raise DataError(f"{name}: one Protobuf message cannot have two types of one name")
        return name

    def _map(self, message: Any, schema: Schema) -> str:
        assert schema.key_schema is not None, "the builder gives maps their schemas"
        assert schema.value_schema is not None, "as above"
        name = to_entry_name(self._simple(schema.name))
        pair = (Field("key", 0, schema.key_schema), Field("value", 1, schema.value_schema))
        full = ".".join([*self._scope, name])
        known = self._types.get(full)
        if known is not None:
            if known != pair:
                raise DataError(f"{name}: one Protobuf message cannot have two types of one name")
            return name
        if schema.key_schema.type in {Type.ARRAY, Type.MAP}:
            raise DataError(f"{name}: the keys of a map cannot be {schema.key_schema!r} in Protobuf")
        entry = message.nested_type.add(name=name)
        self._scope.append(name)
        self._types[full] = pair
        for part in pair:
            self._field(entry, part.schema, part.name, part.index + 1, member=False)
        self._scope.pop()
        return name

    def _enum(self, message: Any, schema: Schema) -> str:
        name = self._settings.name(enum_type(schema) or "", "the enum")
        symbols = next(
            filter(None, (_symbols(schema, p) for p in (self._settings.enum_parameter, ENUM, GENERAL_ENUM))),
            {},
        )
        if 0 not in symbols.values():
            raise DataError(
                f"{name}: an enum needs a symbol of number 0 in Protobuf, and {schema!r} has none"
            )
        for known in message.enum_type:
            if known.name == name:
                if {v.name: v.number for v in known.value} != symbols:
                    raise DataError(f"{name}: one Protobuf message cannot have two enums of one name")
                return name
        made = message.enum_type.add(name=name)
        for symbol, number in sorted(symbols.items(), key=lambda s: s[1] != 0):  # 0 must come first
            made.value.add(name=self._settings.name(symbol, f"the symbol of {name},"), number=number)
        return name


def _symbols(schema: Schema, parameter: str) -> dict[str, int]:
    """Returns the symbols of an enum and their numbers."""
    prefix = f"{parameter}."
    found: dict[str, int] = {}
    for key, value in schema.parameters.items():
        if key.startswith(prefix):
            try:
                found[key.removeprefix(prefix)] = int(value)
            except ValueError:
                raise DataError(
                    f"{schema!r}: parameter {key} must be the number of a symbol, not {value!r}"
                ) from None
    return found


def wraps(schema: Schema, settings: Settings, *, member: bool) -> bool:
    """Returns whether a primitive is put into a wrapper message. Members of oneofs need none to be absent."""
    marked = schema.parameters.get(WRAPPER, "").lower() == "true"
    return settings.wrapper_for_nullables and schema.optional and (not member or marked)


def _may_be_optional(schema: Schema) -> bool:
    return schema.optional and schema.type not in {Type.ARRAY, Type.MAP}


def _tag(field: Field) -> int:
    given = field.schema.parameters[TAG]
    try:
        number = int(given)
    except ValueError:
        number = 0
    if not 1 <= number <= _TAG_MAX:
        raise DataError(f"{field.name}: parameter {TAG} must be a number of 1 to {_TAG_MAX}, not {given!r}")
    return number


def _numbers(fields: tuple[Field, ...]) -> list[int]:
    """Returns the numbers of all fields: their tags, else 1, 2, 3 and so on without the taken ones (a union uses one
    up).
    """
    inner = [b for f in fields if is_union(f.schema) for b in f.schema.fields]
    taken = {_tag(f) for f in [*fields, *inner] if TAG in f.schema.parameters}
    free = (n for n in range(1, _TAG_MAX) if n not in taken)
    return [_tag(f) if TAG in f.schema.parameters else next(free) for f in fields]
