"""ProtobufConverter: Protobuf with a schema registry, as Confluent's converter of the same name.

Between the schema's id and the message are the message's indexes: its place in its file. `google.protobuf` is
loaded when the converter is configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type
from klamm_plugins.converters.protobuf_names import Settings
from klamm_plugins.converters.registry import RegisteredSchema
from klamm_plugins.converters.registry_converter import (
    HEAD_BYTES,
    Reading,
    RegistryConverter,
    ValueWriter,
    needs,
    registry_config,
)
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Schema

_FIRST: Final = b"\0"  # the first message of the file
_INDEXES_MAX: Final = 50

_KEYS: Final = (
    ("generalized.sum.type.support", False, "Whether oneofs and enums have the names that all of Confluent's converters share."),
    ("ignore.default.for.nullables", False, "Whether a null stays one where the field has a default."),
    ("enhanced.protobuf.schema.support", False, "Whether names of schemas that are read have the package in them."),
    ("scrub.invalid.names", False, "Whether what Protobuf does not take in a name is replaced."),
    ("int.for.enums", False, "Whether enums are read as numbers, not as names."),
    ("optional.for.nullables", False, "Whether optional fields are `optional` in Protobuf, so that null and 0 differ."),
    ("optional.for.proto2", True, "Whether `optional` fields of proto2 are null where they are absent."),
    ("wrapper.for.nullables", False, "Whether optional fields are wrapper messages (google.protobuf.Int32Value)."),
    ("wrapper.for.raw.primitives", True, "Whether a wrapper message by itself is read as what it wraps."),
    ("generate.struct.for.nulls", False, "Whether an absent message is read as one whose fields are all absent."),
    ("generate.index.for.unions", True, "Whether the name of a oneof that is read ends with its index."),
    ("flatten.unions", False, "Whether the fields of a oneof are read as fields of the message."),
)  # fmt: skip


class ProtobufConverter(RegistryConverter):
    kafka_name = "io.confluent.connect.protobuf.ProtobufConverter"
    kind = "PROTOBUF"

    @classmethod
    def config(cls) -> ConfigDef:
        config = registry_config()
        for name, default, documentation in _KEYS:
            config.define(
                name,
                Type.BOOLEAN,
                default=default,
                importance=Importance.LOW if "unions" in name else Importance.MEDIUM,
                documentation=documentation,
            )
        return config

    def set_up(self, settings: Mapping[str, Any]) -> None:
        with needs("protobuf", self.kafka_name):
            from klamm_plugins.converters import protobuf_model, protobuf_pool, protobuf_read, protobuf_write
        with needs("googleapis-common-protos", self.kafka_name):
            import google.type  # noqa: F401
        self._model, self._pool = protobuf_model, protobuf_pool
        self._read, self._write = protobuf_read, protobuf_write
        self._settings = Settings.of(settings)

    def schema_text(self, schema: Schema | None) -> str:
        text = self._model.proto_text(_needed(schema), self._settings).text
        self._pool.read(text, {})  # before the registry has it
        return text

    def record_name(self, schema: Schema | None) -> str | None:
        return None if schema is None else self._model.proto_text(schema, self._settings).message

    def writer(self, schema: Schema | None, registered: RegisteredSchema | None) -> ValueWriter:
        needed = _needed(schema)
        own = self._model.proto_text(needed, self._settings)
        if registered is None:
            proto = self._pool.read(own.text, {})
        else:
            proto = self._pool.read(registered.text, self._client.resolved(registered))
        message = proto.find(own.message)
        writer: ValueWriter = self._write.ProtoWriter(
            needed, message, self._settings, head=to_place(proto.indexes(message))
        )
        return writer

    def head_of(self, value: bytes) -> bytes:
        if value[HEAD_BYTES : HEAD_BYTES + 1] == _FIRST:
            return value[: HEAD_BYTES + 1]
        return value[: place_end(value)]

    def reading(self, registered: RegisteredSchema, references: Mapping[str, str], head: bytes) -> Reading:
        proto = self._pool.read(registered.text, references)
        message = proto.message(from_place(head[HEAD_BYTES:]))
        reader = self._read.ProtoReader(proto, message, self._settings, version=registered.version)
        return Reading(reader.schema, reader)


def to_place(indexes: tuple[int, ...]) -> bytes:
    """Writes a message's indexes: their number and each of them, zigzag; the first message of a file is one zero byte."""
    if indexes == (0,):
        return _FIRST
    return b"".join(_varint(n << 1) for n in (len(indexes), *indexes))


def from_place(place: bytes) -> tuple[int, ...]:
    """Reads the output of `to_place`; one zero byte is (0, ). The bytes must be whole."""
    numbers = []
    value = shift = 0
    for byte in place:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append((value >> 1) ^ -(value & 1))
            value = shift = 0
    return tuple(numbers[1:]) or (0,)


def place_end(value: bytes) -> int:
    """Returns the beginning of the message: behind as many numbers as the first number says. Raises DataError."""
    if value[:1] != _FIRST or len(value) < HEAD_BYTES:
        return HEAD_BYTES  # of somebody else, who is refused by the id
    at, left = HEAD_BYTES, 1
    counted = False
    while left:
        start = at
        while at < len(value) and value[at] >= 0x80:
            at += 1
        at += 1
        if at > len(value) or at - start > 5:
            raise DataError("Failed to deserialize Protobuf data: the message's indexes are cut off")
        left -= 1
        if not counted:
            counted = True
            left = (value[start] >> 1) if at - start == 1 and not value[start] & 1 else _INDEXES_MAX + 1
            if left > _INDEXES_MAX:
                raise DataError(
                    "Failed to deserialize Protobuf data: these bytes are not the indexes of a message"
                )
    return at


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _needed(schema: Schema | None) -> Schema:
    if schema is None:
        raise DataError("ProtobufConverter needs values with a schema; this one has none")
    return schema
