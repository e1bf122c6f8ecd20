"""The embedded formats without a schema, the content types of all, and the form of a value with a schema. Pure."""

from __future__ import annotations

import base64
import binascii
from enum import StrEnum
from typing import Any, Final, Protocol

import orjson

from klamm.restproxy.errors import unprocessable


class Format(StrEnum):
    """An embedded format, by its name in content types."""

    BINARY = "binary"
    JSON = "json"
    AVRO = "avro"
    JSONSCHEMA = "jsonschema"
    PROTOBUF = "protobuf"

    @property
    def has_schema(self) -> bool:
        return self in KINDS

    @property
    def media_type(self) -> str:
        return f"application/vnd.kafka.{self}.v2+json"


KINDS: Final = {Format.AVRO: "AVRO", Format.JSONSCHEMA: "JSON", Format.PROTOBUF: "PROTOBUF"}
"""The registry's names of the formats with a schema."""
V2: Final = "application/vnd.kafka.v2+json"
OF_ANSWERS: Final = (V2, "application/vnd.kafka+json", "application/json", "application/octet-stream")
OF_RECORDS: Final = tuple(each.media_type for each in Format)
_BY_TYPE: Final = {each.media_type: each for each in Format}


def of_content(media_type: str) -> Format:
    """Returns the format of a body's content type; binary where it names none."""
    return _BY_TYPE.get(media_type.lower(), Format.BINARY)


class Codec(Protocol):
    """JSON to a record's bytes and back, for one schema."""

    def encode(self, value: Any) -> bytes:
        """Returns the bytes of a value, with the head that names the schema. Raises ProxyError 42203."""
        ...

    def decode(self, data: bytes) -> Any:
        """Returns the JSON of such bytes. Raises ProxyError."""
        ...


def encode(format: Format, value: Any, where: str) -> bytes | None:
    """Returns the bytes of a value of a format without a schema; null is no value. Raises ProxyError naming `where`."""
    if value is None:
        return None
    if format is Format.JSON:
        return json_bytes(value, where)
    if not isinstance(value, str):
        raise unprocessable(f"{where} must be text in base64, because the format is binary")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as e:
        raise unprocessable(f"{where} is no base64: {e}") from None


def json_bytes(value: Any, where: str) -> bytes:
    """Returns a value as JSON. Raises ProxyError naming `where` for a number beyond 64 bits, or half a surrogate pair."""
    try:
        return orjson.dumps(value)
    except TypeError as e:
        raise unprocessable(f"{where} is not usable JSON: {e}") from None


def decode(format: Format, data: bytes | None) -> Any:
    """Returns the JSON value of a record's bytes for a format without a schema. Raises ValueError."""
    if data is None:
        return None
    if format is Format.BINARY:
        return base64.b64encode(data).decode("ascii")
    return orjson.loads(data)
