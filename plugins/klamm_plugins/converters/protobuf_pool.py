"""Descriptors of a schema in the Protobuf language, with all its imports, in a pool of its own.

Imports are found among the registry's references and the files that are always there: google/protobuf,
google/type and Confluent's. A `map` keeps its form on the wire, repeated entries, so that order and absent values
are not lost.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from klamm_plugins.converters.protobuf_parser import ProtoFile, parse
from klamm_plugins.errors import DataError

MAIN: Final = "klamm:schema.proto"
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_GOOGLE: Final = {
    "google/protobuf/": "any api descriptor duration empty field_mask source_context struct timestamp type wrappers",
    "google/type/": "calendar_period color date datetime dayofweek decimal expr fraction interval latlng money month "
    "phone_number postal_address quaternion timeofday",
}
_KNOWN: Final = {f"{place}{name}.proto" for place, names in _GOOGLE.items() for name in names.split()}
_CONFLUENT: Final = {
    "confluent/meta.proto": """syntax = "proto3"; package confluent;
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
        message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }""",
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
    "confluent/type/variant.proto": """syntax = "proto3"; package confluent.type;
        message Variant { bytes metadata = 1; bytes value = 2; }""",
}


@dataclass(frozen=True, slots=True)
class ProtoSchema:
    """A schema: `file` is its descriptor, `params` are Confluent's of all fields by their full names."""

    file: Any
    params: Mapping[str, Mapping[str, str]]
    optional: frozenset[str]
    """Full names of the fields that are `optional` in proto3."""
    entries: frozenset[str]
    """Full names of the messages for entries of a `map`. Confluent's indexes do not count them."""

    def message(self, indexes: tuple[int, ...]) -> Any:
        """Returns the message at a place: its index in the file, then among the nested messages, and so on. Raises
        DataError.
        """
        found, inner = None, list(self.file.message_types_by_name.values())
        for index in indexes:
            if not 0 <= index < len(inner):
                raise DataError(f"the Protobuf schema has no message at {list(indexes)}")
            found = inner[index]
            inner = self._counted(found.nested_types)
        if found is None:
            raise DataError("the Protobuf schema has no message")
        return found

    def find(self, full: str) -> Any:
        """Returns the message of a name, by its last part if need be; the first message, if neither exists."""
        try:
            message = self.file.pool.FindMessageTypeByName(full)
        except KeyError:
            message = self.file.message_types_by_name.get(full.rpartition(".")[2])
        return message if message is not None and message.file is self.file else self.message((0,))

    def indexes(self, message: Any) -> tuple[int, ...]:
        """Returns the place of a message of this file."""
        found: list[int] = []
        while message is not None:
            outer = message.containing_type
            beside = outer.nested_types if outer is not None else self.file.message_types_by_name.values()
            found.insert(0, [m.full_name for m in self._counted(beside)].index(message.full_name))
            message = outer
        return tuple(found)

    def _counted(self, messages: Iterable[Any]) -> list[Any]:
        return [m for m in messages if m.full_name not in self.entries]


def message_class(message: Any) -> Any:
    """Returns the Python class of a message."""
    return message_factory.GetMessageClass(message)


def known_file(name: str) -> Any:
    """Returns one of google's files as a FileDescriptorProto."""
    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    proto = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    for message in proto.message_type:
        for field in message.field:
            field.ClearField("json_name")  # some of protobuf's releases fill it in
    return proto


def read(text: str, references: Mapping[str, str]) -> ProtoSchema:
    """Reads the schema of a text and the texts that it imports, by their names. Raises DataError."""
    loader = _Loader(references)
    main = parse(text, MAIN)
    loader.load(main)
    try:
        file = loader.pool.FindFileByName(MAIN)
    except KeyError as e:
        raise DataError(f"the Protobuf schema cannot be used: {e}") from e
    return ProtoSchema(file, loader.params, frozenset(loader.optional), frozenset(loader.entries))


class _Loader:
    def __init__(self, references: Mapping[str, str]) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        self.params: dict[str, dict[str, str]] = {}
        self.optional: set[str] = set()
        self.entries: set[str] = set()
        self._references = references
        self._types: dict[str, int] = {}  # full names of messages and enums, and which of both
        self._loaded: set[str] = set()

    def load(self, file: ProtoFile) -> None:
        """Loads a file, after those that it imports."""
        proto = file.proto
        self._loaded.add(proto.name)
        for name in list(proto.dependency):
            if name not in self._loaded:
                self.load(self._imported(name, proto.name))
        self._declare(proto, proto.package)
        scope = proto.package.split(".") if proto.package else []
        for message in proto.message_type:
            self._resolve(message, [*scope, message.name])
        proto.ClearField("extension")  # of options, which data do not have
        proto.ClearField("options")
        self.params |= file.params
        self.entries |= set(file.entries)
        try:
            self.pool.AddSerializedFile(proto.SerializeToString())
        except TypeError as e:
            raise DataError(f"the Protobuf schema cannot be used: {e}") from e

    def _imported(self, name: str, by: str) -> ProtoFile:
        if name in self._references:
            return parse(self._references[name], name)
        if name in _CONFLUENT:
            return parse(_CONFLUENT[name], name)
        if name in _KNOWN:
            return ProtoFile(known_file(name))
        importer = "" if by == MAIN else f" ({by} does)"
        raise DataError(
            f"the Protobuf schema imports {name}{importer}, which is neither one of its references nor a file of Google's or Confluent's"
        )

    def _declare(self, holder: Any, scope: str) -> None:
        prefix = f"{scope}." if scope else ""
        nested = holder.message_type if hasattr(holder, "message_type") else holder.nested_type
        for message in nested:
            self._types[prefix + message.name] = _FIELD.TYPE_MESSAGE
            self._declare(message, prefix + message.name)
        for enum in holder.enum_type:
            self._types[prefix + enum.name] = _FIELD.TYPE_ENUM

    def _resolve(self, message: Any, scope: list[str]) -> None:
        _check(message, ".".join(scope))
        message.ClearField("extension")
        packing = {f.number: f.options.packed for f in message.field if f.options.HasField("packed")}
        message.ClearField("options")  # map_entry too
        for field in message.field:
            field.ClearField("options")
            if field.number in packing:
                field.options.packed = packing[field.number]
            if field.type_name:
                field.type_name, kind = self._find(field.type_name, scope)
                if field.type != _FIELD.TYPE_GROUP:
                    field.type = kind
            if field.proto3_optional:
                self.optional.add(".".join([*scope, field.name]))
        for inner in message.nested_type:
            self._resolve(inner, [*scope, inner.name])

    def _find(self, name: str, scope: list[str]) -> tuple[str, int]:
        """Returns the full name of a type, with a dot before it: that of the innermost scope that has the type."""
        if name.startswith("."):
            candidates = [name[1:]]
        else:
            candidates = [".".join([*scope[:end], name]) for end in range(len(scope), -1, -1)]
        for full in candidates:
            if full in self._types:
                return f".{full}", self._types[full]
        raise DataError(
            f"the Protobuf schema has a field of type {name} in {'.'.join(scope)}, and no type of this name"
        )


def _check(message: Any, name: str) -> None:
    """Raises DataError for a name or a number that comes twice: not all of google's runtimes refuse these."""
    for what, found in (
        ("name", [*(f.name for f in message.field), *(o.name for o in message.oneof_decl)]),
        ("number", [f.number for f in message.field]),
    ):
        twice = [each for each, count in Counter(found).items() if count > 1]
        if twice:
            raise DataError(
                f"the Protobuf schema cannot be used: {name}: the field {what} {twice[0]!r} comes twice"
            )
