"""Formats of keys and values, from the bytes of a topic to a JSON value and back."""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm_base.errors import ConfigError, KlammError
from klamm_base.extras import how_to_install

_NUMBERS: Final = {"short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}
_REGISTRY: Final = {
    "avro": ("klamm_plugins.converters.avro", "AvroConverter"),
    "jsonschema": ("klamm_plugins.converters.json_schema_registry", "JsonSchemaConverter"),
    "protobuf": ("klamm_plugins.converters.protobuf", "ProtobufConverter"),
}
_JAVA: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Numbers that JSON does not have, as Java writes them."""
PLAIN: Final = ("raw", "string", "json", "hex", "base64", *_NUMBERS)
FORMATS: Final = (*PLAIN, *_REGISTRY)
Decode = Callable[[str, bytes], Any]
"""Returns the JSON value of a topic's bytes; bytes for `raw`. Raises ValueError or KlammError."""


class BadRecord(KlammError):
    """A key or value that is not in the format that was asked for."""


def check(name: str, option: str) -> None:
    """Raise ConfigError for a format that there is not."""
    if name not in FORMATS:
        raise ConfigError(f"{option} {name}: use one of {', '.join(FORMATS)}")


def needs_registry(name: str) -> bool:
    """Return whether a format's schemas are in a registry."""
    return name in _REGISTRY


def decoder(name: str, *, is_key: bool, registry: Mapping[str, str] | None = None) -> Decode:
    """Return the function that decodes a format. Raises ConfigError."""
    match name:
        case "raw":
            return lambda _, data: data
        case "string":
            return lambda _, data: data.decode()
        case "json":
            return lambda _, data: json.loads(data)
        case "hex":
            return lambda _, data: data.hex()
        case "base64":
            return lambda _, data: base64.b64encode(data).decode()
        case _ if name in _NUMBERS:
            return lambda _, data: _number(name, data)
    return _from_registry(name, is_key=is_key, registry=registry or {})


def _number(name: str, data: bytes) -> int | float | str:
    size = struct.calcsize(_NUMBERS[name])
    if len(data) != size:
        raise ValueError(f"{name} has {size} bytes, not {len(data)}")
    number: int | float = struct.unpack(_NUMBERS[name], data)[0]
    return number if math.isfinite(number) else _JAVA[str(number)]


def _from_registry(name: str, *, is_key: bool, registry: Mapping[str, str]) -> Decode:
    """Return a decoder by the converter of Connect, whose values become JSON as its JsonConverter writes them."""
    from importlib import import_module

    from klamm_plugins.converters.json import JsonConverter

    module, cls = _REGISTRY[name]
    try:
        converter = getattr(import_module(module), cls)()
    except ImportError as e:
        raise ConfigError(f"format {name} needs more packages: {how_to_install('schemas')} ({e})") from None
    converter.configure(dict(registry), is_key=is_key)
    as_json = JsonConverter()
    as_json.configure({"schemas.enable": "false"}, is_key=is_key)

    def decode(topic: str, data: bytes) -> Any:
        schema, value = converter.to_connect_data(topic, data)
        text = as_json.from_connect_data(topic, schema, value)
        return None if text is None else json.loads(text)

    return decode


def decoded(decode: Decode, topic: str, data: bytes | None, what: str) -> Any:
    """Return a key or a value as JSON, None for null. Raises BadRecord that begins with `what`."""
    if data is None:
        return None
    from klamm_plugins.errors import DataError

    try:
        return decode(topic, data)
    except (ValueError, DataError) as e:
        raise BadRecord(f"{what}: {e}") from None


def as_bytes(value: Any) -> bytes:
    """Return a decoded value as it is printed: text as it is, anything else as JSON, null for None."""
    match value:
        case None:
            return b"null"
        case bytes():
            return value
        case str():
            return value.encode()
        case _:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def json_value(data: bytes | None) -> str | dict[str, str] | None:
    """Return text; bytes that are not UTF-8 as `{"base64": ...}`, because JSON has no bytes."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def encode(name: str, text: bytes) -> bytes:
    """Return the topic's bytes of what was typed, for a format without schemas. Raises ValueError."""
    match name:
        case "raw":
            return text
        case "string":
            text.decode()
            return text
        case "json":
            json.loads(text)
            return text
        case "hex":
            return bytes.fromhex(text.decode())
        case "base64":
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as e:
                raise ValueError(f"not base64: {e}") from None
    number = float(text) if name in {"float", "double"} else int(text)
    try:
        return struct.pack(_NUMBERS[name], number)
    except (struct.error, OverflowError) as e:
        raise ValueError(f"{text.decode()} is no {name}: {e}") from None
